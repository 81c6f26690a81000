"""The heads of masked language modelling and of SBO, tied to the token embedding."""

import warnings

import keras
from keras import ops

from keras_spanbert.checks import check_counts, check_in, check_range
from keras_spanbert.keras_private import operations_before
from keras_spanbert.layers.layout import relayout
from keras_spanbert.layers.sublayers import (
    config_of,
    dense,
    flatten_sublayers,
    layer_norm,
    policy_with_quantization,
    resolve_policies,
)

FUSIONS = ("concat", "sum")


class TiedHead(keras.layers.Layer):
    """A head whose output projection can be tied to the model's token embedding.

    The arguments and errors are those of `SpanBoundaryHead`. A head that is created from a config
    finds its embedding by name when it is first called in a functional model, among the layers that
    compute its inputs.
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
        super().__init__(**kwargs)
        # The config of the embedding, until the layer is found: it cannot refer to another layer.
        self._embedding_config = None
        # How many layers of the functional model have the embedding's name and size.
        self._num_found = None
        if isinstance(token_embedding, dict):
            self._embedding_config, token_embedding = token_embedding, None
        size = getattr(token_embedding, "input_dim", vocabulary_size)
        vocabulary_size = size if vocabulary_size is None else vocabulary_size
        if size is None:
            raise ValueError(
                "One of `vocabulary_size` and `token_embedding` must be set. Received: "
                "vocabulary_size=None, token_embedding=None"
            )
        rule = f"equal to that of `token_embedding`, {size}"
        check_in("vocabulary_size", vocabulary_size, vocabulary_size == size, rule)
        check_counts(vocabulary_size=vocabulary_size)
        check_range("[0, inf)", layer_norm_epsilon=layer_norm_epsilon)
        self.vocabulary_size = vocabulary_size
        self.token_embedding = token_embedding
        self.activation = keras.activations.get(activation)
        self.layer_norm_epsilon = layer_norm_epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def __call__(self, *args, **kwargs):
        # `torch.compile` cannot trace `keras.tree.flatten` of a tuple.
        symbolic = [x for x in (*args, *kwargs.values()) if isinstance(x, keras.KerasTensor)]
        name = self._embedding_name()
        if symbolic and name and self._num_found is None:
            found = [
                layer
                for layer in flatten_sublayers(operations_before(symbolic))
                if layer.name == name and getattr(layer, "input_dim", None) == self.vocabulary_size
            ]
            self._num_found = len(found)
            if self._embedding_config is not None and len(found) == 1:
                self.token_embedding, self._embedding_config = found[0], None
        return super().__call__(*args, **kwargs)

    def _embedding_name(self):
        """Returns the name of the embedding, or `None` if the head is not tied."""
        if self._embedding_config is not None:
            return self._embedding_config["config"]["name"]
        return self.token_embedding and self.token_embedding.name

    def build_projection(self, hidden_dim: int) -> None:
        """Adds the bias and, if the head is not tied, the output kernel."""
        if self._embedding_config is not None:
            self.token_embedding = keras.layers.deserialize(self._embedding_config)
            self._embedding_config = None
            warnings.warn(
                f"{type(self).__name__} {self.name!r} was created from a config, and no layer "
                f"{self.token_embedding.name!r} of a functional model computes its inputs. Its "
                "`token_embedding` is a new, untied layer. To tie it, pass the layer: "
                f"`{type(self).__name__}.from_config({{**config, 'token_embedding': layer}})`.",
                stacklevel=2,
            )
        if self.token_embedding is None:
            self._output_kernel = self.add_weight(
                name="output_kernel",
                shape=(hidden_dim, self.vocabulary_size),
                initializer=self.kernel_initializer.clone(),
            )
        self._output_bias = self.add_weight(
            name="output_bias", shape=(self.vocabulary_size,), initializer="zeros"
        )
        resolve_policies(self)

    def project(self, x):
        """Returns logits `[..., V]` for hidden vectors `[..., H]`."""
        # With model parallelism, each device computes the logits of a part of the vocabulary. The
        # stored tables are sharded along H, which would make each logit a sum over devices.
        tied = self.token_embedding
        is_plain = tied is None or (tied.built and not tied.lora_enabled and _is_plain(tied))
        if is_plain and keras.backend.backend() == "torch":
            from keras_spanbert.layers.torch_layers import project

            return project(self, x)
        if tied is None:
            logits = ops.matmul(x, relayout(self._output_kernel, (None, "model")))
        elif tied.built and tied.compute_dtype == self.compute_dtype and _is_plain(tied):
            logits = _multiply(x, relayout(tied.embeddings, ("model", None)))
        else:
            logits = tied(x, reverse=True)
        return logits + ops.cast(relayout(self._output_bias, ("model",)), logits.dtype)

    def hidden(self, x, dense, norm):
        """Returns `norm(dense(x))` for layers of this head."""
        if keras.backend.backend() == "torch":
            from keras_spanbert.layers.torch_layers import are_plain, hidden_layer

            if are_plain([dense]):
                return hidden_layer(x, dense, norm)
        return norm(dense(x))

    def get_build_config(self):
        # In a functional model the head is built when it is called, after its embedding is found.
        return None if self._num_found is not None else super().get_build_config()

    def get_config(self):
        if (self._num_found or 0) > 1:
            raise ValueError(
                "A saved or cloned head finds its `token_embedding` by name, so no other layer "
                "before it may have that name. Received: several layers named "
                f"{self._embedding_name()!r} before {self.name!r}. Rename them, or save only the "
                "weights: `model.save_weights('model.weights.h5')`."
            )
        embedding = self._embedding_config
        if self.token_embedding is not None:
            embedding = keras.layers.serialize(self.token_embedding)
        config = super().get_config()
        names = ["vocabulary_size", "activation", "layer_norm_epsilon", "kernel_initializer"]
        config.update(config_of(self, names), token_embedding=embedding)
        # The head's policy map has the dtype policies of its sublayers, by path.
        policy = policy_with_quantization(self, self.dtype_policy)
        config["dtype"] = keras.dtype_policies.serialize(policy)
        return config

    @classmethod
    def from_config(cls, config):
        embedding = config.get("token_embedding")
        # Keras marks an object that appears more than once in a `.keras` file with this key.
        if isinstance(embedding, dict) and "shared_object_id" in embedding:
            config = {**config, "token_embedding": keras.layers.deserialize(embedding)}
        return cls(**config)


@keras.saving.register_keras_serializable(package="keras_spanbert")
class MaskedLMHead(TiedHead):
    """Predicts the tokens at `mask_positions` `[B, M]`: logits `[B, M, V]`.

    `y = LayerNorm(GELU(W x + b1))`, `logits = y E^T + b`. E is the tied input embedding (or a
    kernel of this head), and b is this head's own bias. The weights are those of keras-hub's
    `MaskedLMHead`, and the arguments those of `TiedHead`.
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


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBoundaryHead(TiedHead):
    """Predicts the tokens of a span from the two tokens just outside it.

    For each masked token: `h0 = [x_left; x_right; p_offset]`, `h1 = LayerNorm(GELU(W1 h0 + b1))`,
    `y = LayerNorm(GELU(W2 h1 + b2))`, `logits = y E^T + b`. E is the tied input embedding (or a
    kernel of this head), and b is this head's own bias. Only the M masked positions are computed.

    Args:
        vocabulary_size: int. Size V of the vocabulary. Defaults to `None`, the
            size of `token_embedding`.
        token_embedding: `keras.layers.ReversibleEmbedding` whose weights project to the vocabulary.
            If the functional model that computes `sequence_output` contains it, clones and `.keras`
            files stay tied. Defaults to `None`, a new kernel.
        max_span_tokens: int. Number of offset embeddings. Larger offsets share the last one, and
            their tokens should get weight 0. Defaults to `15`.
        position_dim: int. Size of the offset embedding p. Defaults to `200`.
        activation: activation of the two hidden layers. Defaults to `"gelu"`, the exact (erf) GELU.
        layer_norm_epsilon: float. Defaults to `1e-12`.
        fusion: "concat", or "sum" for `h0 = x_left + x_right + W p_offset`. Defaults to `"concat"`.
        kernel_initializer: initializer of all kernels and embeddings. Defaults
            to `"glorot_uniform"`.
        **kwargs: see `keras.layers.Layer`.

    Call arguments:
        sequence_output: float `[B, L, H]`.
        span_left: int32 `[B, M]`. Position just before the token's span.
        span_right: int32 `[B, M]`. Position just after it.
        span_offsets: int32 `[B, M]`. The token's offset in the span, from 0.

    Returns:
        Logits `[B, M, V]`.

    Raises:
        ValueError: if neither `vocabulary_size` nor `token_embedding` is
            given, both are given and differ, or `fusion` is unknown.

    Example:
    ```python
    head = keras_spanbert.SpanBoundaryHead(vocabulary_size=100)
    logits = head(
        np.random.rand(1, 8, 16), np.array([[1, 1]]), np.array([[4, 4]]), np.array([[0, 1]])
    )  # [1, 2, 100]
    ```

    Reference:
        [Joshi et al. 2020](https://arxiv.org/abs/1907.10529), section 3.2.
    """

    def __init__(
        self,
        vocabulary_size: int | None = None,
        token_embedding=None,
        max_span_tokens: int = 15,
        position_dim: int = 200,
        activation="gelu",
        layer_norm_epsilon: float = 1e-12,
        fusion: str = "concat",
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(
            vocabulary_size,
            token_embedding,
            activation,
            layer_norm_epsilon,
            kernel_initializer,
            **kwargs,
        )
        check_in("fusion", fusion, fusion in FUSIONS, f"one of {FUSIONS}")
        check_counts(max_span_tokens=max_span_tokens, position_dim=position_dim)
        self.max_span_tokens = max_span_tokens
        self.position_dim = position_dim
        self.fusion = fusion

    def build(
        self,
        sequence_output_shape,
        span_left_shape=None,
        span_right_shape=None,
        span_offsets_shape=None,
    ):
        hidden_dim = sequence_output_shape[-1]
        self._position_embedding = keras.layers.Embedding(
            self.max_span_tokens,
            self.position_dim,
            embeddings_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name="position_embedding",
        )
        self._position_embedding.build((None, None))
        if self.fusion == "sum":
            self._position_dense = dense(self, hidden_dim, self.position_dim, "position_dense")
        fused_dim = hidden_dim
        if self.fusion == "concat":
            fused_dim = 2 * hidden_dim + self.position_dim
        self._dense_1 = dense(self, hidden_dim, fused_dim, "dense_1", self.activation)
        self._layer_norm_1 = layer_norm(self, hidden_dim, "layer_norm_1")
        self._dense_2 = dense(self, hidden_dim, hidden_dim, "dense_2", self.activation)
        self._layer_norm_2 = layer_norm(self, hidden_dim, "layer_norm_2")
        self.build_projection(hidden_dim)
        self.built = True

    def call(self, sequence_output, span_left, span_right, span_offsets):
        left = take_positions(sequence_output, span_left)
        right = take_positions(sequence_output, span_right)
        position = self._position_embedding(ops.minimum(span_offsets, self.max_span_tokens - 1))
        if self.fusion == "concat":
            x = ops.concatenate([left, right, position], axis=-1)
        else:
            x = left + right + self._position_dense(position)
        x = self.hidden(x, self._dense_1, self._layer_norm_1)
        return self.project(self.hidden(x, self._dense_2, self._layer_norm_2))

    def compute_output_shape(self, sequence_output_shape, span_left_shape, *_):
        return (*span_left_shape, self.vocabulary_size)

    def get_config(self):
        names = ["max_span_tokens", "position_dim", "fusion"]
        return {**super().get_config(), **config_of(self, names)}


def take_positions(x, positions):
    """Returns the vectors `[B, M, H]` of `x` `[B, L, H]` at int positions `[B, M]`."""
    if keras.backend.backend() == "torch":
        return x.gather(1, positions.long()[:, :, None].expand(-1, -1, x.shape[-1]))
    return ops.take_along_axis(x, positions[:, :, None], axis=1)


def _is_plain(embedding):
    """Returns whether the projection is just a product with the embeddings."""
    others = [embedding.quantization_mode, embedding.reverse_dtype, embedding.logit_soft_cap]
    return embedding.tie_weights and all(other is None for other in others)


def _multiply(x, table):
    """Returns the products `[..., V]` of vectors `[..., H]` and a table `[V, H]`.

    16-bit vectors are multiplied in 16 bits, also for gradients. The products are then float32.
    """
    # GPUs and TPUs multiply float32 numbers several times slower.
    if keras.backend.standardize_dtype(x.dtype) not in ("bfloat16", "float16"):
        return ops.matmul(x, ops.transpose(table))
    table = ops.cast(table, x.dtype)
    if keras.backend.backend() == "jax":
        from keras_spanbert.layers.jax_gradients import multiply

        return multiply(x, table)
    # TensorFlow rounds the sums to 16 bits.
    return ops.cast(ops.matmul(x, ops.transpose(table)), "float32")
