"""Layers from segments to tokens and spans, and the selection of spans.

B = documents, S = segments, L = tokens of a segment, T = tokens of a document, W = widest span in
tokens, N = candidate spans, K = spans that are kept, H = the encoder's width, F = width of a
feature.
"""

import keras
import numpy as np
from keras import ops

from keras_spanbert.layers.dropout import Dropout
from keras_spanbert.layers.sublayers import config_of, kernel_initializer
from keras_spanbert.models.backbone import dense_layer

# Maximum number of spans per document in the released graph.
MAX_TOP_SPANS = 3900


def num_top_spans(num_tokens, top_span_ratio: float, xp=np):
    """Returns the number of spans of a document that are kept."""
    # Uses float32 like the released graph, because rounding matters near integers.
    product = xp.asarray(num_tokens, dtype=np.float32) * np.float32(top_span_ratio)
    return xp.minimum(xp.asarray(xp.floor(product), dtype=np.int32), np.int32(MAX_TOP_SPANS))


def gather_rows(x, indices):
    """Gathers rows of each document's matrix: `[B, M, ...]` by int `[B, ...]`.

    `ops.take_along_axis` would broadcast the indices to the width of the rows.
    """
    num_documents, num_rows = ops.shape(x)[:2]
    offsets = ops.arange(num_documents, dtype="int32") * num_rows
    offsets = ops.reshape(offsets, (-1, *[1] * (len(indices.shape) - 1)))
    flat = ops.reshape(x, (-1, *ops.shape(x)[2:]))
    return ops.take(flat, ops.cast(indices, "int32") + offsets, axis=0)


def map_in_chunks(function, arrays: list, chunk_size: int, training):
    """Applies a function to chunks of rows, so that it needs only the memory of a chunk.

    The function maps a list of arrays `[B, n, ...]` with up to `chunk_size` rows to such an array,
    or a tuple of them.
    """
    num_documents, num_rows = ops.shape(arrays[0])[:2]
    # Gradients need the intermediate results.
    if training or (isinstance(num_rows, int) and num_rows <= chunk_size):
        return function(arrays)
    missing = (chunk_size - num_rows % chunk_size) % chunk_size

    def to_chunks(x):
        shape = ops.shape(x)[2:]
        x = ops.concatenate([x, ops.zeros((num_documents, missing, *shape), x.dtype)], axis=1)
        x = ops.reshape(x, (num_documents, -1, chunk_size, *shape))
        return ops.moveaxis(x, 1, 0)

    def from_chunks(x):
        x = ops.moveaxis(x, 0, 1)
        return ops.reshape(x, (num_documents, -1, *ops.shape(x)[3:]))[:, :num_rows]

    found = ops.map(function, [to_chunks(x) for x in arrays])
    return keras.tree.map_structure(from_chunks, found)


def select_spans(scores, starts, ends, top_span_mask, num_tokens, max_span_width: int):
    """Selects the best spans so that no two of them cross.

    Spans are visited by descending score, and equal scores in the order of the candidates. A span
    is kept unless it crosses one that is already kept. Two spans cross if they overlap and neither
    contains the other. `scores` float and `starts`, `ends` int are `[B, N]`, ends included, sorted
    by start and end. A span that ends before its start is padding. `top_span_mask` int `[B, K]` is
    1 for each span to keep.

    Returns int32 `[B, K]`, indices of candidates in ascending order. If fewer spans are kept than
    requested, or the mask is 0, the remaining places at the end have the index of the first span
    that is kept, or 0 if there is no such span.
    """
    num_documents, num_candidates = ops.shape(scores)
    num_top = ops.shape(top_span_mask)[1]
    is_candidate = ends >= starts
    scores = ops.where(is_candidate, ops.stop_gradient(scores), -np.inf)
    # Ranks are distinct, and exact in float32 for up to 16 million candidates.
    order = ops.argsort(-scores, axis=1)
    rank = ops.argsort(order, axis=1)
    priority = ops.cast(num_candidates - rank, "float32")
    priority = ops.where(is_candidate, priority, 0.0)

    # === To the grid ===
    cells = (ends - starts) * num_tokens + starts
    cells_of_document = max_span_width * num_tokens
    cells += ops.arange(num_documents, dtype="int32")[:, None] * cells_of_document
    num_cells = num_documents * cells_of_document
    cells = ops.where(is_candidate, cells, num_cells)  # One more cell for padding.
    # On PyTorch `ops.scatter` is a Python loop over the candidates.
    grid = ops.scatter_update(
        ops.zeros((num_cells + 1,)), ops.reshape(cells, (-1, 1)), ops.reshape(priority, (-1,))
    )
    grid = ops.reshape(grid[:-1], (num_documents, max_span_width, num_tokens))

    # === Rounds ===
    # A loop over N candidates would be slow in a TensorFlow graph and in PyTorch. Each round keeps
    # the spans with a higher score than all undecided spans that cross them, and drops those that
    # cross a kept one. Few rounds are needed, 2 to 9 in documents of a thousand tokens (Blelloch,
    # Fineman and Shun 2012, "Greedy sequential maximal independent set ..."). The spans that cross
    # a span form two rectangles in the grid, and their maxima are cumulative maxima.
    wanted = ops.sum(ops.cast(top_span_mask, "float32"), axis=1)

    def has_undecided(undecided, kept):
        # Spans with a lower score than the last requested one need not be settled.
        best = ops.max(undecided, axis=(1, 2), keepdims=True)
        num_settled = ops.sum(ops.cast(kept > best, "float32"), axis=(1, 2))
        return ops.any((best[:, 0, 0] > 0.0) & (num_settled < wanted))

    def decide_round(undecided, kept):
        wins = undecided > _best_crossing(undecided, num_tokens)
        won = ops.where(wins, undecided, 0.0)
        is_out = wins | (_best_crossing(won, num_tokens) > 0.0)
        return ops.where(is_out, 0.0, undecided), ops.maximum(kept, won)

    _, kept = ops.while_loop(has_undecided, decide_round, (grid, ops.zeros_like(grid)))

    # === Back to the candidates ===
    kept = ops.reshape(kept, (-1,))
    kept = ops.take(ops.concatenate([kept, kept[:1] * 0.0]), cells, axis=0)
    # Short documents can have fewer candidates than slots.
    kept = ops.concatenate([kept, ops.zeros_like(top_span_mask, dtype="float32")], axis=1)
    values, top = ops.top_k(kept, num_top)
    is_top = (values > 0.0) & (top_span_mask > 0)
    top = ops.sort(ops.where(is_top, ops.cast(top, "int32"), num_candidates), axis=1)
    return ops.where(top < num_candidates, top, top[:, :1] % num_candidates)


def _best_crossing(grid, num_tokens):
    """Returns the highest priority of spans that cross each span, `[B, W, T]` by width, start."""
    # Spans that start inside and end after: the maximum over longer ones, then over later starts.
    right = _unskew(_max_of_smaller_widths(_skew(_max_of_larger_widths(grid))), num_tokens)
    # Spans that start before and end inside: the maximum over longer ones, then earlier ends.
    left = _max_of_smaller_widths(_unskew(_max_of_larger_widths(_skew(grid)), num_tokens))
    return ops.maximum(left, right)


def _max_of_smaller_widths(grid):
    """Returns the maximum over smaller widths, 0 for the smallest."""
    width = grid.shape[1]
    shift = 1
    grid = ops.concatenate([ops.zeros_like(grid[:, :1]), grid[:, :-1]], axis=1)
    while shift < width:
        shifted = ops.concatenate([ops.zeros_like(grid[:, :shift]), grid[:, :-shift]], axis=1)
        grid = ops.maximum(grid, shifted)
        shift *= 2
    return grid


def _max_of_larger_widths(grid):
    """Returns the maximum over larger widths, 0 for the largest."""
    return ops.flip(_max_of_smaller_widths(ops.flip(grid, axis=1)), axis=1)


def _skew(grid):
    """Shifts row w right by w: columns by start to columns by end, `[B, W, T + W - 1]`."""
    num_documents, width, num_tokens = ops.shape(grid)
    padding = ops.zeros((num_documents, width, width), grid.dtype)
    rows = ops.concatenate([grid, padding], axis=2)
    flat = ops.reshape(rows, (num_documents, width * (num_tokens + width)))[:, :-width]
    return ops.reshape(flat, (num_documents, width, num_tokens + width - 1))


def _unskew(grid, num_tokens):
    """Shifts rows back, from columns by end to columns by start."""
    num_documents, width = ops.shape(grid)[:2]
    flat = ops.reshape(grid, (num_documents, width * (num_tokens + width - 1)))
    flat = ops.concatenate([flat, ops.zeros((num_documents, width), grid.dtype)], axis=1)
    return ops.reshape(flat, (num_documents, width, num_tokens + width))[:, :, :num_tokens]


class SegmentRows(keras.layers.Layer):
    """Reshapes segments of documents `[B, S, L]` to rows of a batch `[B * S, L]`."""

    def call(self, inputs):
        return ops.reshape(inputs, (-1, ops.shape(inputs)[2]))


class DocumentTokens(keras.layers.Layer):
    """Gathers the tokens of documents, `[B, T, H]`, from the encoder's output `[B * S, L, H]`.

    `places`, int32 `[B, T]`, are the tokens' indices in a document's S * L tokens.
    """

    def call(self, encoded, places):
        shape = (ops.shape(places)[0], -1, encoded.shape[-1])
        return gather_rows(ops.reshape(encoded, shape), places)


class WeightedLayer(keras.layers.Layer):
    """A layer with dropout and one initializer, for the resolver's arguments `settings`."""

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

    def dense(self, name, units, **kwargs):
        """Returns a dense layer with this layer's settings, which Keras can quantize."""
        # Truncated, as in the released coreference code.
        initializer = kernel_initializer(self.initializer_range)
        return dense_layer(self, units, name, kernel_initializer=initializer, **kwargs)

    def cast(self, x):
        return ops.cast(x, self.compute_dtype)

    def get_config(self):
        own = {**config_of(self, WeightedLayer), **config_of(self, type(self))}
        return {**super().get_config(), **own}


def as_scores(x):
    """Casts scores to float32 or wider, because sums of scores determine the order of spans."""
    return ops.cast(x, keras.backend.result_type(x.dtype, "float32"))


class Gate(WeightedLayer):
    """Mixes two vectors `[..., dim]` with `g = sigmoid([x; y] W + b)`.

    An open gate passes x, `g * x + (1 - g) * y`, or with `toward=1` y.
    """

    has_dropout = False

    def __init__(self, dim: int, toward: int, **kwargs):
        super().__init__(**kwargs)
        self.dim = dim
        self.toward = toward
        self.gate = self.dense("gate", dim)

    def build(self, *_):
        self.gate.build((None, 2 * self.dim))

    def call(self, x, y):
        gate = ops.sigmoid(self.gate(ops.concatenate([x, y], axis=-1)))
        chosen, other = (y, x) if self.toward else (x, y)
        return gate * chosen + (1.0 - gate) * other


class SpanWidths(WeightedLayer):
    """Embeds each candidate's width, `[B, N, F]`, with dropout."""

    def build(self, *_):
        # A separate layer, because a candidate has the same dropout in its mention score and in its
        # embedding.
        shape = self.settings["max_span_width"], self.settings["feature_size"]
        self.table = self.add_matrix("embeddings", *shape)

    def call(self, starts, ends, training=None):
        rows = ops.take(self.table, ops.maximum(ends - starts, 0), axis=0)
        return self.dropout(self.cast(rows), training=training)


class SpanHeads(WeightedLayer):
    """Computes the attended head of every span: the softmax-weighted mean of its tokens.

    `tokens` are float `[B, T, H]`, and W must divide T. Returns float `[B, T * W, H]`, in which row
    `start * W + width - 1` is the head of a span.
    """

    has_dropout = False

    def __init__(self, hidden_dim: int, **kwargs):
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self.attention = self.dense("attention", 1)

    def build(self, *_):
        self.attention.build((None, self.hidden_dim))

    def call(self, tokens):
        W, H = self.settings["max_span_width"], self.hidden_dim
        # A span starts in one block of W tokens and ends in that block or the next, so the spans of
        # a block need only one small product with two blocks.
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
