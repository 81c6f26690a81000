"""The head of the span boundary objective."""

import keras
from keras import ops

from keras_spanbert.checks import check_counts, check_in
from keras_spanbert.layers.sublayers import config_of, dense, layer_norm
from keras_spanbert.layers.tied_head import TiedHead, take_positions

FUSIONS = ("concat", "sum")


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBoundaryHead(TiedHead):
    """Predicts the tokens of a span from the two tokens just outside it.

    For each masked token: `h0 = [x_left; x_right; p_offset]`,
    `h1 = LayerNorm(GELU(W1 h0 + b1))`, `y = LayerNorm(GELU(W2 h1 + b2))`,
    `logits = y E^T + b`. E is the tied input embedding (or a kernel of this
    head), and b is this head's own bias. Only the M masked positions are
    computed.

    Args:
        vocabulary_size: int. Size V of the vocabulary. Defaults to `None`, the
            size of `token_embedding`.
        token_embedding: `keras.layers.ReversibleEmbedding` whose weights
            project to the vocabulary. If it is part of the functional model
            that computes `sequence_output`, the head stays tied when the model
            is cloned or saved as `.keras`. Defaults to `None`, a new kernel.
        max_span_tokens: int. Number of offset embeddings. Larger offsets share
            the last one, and their tokens should get weight 0. Defaults to
            `15`.
        position_dim: int. Size of the offset embedding p. Defaults to `200`.
        activation: activation of the two hidden layers. Defaults to `"gelu"`,
            the exact (erf) GELU.
        layer_norm_epsilon: float. Defaults to `1e-12`.
        fusion: "concat", or "sum" for `h0 = x_left + x_right + W p_offset`.
            Defaults to `"concat"`.
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
