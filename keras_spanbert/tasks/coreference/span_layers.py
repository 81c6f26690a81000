"""From segments to tokens, spans and their embeddings.

B = documents, S = segments, L = tokens of a segment, T = tokens of a document,
W = widest span in tokens, N = candidate spans, K = spans that are kept, H = the
encoder's width, F = width of a feature.
"""

import keras
import numpy as np
from keras import ops

from keras_spanbert.layers.dropout import Dropout
from keras_spanbert.layers.initializers import kernel_initializer
from keras_spanbert.tasks.coreference.spans import gather_rows


class SegmentRows(keras.layers.Layer):
    """Segments of documents `[B, S, L]` as rows of a batch `[B * S, L]`."""

    def call(self, inputs):
        return ops.reshape(inputs, (-1, ops.shape(inputs)[2]))

    def compute_output_spec(self, inputs):
        return keras.KerasTensor((None, inputs.shape[2]), dtype=inputs.dtype)


class DocumentTokens(keras.layers.Layer):
    """The tokens of documents in order, from the encoder's output of their segments.

    Call arguments:
        encoded: float `[B * S, L, H]`.
        places: int32 `[B, T]`, each token's place among a document's S * L.

    Returns:
        float `[B, T, H]`.
    """

    def call(self, encoded, places):
        shape = (ops.shape(places)[0], -1, encoded.shape[-1])
        return gather_rows(ops.reshape(encoded, shape), places)

    def compute_output_spec(self, encoded, places):
        return keras.KerasTensor((*places.shape, encoded.shape[-1]), dtype=encoded.dtype)


class WeightedLayer(keras.layers.Layer):
    """A layer whose matrices have one initializer, and with dropout.

    Args:
        dropout_rate: float. Defaults to `0.0`.
        initializer_range: float. See `SpanBertBackbone`. Defaults to `0.02`.
        **kwargs: see `keras.layers.Layer`.
    """

    def __init__(self, dropout_rate: float = 0.0, initializer_range: float = 0.02, **kwargs):
        super().__init__(**kwargs)
        self.dropout_rate = dropout_rate
        self.initializer_range = initializer_range
        self.dropout = Dropout(dropout_rate, dtype=self.dtype_policy)

    def add_matrix(self, name, *shape):
        initializer = kernel_initializer(self.initializer_range)
        return self.add_weight(shape=shape, initializer=initializer, name=name)

    def add_bias(self, name, size):
        return self.add_weight(shape=(size,), initializer="zeros", name=name)

    def cast(self, x):
        return ops.cast(x, self.compute_dtype)


class Gate(WeightedLayer):
    """Mixes two vectors by `g = sigmoid([x; y] W + b)`.

    Args:
        dim: int. Size D of either.
        toward: 0 or 1. Whether it is x or y that an open gate lets through: the
            result is `g * x + (1 - g) * y` or `g * y + (1 - g) * x`.
        **kwargs: of `WeightedLayer`.

    Call arguments:
        x, y: float `[..., D]`.
    """

    def __init__(self, dim: int, toward: int, **kwargs):
        super().__init__(**kwargs)
        self.dim = dim
        self.toward = toward

    def build(self, *_):
        self.gate_weights = self.add_matrix("output_weights", 2 * self.dim, self.dim)
        self.gate_bias = self.add_bias("output_bias", self.dim)
        self.built = True

    def call(self, x, y):
        pair = ops.concatenate([x, y], axis=-1)
        gate = ops.sigmoid(ops.matmul(pair, self.gate_weights) + self.gate_bias)
        chosen, other = (y, x) if self.toward else (x, y)
        return gate * chosen + (1.0 - gate) * other

    def compute_output_spec(self, x, y):
        return keras.KerasTensor(x.shape, dtype=self.compute_dtype)


class SpanWidths(WeightedLayer):
    """The embedding of each candidate's width, `[B, N, F]`, with dropout.

    It is a layer of its own since a candidate's dropout is the same in its
    mention score and, where it is kept, in its embedding.

    Args:
        max_span_width: int, W.
        feature_size: int, F.
        **kwargs: of `WeightedLayer`.
    """

    def __init__(self, max_span_width: int, feature_size: int, **kwargs):
        super().__init__(**kwargs)
        self.max_span_width = max_span_width
        self.feature_size = feature_size

    def build(self, *_):
        self.table = self.add_matrix("embeddings", self.max_span_width, self.feature_size)
        self.built = True

    def call(self, starts, ends, training=None):
        rows = ops.take(self.table, ops.maximum(ends - starts, 0), axis=0)
        return self.dropout(self.cast(rows), training=training)

    def compute_output_spec(self, starts, ends, training=None):
        return keras.KerasTensor((*starts.shape, self.feature_size), dtype=self.compute_dtype)


class SpanHeads(WeightedLayer):
    """The attended head of every span: the mean of its tokens, weighted by a softmax.

    A span begins in one block of W tokens and ends in that or the next one, so
    that all spans of a block are one small matrix product with two blocks of
    tokens: the memory is that of the result, and no weight is computed between
    a span and the rest of the document.

    Args:
        hidden_dim: int, H.
        max_span_width: int, W.
        **kwargs: of `WeightedLayer`.

    Call arguments:
        tokens: float `[B, T, H]`, where W divides T.

    Returns:
        float `[B, T * W, H]`; row `start * W + width - 1` is a span's.
    """

    def __init__(self, hidden_dim: int, max_span_width: int, **kwargs):
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self.max_span_width = max_span_width

    def build(self, *_):
        self.attention_weights = self.add_matrix("output_weights", self.hidden_dim, 1)
        self.attention_bias = self.add_bias("output_bias", 1)
        self.built = True

    def call(self, tokens):
        W, H = self.max_span_width, self.hidden_dim
        num_documents, num_tokens = ops.shape(tokens)[:2]
        scores = ops.matmul(tokens, self.attention_weights) + self.attention_bias  # [B, T, 1]
        scores = ops.cast(scores, keras.backend.result_type(scores.dtype, "float32"))
        scores = _two_blocks(ops.reshape(scores, (num_documents, -1, W)))  # [B, T / W, 2 W]
        place, width = np.arange(W)[:, None, None], np.arange(W)[:, None]
        inside = (np.arange(2 * W) >= place) & (np.arange(2 * W) <= place + width)
        inside = np.reshape(inside, (W * W, 2 * W))
        weights = ops.softmax(ops.where(inside, scores[:, :, None, :], -1e30), axis=-1)
        blocks = _two_blocks(ops.reshape(tokens, (num_documents, -1, W, H)))
        heads = ops.matmul(ops.cast(weights, blocks.dtype), blocks)  # [B, T / W, W * W, H]
        return ops.reshape(heads, (num_documents, num_tokens * W, H))

    def compute_output_spec(self, tokens):
        return keras.KerasTensor((tokens.shape[0], None, self.hidden_dim), dtype=tokens.dtype)


def _two_blocks(blocks):
    """Each block with the one after it: `[B, blocks, W, ...]` to `[B, blocks, 2 W, ...]`."""
    following = ops.concatenate([blocks[:, 1:], ops.zeros_like(blocks[:, :1])], axis=1)
    return ops.concatenate([blocks, following], axis=2)


class SpanEmbeddings(keras.layers.Layer):
    """The embeddings of the spans that are kept: start, end, and width and head where there are.

    Args:
        max_span_width: int, W.
        **kwargs: see `keras.layers.Layer`.

    Call arguments:
        top_spans: int32 `[B, K]`, indices of candidates.
        starts, ends: int32 `[B, N]`.
        tokens: float `[B, T, H]`.
        widths: float `[B, N, F]` of `SpanWidths`, or `None`.
        heads: float `[B, T * W, H]` of `SpanHeads`, or `None`.

    Returns:
        float `[B, K, D]`.
    """

    def __init__(self, max_span_width: int, **kwargs):
        super().__init__(**kwargs)
        self.max_span_width = max_span_width

    def call(self, top_spans, starts, ends, tokens, widths=None, heads=None):
        starts, ends = gather_rows(starts, top_spans), gather_rows(ends, top_spans)
        # Of a document's padding, whose end is before its start.
        ends = ops.maximum(ends, starts)
        parts = [gather_rows(tokens, starts), gather_rows(tokens, ends)]
        if widths is not None:
            parts.append(gather_rows(widths, top_spans))
        if heads is not None:
            parts.append(gather_rows(heads, starts * self.max_span_width + ends - starts))
        return ops.concatenate(parts, axis=-1)

    def compute_output_spec(self, top_spans, starts, ends, tokens, widths=None, heads=None):
        parts = [tokens, tokens, *(x for x in [widths, heads] if x is not None)]
        size = sum(part.shape[-1] for part in parts)
        return keras.KerasTensor((*top_spans.shape, size), dtype=tokens.dtype)


class SpanValues(keras.layers.Layer):
    """A value of each span that is kept: `[B, M]` by int `[B, K]`, in the dtype that it has."""

    def __init__(self, **kwargs):
        super().__init__(autocast=False, **kwargs)

    def call(self, values, indices):
        return gather_rows(values, indices)

    def compute_output_spec(self, values, indices):
        return keras.KerasTensor(indices.shape, dtype=values.dtype)
