"""Layers from segments to tokens, spans and their embeddings.

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
    """Reshapes segments of documents `[B, S, L]` to rows of a batch `[B * S, L]`."""

    def call(self, inputs):
        return ops.reshape(inputs, (-1, ops.shape(inputs)[2]))

    def compute_output_spec(self, inputs):
        return keras.KerasTensor((None, inputs.shape[2]), dtype=inputs.dtype)


class DocumentTokens(keras.layers.Layer):
    """Gathers the tokens of documents in order from the encoder's output of their segments.

    Call arguments:
        encoded: float `[B * S, L, H]`.
        places: int32 `[B, T]`, each token's index in a document's S * L tokens.

    Returns:
        float `[B, T, H]`.
    """

    def call(self, encoded, places):
        shape = (ops.shape(places)[0], -1, encoded.shape[-1])
        return gather_rows(ops.reshape(encoded, shape), places)

    def compute_output_spec(self, encoded, places):
        return keras.KerasTensor((*places.shape, encoded.shape[-1]), dtype=encoded.dtype)


class WeightedLayer(keras.layers.Layer):
    """A layer with dropout and one initializer for its matrices.

    Args:
        settings: dict of the resolver's arguments.
        initializer_range: float. See `SpanBertBackbone`. Defaults to `0.02`.
        **kwargs: see `keras.layers.Layer`.
    """

    has_dropout = True

    def __init__(self, settings: dict, initializer_range: float = 0.02, **kwargs):
        super().__init__(**kwargs)
        self.settings = settings
        self.initializer_range = initializer_range
        rate = settings["dropout_rate"] if self.has_dropout else 0.0
        self.dropout = Dropout(rate, dtype=self.dtype_policy)

    def arguments(self) -> dict:
        """Returns the arguments of layers within this one."""
        own = {"settings": self.settings, "initializer_range": self.initializer_range}
        return {**own, "dtype": self.dtype_policy}

    def add_matrix(self, name, *shape):
        initializer = kernel_initializer(self.initializer_range)
        return self.add_weight(shape=shape, initializer=initializer, name=name)

    def dense(self, name, units, use_bias=True):
        """Returns a dense layer with this layer's settings, which Keras can quantize."""
        return keras.layers.Dense(
            units,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer(self.initializer_range),
            dtype=self.dtype_policy,
            name=name,
        )

    def cast(self, x):
        return ops.cast(x, self.compute_dtype)


def as_scores(x):
    """Casts scores to float32 or wider, because sums of scores determine the order of spans."""
    return ops.cast(x, keras.backend.result_type(x.dtype, "float32"))


class Gate(WeightedLayer):
    """Mixes two vectors with `g = sigmoid([x; y] W + b)`.

    Args:
        dim: int. Size D of each vector.
        toward: 0 or 1. Whether an open gate passes x or y: the result is
            `g * x + (1 - g) * y` or `g * y + (1 - g) * x`.
        **kwargs: see `WeightedLayer`.

    Call arguments:
        x, y: float `[..., D]`.
    """

    has_dropout = False

    def __init__(self, dim: int, toward: int, **kwargs):
        super().__init__(**kwargs)
        self.dim = dim
        self.toward = toward
        self.gate = self.dense("gate", dim)

    def build(self, *_):
        self.gate.build((None, 2 * self.dim))
        self.built = True

    def call(self, x, y):
        gate = ops.sigmoid(self.gate(ops.concatenate([x, y], axis=-1)))
        chosen, other = (y, x) if self.toward else (x, y)
        return gate * chosen + (1.0 - gate) * other

    def compute_output_spec(self, x, y):
        return keras.KerasTensor(x.shape, dtype=self.compute_dtype)


class SpanWidths(WeightedLayer):
    """Embeds each candidate's width, `[B, N, F]`, with dropout.

    It is a separate layer because a candidate has the same dropout in its
    mention score and in its embedding.
    """

    def build(self, *_):
        shape = self.settings["max_span_width"], self.settings["feature_size"]
        self.table = self.add_matrix("embeddings", *shape)
        self.built = True

    def call(self, starts, ends, training=None):
        rows = ops.take(self.table, ops.maximum(ends - starts, 0), axis=0)
        return self.dropout(self.cast(rows), training=training)

    def compute_output_spec(self, starts, ends, training=None):
        shape = (*starts.shape, self.settings["feature_size"])
        return keras.KerasTensor(shape, dtype=self.compute_dtype)


class SpanHeads(WeightedLayer):
    """Computes the attended head of every span: the softmax-weighted mean of its tokens.

    A span starts in one block of W tokens and ends in that block or the next. All
    spans of a block therefore need only one small matrix product with two blocks
    of tokens. Memory is that of the result, and no weights are computed between a
    span and the rest of the document.

    Args:
        hidden_dim: int, H.
        **kwargs: see `WeightedLayer`.

    Call arguments:
        tokens: float `[B, T, H]`. W must divide T.

    Returns:
        float `[B, T * W, H]`. Row `start * W + width - 1` is the head of a span.
    """

    has_dropout = False

    def __init__(self, hidden_dim: int, **kwargs):
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self.attention = self.dense("attention", 1)

    def build(self, *_):
        self.attention.build((None, self.hidden_dim))
        self.built = True

    def call(self, tokens):
        W, H = self.settings["max_span_width"], self.hidden_dim
        num_documents, num_tokens = ops.shape(tokens)[:2]
        scores = as_scores(self.attention(tokens))  # [B, T, 1]
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
    """Joins each block with the next: `[B, blocks, W, ...]` to `[B, blocks, 2 W, ...]`."""
    following = ops.concatenate([blocks[:, 1:], ops.zeros_like(blocks[:, :1])], axis=1)
    return ops.concatenate([blocks, following], axis=2)
