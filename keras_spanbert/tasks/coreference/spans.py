"""Candidate spans, and the choice of those that become mentions.

B = documents, T = tokens of a document, W = widest span in tokens, N = candidate
spans, K = spans that are kept.
"""

import keras
import numpy as np
from keras import ops

# The released graph keeps no more spans than this of one document.
MOST_TOP_SPANS = 3900


def candidate_spans(sentence_map: np.ndarray, max_span_width: int) -> tuple:
    """The spans of up to `max_span_width` tokens that begin and end in one sentence.

    Args:
        sentence_map: int `[T]`. The number of each token's sentence.
        max_span_width: int.

    Returns:
        `(starts, ends)`, int32 `[N]` each, ends included, in the order of
        starts, then of ends.
    """
    num_tokens = len(sentence_map)
    starts = np.repeat(np.arange(num_tokens), max_span_width)
    ends = starts + np.tile(np.arange(max_span_width), num_tokens)
    last = np.minimum(ends, num_tokens - 1)
    is_candidate = (ends < num_tokens) & (sentence_map[starts] == sentence_map[last])
    return starts[is_candidate].astype(np.int32), ends[is_candidate].astype(np.int32)


def num_top_spans(num_tokens: int, top_span_ratio: float) -> int:
    """How many spans of a document are kept."""
    # The released graph multiplies in float32, which decides where the product is near an integer.
    product = np.float32(num_tokens) * np.float32(top_span_ratio)
    return min(MOST_TOP_SPANS, int(np.floor(product)))


def gather_rows(x, indices):
    """Rows of each document's matrix: `[B, M, ...]` by int `[B, ...]`.

    `ops.take_along_axis` would broadcast the indices to the width of the rows.
    """
    num_documents, num_rows = ops.shape(x)[:2]
    offsets = ops.arange(num_documents, dtype="int32") * num_rows
    offsets = ops.reshape(offsets, (-1, *[1] * (len(indices.shape) - 1)))
    flat = ops.reshape(x, (-1, *ops.shape(x)[2:]))
    return ops.take(flat, ops.cast(indices, "int32") + offsets, axis=0)


def in_blocks(function, arrays: list, block_size: int, training):
    """A function of rows, for some of them at a time: the work takes the memory of a block.

    In training all rows go at once, since their gradients need what is between.

    Args:
        function: of a list of arrays `[B, n, ...]` to one such array, or a tuple.
        arrays: arrays `[B, N, ...]`.
        block_size: int, the most rows n.
        training: bool or `None`.

    Returns:
        What the function returns, for all rows `[B, N, ...]`.
    """
    num_documents, num_rows = ops.shape(arrays[0])[:2]
    if training or (isinstance(num_rows, int) and num_rows <= block_size):
        return function(arrays)
    missing = -num_rows % block_size

    def as_blocks(x):
        shape = ops.shape(x)[2:]
        x = ops.concatenate([x, ops.zeros((num_documents, missing, *shape), x.dtype)], axis=1)
        x = ops.reshape(x, (num_documents, -1, block_size, *shape))
        return ops.moveaxis(x, 1, 0)

    def as_rows(x):
        x = ops.moveaxis(x, 0, 1)
        return ops.reshape(x, (num_documents, -1, *ops.shape(x)[3:]))[:, :num_rows]

    found = ops.map(function, [as_blocks(x) for x in arrays])
    return keras.tree.map_structure(as_rows, found)


def select_spans(scores, starts, ends, top_span_mask, num_tokens, max_span_width: int):
    """Chooses the best spans of which none crosses another.

    Spans are visited by descending score, equal ones in the order of the
    candidates, and are kept unless they cross one that is kept: unless they
    overlap and neither holds the other.

    A loop over N candidates would be slow in a graph of TensorFlow and in
    PyTorch, and the host cannot run it in the middle of a compiled step. So
    candidates are settled in rounds: kept is whoever has a higher score than
    all undecided ones that cross it, and those that cross one that is kept now
    drop out. That is what the visits in order come to, and takes few rounds,
    since a span is seldom crossed by one that waits for another, and so on: 2 to
    9 in documents of a thousand tokens. What crosses a span are two rectangles
    in the grid of starts and widths; their maxima are cumulative maxima.

    Args:
        scores: float `[B, N]`.
        starts, ends: int `[B, N]`, ends included, sorted by start and end; an
            end before its start is padding.
        top_span_mask: int `[B, K]`, 1 for as many spans as are to be kept.
        num_tokens: int, T.
        max_span_width: int, W.

    Returns:
        int32 `[B, K]`, indices of candidates in ascending order. Where fewer
        spans are left than are to be kept, and where the mask is 0, it is the
        first one of the document.

    Reference:
        Blelloch, Fineman and Shun 2012, "Greedy sequential maximal independent
        set and matching are parallel on average".
    """
    num_documents, num_candidates = ops.shape(scores)
    num_top = ops.shape(top_span_mask)[1]
    is_candidate = ends >= starts
    scores = ops.where(is_candidate, ops.stop_gradient(scores), -np.inf)
    # Distinct, and exact in float32 up to 16 million candidates.
    order = ops.argsort(-scores, axis=1)
    rank = ops.argsort(order, axis=1)
    priority = ops.cast(num_candidates - rank, "float32")
    priority = ops.where(is_candidate, priority, 0.0)

    # === To the grid ===
    cells = (ends - starts) * num_tokens + starts
    cells_of_document = max_span_width * num_tokens
    cells += ops.arange(num_documents, dtype="int32")[:, None] * cells_of_document
    num_cells = num_documents * cells_of_document
    cells = ops.where(is_candidate, cells, num_cells)  # One more, for padding.
    grid = ops.scatter(ops.reshape(cells, (-1, 1)), ops.reshape(priority, (-1,)), (num_cells + 1,))
    grid = ops.reshape(grid[:-1], (num_documents, max_span_width, num_tokens))

    # === Rounds ===
    wanted = ops.sum(ops.cast(top_span_mask, "float32"), axis=1)

    def is_open(undecided, kept):
        # What comes after the last one wanted need not be settled.
        best = ops.max(undecided, axis=(1, 2), keepdims=True)
        num_settled = ops.sum(ops.cast(kept > best, "float32"), axis=(1, 2))
        return ops.any((best[:, 0, 0] > 0.0) & (num_settled < wanted))

    def settle(undecided, kept):
        wins = undecided > _best_crossing(undecided, num_tokens)
        won = ops.where(wins, undecided, 0.0)
        is_out = wins | (_best_crossing(won, num_tokens) > 0.0)
        return ops.where(is_out, 0.0, undecided), ops.maximum(kept, won)

    _, kept = ops.while_loop(is_open, settle, (grid, ops.zeros_like(grid)))

    # === Back to the candidates ===
    kept = ops.reshape(kept, (-1,))
    kept = ops.take(ops.concatenate([kept, kept[:1] * 0.0]), cells, axis=0)
    # More slots than candidates there may be in short documents.
    kept = ops.concatenate([kept, ops.zeros_like(top_span_mask, dtype="float32")], axis=1)
    values, top = ops.top_k(kept, num_top)
    is_top = (values > 0.0) & (top_span_mask > 0)
    top = ops.sort(ops.where(is_top, ops.cast(top, "int32"), num_candidates), axis=1)
    return ops.where(top < num_candidates, top, top[:, :1] % num_candidates)


def _best_crossing(grid, num_tokens):
    """The highest priority among the spans that cross each span, `[B, W, T]` by width and start."""
    # Those that begin inside and end beyond: of longer ones at each start, then of later starts.
    right = _unskew(_before(_skew(_after(grid))), num_tokens)
    # Those that begin before and end inside: of longer ones at each end, then of earlier ends.
    left = _before(_unskew(_after(_skew(grid)), num_tokens))
    return ops.maximum(left, right)


def _before(grid):
    """The maximum over smaller widths, 0 for the smallest."""
    width = grid.shape[1]
    shift = 1
    grid = ops.concatenate([ops.zeros_like(grid[:, :1]), grid[:, :-1]], axis=1)
    while shift < width:
        shifted = ops.concatenate(
            [ops.zeros_like(grid[:, :shift]), grid[:, :-shift]],
            axis=1,
        )
        grid = ops.maximum(grid, shifted)
        shift *= 2
    return grid


def _after(grid):
    """The maximum over larger widths, 0 for the largest."""
    return ops.flip(_before(ops.flip(grid, axis=1)), axis=1)


def _skew(grid):
    """From columns by start to columns by end, `[B, W, T + W - 1]`: row w moves right by w."""
    num_documents, width, num_tokens = ops.shape(grid)
    padding = ops.zeros((num_documents, width, width), grid.dtype)
    rows = ops.concatenate([grid, padding], axis=2)
    flat = ops.reshape(rows, (num_documents, width * (num_tokens + width)))[:, :-width]
    return ops.reshape(flat, (num_documents, width, num_tokens + width - 1))


def _unskew(grid, num_tokens):
    """Back from columns by end to columns by start."""
    num_documents, width = ops.shape(grid)[:2]
    flat = ops.reshape(grid, (num_documents, width * (num_tokens + width - 1)))
    flat = ops.concatenate([flat, ops.zeros((num_documents, width), grid.dtype)], axis=1)
    return ops.reshape(flat, (num_documents, width, num_tokens + width))[:, :, :num_tokens]


class SpanSelector(keras.layers.Layer):
    """`select_spans` as a layer.

    Args:
        max_span_width: int.
        **kwargs: see `keras.layers.Layer`.
    """

    def __init__(self, max_span_width: int, **kwargs):
        super().__init__(autocast=False, **kwargs)
        self.max_span_width = max_span_width

    def call(self, scores, starts, ends, top_span_mask, token_places):
        num_tokens = ops.shape(token_places)[1]
        return select_spans(scores, starts, ends, top_span_mask, num_tokens, self.max_span_width)

    def compute_output_spec(self, scores, starts, ends, top_span_mask, token_places):
        return keras.KerasTensor(top_span_mask.shape, dtype="int32")
