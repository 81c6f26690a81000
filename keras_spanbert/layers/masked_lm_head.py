"""The masked language model's head."""

import keras
from keras import ops

from keras_spanbert.layers.tied_head import TiedHead


@keras.saving.register_keras_serializable(package="keras_spanbert")
class MaskedLMHead(TiedHead):
    """Predicts the tokens at masked positions from what the encoder has there.

    `y = LayerNorm(GELU(W x + b1))`, `logits = y E^T + b`. E is the tied input
    embedding (or a kernel of the head's own), b this head's own bias. It is
    keras-hub's layer of this name, with its weights, and computes on every
    backend with any dtype policy. Where it is cloned or saved in a functional
    model it stays tied.

    Args:
        vocabulary_size: int. Size V of the vocabulary. Defaults to `None`, the
            size of `token_embedding`.
        token_embedding: `keras.layers.ReversibleEmbedding` whose weights
            project to the vocabulary. Defaults to `None`, weights of its own.
        activation: activation of the hidden layer. Defaults to `"gelu"`, the
            exact (erf) GELU.
        layer_norm_epsilon: float. Defaults to `1e-12`.
        kernel_initializer: initializer of all kernels. Defaults to
            `"glorot_uniform"`.
        **kwargs: see `keras.layers.Layer`.

    Call arguments:
        sequence_output: float `[B, L, H]`.
        mask_positions: int32 `[B, M]`.

    Returns:
        Logits `[B, M, V]`.

    Raises:
        ValueError: where neither `vocabulary_size` nor `token_embedding` is
            given, or both are and differ.

    Example:
    ```python
    from keras_spanbert.layers.masked_lm_head import MaskedLMHead

    head = MaskedLMHead(vocabulary_size=100)
    logits = head(np.random.rand(1, 8, 16), np.array([[1, 4]]))  # [1, 2, 100]
    ```

    Reference:
        [Devlin et al. 2019](https://arxiv.org/abs/1810.04805), section 3.1.
    """

    def __init__(
        self,
        vocabulary_size: int | None = None,
        token_embedding=None,
        activation="gelu",
        layer_norm_epsilon: float = 1e-12,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(vocabulary_size, token_embedding, **kwargs)
        self.activation = keras.activations.get(activation)
        self.layer_norm_epsilon = layer_norm_epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, sequence_output_shape, *_):
        hidden_dim = sequence_output_shape[-1]
        # Keras's weight files name the weights after these attributes.
        self._intermediate_dense = keras.layers.Dense(
            hidden_dim,
            activation=self.activation,
            # One instance would draw the same values for equal shapes.
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name="intermediate_dense",
        )
        self._intermediate_dense.build((None, None, hidden_dim))
        self._intermediate_layer_norm = keras.layers.LayerNormalization(
            epsilon=self.layer_norm_epsilon,
            dtype=self.dtype_policy,
            name="intermediate_layer_norm",
        )
        self._intermediate_layer_norm.build((None, None, hidden_dim))
        self.build_projection(hidden_dim, self.kernel_initializer.clone())
        self.built = True

    def call(self, sequence_output, mask_positions):
        x = ops.take_along_axis(sequence_output, mask_positions[:, :, None], axis=1)
        return self.project(self._intermediate_layer_norm(self._intermediate_dense(x)))

    def compute_output_shape(self, sequence_output_shape, mask_positions_shape):
        return (*mask_positions_shape, self.vocabulary_size)

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "activation": keras.activations.serialize(self.activation),
                "layer_norm_epsilon": self.layer_norm_epsilon,
                "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            }
        )
        return config
