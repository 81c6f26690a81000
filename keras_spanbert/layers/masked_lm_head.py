"""The head of the masked language model."""

import keras

from keras_spanbert.layers.sublayers import dense, layer_norm
from keras_spanbert.layers.tied_head import TiedHead, take_positions


@keras.saving.register_keras_serializable(package="keras_spanbert")
class MaskedLMHead(TiedHead):
    """Predicts the tokens at masked positions from the encoder's output there.

    `y = LayerNorm(GELU(W x + b1))`, `logits = y E^T + b`. E is the tied input
    embedding (or a kernel of this head), and b is this head's own bias. The
    layer has the same weights as keras-hub's `MaskedLMHead` and works on every
    backend with any dtype policy. It stays tied when a functional model that
    contains it is cloned or saved.

    Args:
        vocabulary_size: int. Size V of the vocabulary. Defaults to `None`, the
            size of `token_embedding`.
        token_embedding: `keras.layers.ReversibleEmbedding` whose weights
            project to the vocabulary. Defaults to `None`, a new kernel.
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
        ValueError: if neither `vocabulary_size` nor `token_embedding` is
            given, or both are given and differ.

    Example:
    ```python
    from keras_spanbert.layers.masked_lm_head import MaskedLMHead

    head = MaskedLMHead(vocabulary_size=100)
    logits = head(np.random.rand(1, 8, 16), np.array([[1, 4]]))  # [1, 2, 100]
    ```

    Reference:
        [Devlin et al. 2019](https://arxiv.org/abs/1810.04805), section 3.1.
    """

    def build(self, sequence_output_shape, mask_positions_shape=None):
        hidden_dim = sequence_output_shape[-1]
        # Keras uses these attributes as names in weight files.
        self._intermediate_dense = dense(
            self, hidden_dim, hidden_dim, "intermediate_dense", self.activation
        )
        self._intermediate_layer_norm = layer_norm(self, hidden_dim, "intermediate_layer_norm")
        self.build_projection(hidden_dim)
        self.built = True

    def call(self, sequence_output, mask_positions):
        x = take_positions(sequence_output, mask_positions)
        return self.project(self.hidden(x, self._intermediate_dense, self._intermediate_layer_norm))

    def compute_output_shape(self, sequence_output_shape, mask_positions_shape):
        return (*mask_positions_shape, self.vocabulary_size)
