"""Span masking as arithmetic: token properties and uniform draws in, masks out.

The released SpanBERT draws spans one after another until the budget is spent.
Here all candidate spans of all sequences are drawn at once, and the sequential
rules (an anchor that is masked already is drawn again; a masked token costs no
budget; the end of the budget cuts a span) are then settled by comparing a
sequence's candidates with one another, with no loop over tokens.

The body keeps to the part of the NumPy API that `numpy` and
`tensorflow.experimental.numpy` share: it runs eagerly anywhere and as graph
code inside `tf.data`, and gives the same masks for the same draws.

Legend: B = batch, L = sequence length, N = maskable tokens in the whole batch,
K = candidate spans a sequence, T = masked tokens in the whole batch,
M = masked positions a sequence (static, padded).
"""

import collections
import math

import numpy as np

# The number of candidates needed has a standard deviation of at most about
# 0.8 sqrt(its mean): with these to spare, less than one sequence in 10,000 falls
# short of its budget. Two more candidates then fill it up.
_SPARE_ROOTS = 3.5
# Counts of words stay below, counts of blocks above.
_BLOCK = 1 << 32

SpanMasks = collections.namedtuple(
    "SpanMasks",
    [
        "token_ids",  # [B, L] after masking
        "mask_positions",  # [B, M]
        "mask_ids",  # [B, M]
        "mask_weights",  # [B, M] float32
        "span_left",  # [B, M]
        "span_right",  # [B, M]
        "span_offsets",  # [B, M]
        "span_weights",  # [B, M] float32
    ],
)


def span_length_distribution(geometric_p, max_span_words):
    """Probabilities of the span lengths 1, 2, ..., `max_span_words`, in words.

    The geometric distribution `p * (1 - p)^(n - 1)`, truncated and renormalised
    (Joshi et al. 2020, section 3.1).

    Args:
        geometric_p: float in (0, 1]. Parameter of the geometric distribution.
        max_span_words: int. Length of the longest span, in words.

    Returns:
        float64 array of shape `(max_span_words,)` that sums to 1.
    """
    probabilities = geometric_p * (1.0 - geometric_p) ** np.arange(max_span_words)
    return probabilities / probabilities.sum()


def span_lengths(xp, draws, length_probabilities):
    """Span lengths in words, int32, from uniform draws of rank 2."""
    more_words = np.cumsum(length_probabilities)[:-1] <= draws[:, :, None]
    return 1 + xp.sum(more_words, axis=2, dtype=np.int32)


def num_candidates(sequence_length, mask_rate, length_probabilities):
    """Number of candidate spans that fill the budget of a sequence."""
    mean_length = length_probabilities @ np.arange(1, len(length_probabilities) + 1)
    # Where a fraction f is masked, a draw masks about (1 - f) * (1 - f) *
    # mean_length new tokens: the sum over f from 0 to the rate is its odds.
    odds = mask_rate / max(1.0 - mask_rate, 1.0 / sequence_length)
    expected = sequence_length * odds / mean_length
    enough = math.ceil(expected + _SPARE_ROOTS * math.sqrt(expected))
    return min(enough, sequence_length)


def draws_per_sequence(num_candidates, max_predictions):
    """Number of uniform draws that `span_masks` takes for each sequence."""
    return 2 * num_candidates + 1 + 2 * max_predictions


def span_masks(
    xp,
    token_ids,
    maskable,
    continuation,
    draws,
    *,
    mask_rate,
    max_predictions,
    length_probabilities,
    max_span_tokens,
    mask_token_id,
    mask_token_rate,
    random_token_rate,
    replacement,
):
    """Masks spans of a batch of sequences.

    Args:
        xp: `numpy` or `tensorflow.experimental.numpy`.
        token_ids: int32 `[B, L]`.
        maskable: bool `[B, L]`. False for special tokens and padding.
        continuation: bool `[B, L]`. True where a token continues a word.
        draws: float64 `[B, draws_per_sequence(K, M)]`, uniform in [0, 1).
        mask_rate: float. Share of a sequence's maskable tokens to mask.
        max_predictions: int, M.
        length_probabilities: float `[max words]`. See
            `span_length_distribution`.
        max_span_tokens: int. Offsets from this one on get no SBO target.
        mask_token_id: int.
        mask_token_rate: float. Share replaced by `mask_token_id`.
        random_token_rate: float. Share replaced by random tokens.
        replacement: "span" or "token", what shares one choice of the above.

    Returns:
        `SpanMasks`, of int32 unless said otherwise there.
    """
    M = max_predictions
    K = (draws.shape[1] - 1 - 2 * M) // 2
    length = token_ids.shape[1]
    flat_ids = xp.reshape(token_ids, (-1,))  # [B*L]

    # Maskable tokens are numbered 0..N-1 through the batch. `position` leads
    # from these numbers to places in `flat_ids`.
    position = _true_indices(xp, xp.reshape(maskable, (-1,)))  # [N]
    count = xp.sum(maskable, axis=1, keepdims=True, dtype=np.int32)  # [B, 1]
    last = _cumsum(xp, count, axis=0)  # [B, 1], one past a sequence's tokens
    first = last - count  # [B, 1]
    budget = xp.minimum(
        _int32(xp, xp.ceil(mask_rate * xp.asarray(count, dtype=np.float64))), M
    )  # [B, 1]

    # A block is a stretch of maskable tokens; no word or span leaves its block.
    nothing = xp.zeros_like(maskable[:, :1])
    block_start = maskable & ~xp.concatenate([nothing, maskable[:, :-1]], axis=1)
    word_start = block_start | (maskable & ~continuation)
    anchors, starts, stops = _candidates(
        xp,
        xp.take(xp.reshape(word_start, (-1,)), position),
        xp.take(xp.reshape(block_start, (-1,)), position),
        first,
        last,
        draws[:, : K + 1],
        span_lengths(xp, draws[:, K + 1 : 2 * K + 1], length_probabilities),
    )
    accepted = _accept(xp, anchors, starts, stops)
    m = np.arange(M, dtype=np.int32)[None, :]
    real = m < budget  # [B, M]
    number = xp.sort(xp.where(real, _spend(xp, starts, stops, accepted, M), last), axis=1)

    # Slots without a token stand apart from one another and from the text.
    apart = _size(xp, token_ids) + 2 * m
    position = xp.concatenate([position, np.zeros(1, np.int32)], axis=0)
    place = xp.where(real, xp.take(position, number), apart)  # [B, M], out of 0..B*L-1
    start, stop, head = _runs(xp, place)
    offset = place - start
    has_target = (
        real
        & (offset < max_span_tokens)
        & (start > xp.take(position, first))
        & (stop <= xp.take(position, xp.maximum(last - 1, 0)))
    )

    choice = draws[:, 2 * K + 1 : 2 * K + 1 + M]
    if replacement == "span":
        choice = xp.take(choice, head)
    random_number = _draw_below(xp, draws[:, 2 * K + 1 + M :], _size(xp, position) - 1)
    source = xp.where(real, place, 0)
    ids = xp.take(flat_ids, source)
    new_ids = xp.where(
        choice < mask_token_rate,
        xp.full_like(ids, mask_token_id),
        xp.where(
            choice < mask_token_rate + random_token_rate,
            xp.take(flat_ids, xp.take(position, random_number)),
            ids,
        ),
    )
    change = xp.where(real, new_ids - ids, 0)
    flat_ids = _scatter_add(xp, flat_ids, xp.reshape(source, (-1,)), xp.reshape(change, (-1,)))

    row_start = length * (_cumsum(xp, xp.ones_like(count), axis=0) - 1)  # [B, 1]

    def in_row(x):
        # A span at a sequence's very edge has no neighbour and no target.
        return xp.where(real, xp.minimum(xp.maximum(x - row_start, 0), length - 1), 0)

    return SpanMasks(
        token_ids=xp.reshape(flat_ids, (-1, length)),
        mask_positions=in_row(place),
        mask_ids=xp.where(real, ids, 0),
        mask_weights=xp.asarray(real, dtype=np.float32),
        span_left=in_row(start - 1),
        span_right=in_row(stop),
        span_offsets=xp.where(real, offset, 0),
        span_weights=xp.asarray(has_target, dtype=np.float32),
    )


def _candidates(xp, word_start, block_start, first, last, anchor_draws, lengths):
    """Anchors `[B, K]` and spans `[B, K + 2]` as starts and stops in 0..N.

    The last two are not drawn: from a random word to the sequence's end, and
    the whole sequence. They take up what the others leave of the budget.
    """
    end = xp.reshape(_size(xp, word_start), (1,))
    word_starts = xp.concatenate([_true_indices(xp, word_start), end], axis=0)
    block_starts = xp.concatenate([_true_indices(xp, block_start), end], axis=0)

    # Words and blocks are counted at once: cumulative sums are dear.
    counted = xp.cumsum(
        xp.asarray(word_start, dtype=np.int64) + xp.asarray(block_start, dtype=np.int64) * _BLOCK
    )
    # A sequence without maskable tokens draws from a neighbour; its budget of 0
    # leaves that without effect. The appended count is there for an empty batch.
    counted = xp.concatenate([counted, np.full(1, 1 + _BLOCK)], axis=0)
    anchors = first + _draw_below(xp, anchor_draws, last - first)  # [B, K + 1]
    counted = xp.take(counted, anchors)
    words = _int32(xp, counted % _BLOCK) - 1
    starts = xp.take(word_starts, words)
    stop_words = xp.minimum(words[:, :-1] + lengths, _size(xp, word_starts) - 1)
    next_blocks = xp.minimum(_int32(xp, counted[:, :-1] // _BLOCK), _size(xp, block_starts) - 1)
    stops = xp.minimum(xp.take(word_starts, stop_words), xp.take(block_starts, next_blocks))
    return (
        anchors[:, :-1],
        xp.concatenate([starts, first], axis=1),
        xp.concatenate([stops, last, last], axis=1),
    )


def _accept(xp, anchors, starts, stops):
    """Which candidates count `[B, K + 2]`: those whose anchor is not masked."""
    K = anchors.shape[1]
    starts, stops = (xp.transpose(x)[:K, :, None] for x in (starts, stops))
    # [K (covers), B, K (is covered)]: slices along the first axis cost nothing.
    covers = (starts <= anchors[None]) & (anchors[None] < stops)
    covered = covers[0]
    accepted = [xp.ones_like(covered[:, :1])]
    for k in range(1, K):
        accept = ~covered[:, k : k + 1]
        covered = covered | (accept & covers[k])
        accepted.append(accept)
    always = accepted[0]
    return xp.concatenate([*accepted, always, always], axis=1)


def _spend(xp, starts, stops, accepted, max_predictions):
    """The tokens that accepted candidates mask in turn: `[B, M]` out of 0..N-1."""
    # All ends of a sequence's candidates cut it into pieces. Each piece belongs
    # to the first candidate that covers it, and is masked with it.
    bounds = xp.sort(xp.concatenate([starts, stops], axis=1), axis=1)  # [B, pieces]
    stops = xp.where(accepted, stops, 0)  # The others cover nothing.
    covers = (starts[:, None, :] <= bounds[:, :-1, None]) & (
        bounds[:, :-1, None] < stops[:, None, :]
    )  # [B, pieces, K + 2]
    owner = _int32(xp, xp.argmax(covers, axis=2))
    pieces = owner.shape[1]
    order = xp.argsort(owner * pieces + np.arange(pieces, dtype=np.int32), axis=1)
    widths = xp.take_along_axis(bounds[:, 1:] - bounds[:, :-1], order, axis=1)
    bounds = xp.take_along_axis(bounds, order, axis=1)
    slots = _cumsum(xp, widths, axis=1) - widths  # A piece's first in the row's order.

    # Token m is m plus what its piece's start is ahead of its first slot. What
    # that changes from piece to piece is added up along the slots; the last
    # column takes what lies beyond the budget.
    ahead = bounds - slots
    changes = xp.concatenate([ahead[:, :1], ahead[:, 1:] - ahead[:, :-1]], axis=1)
    columns = max_predictions + 1
    row = _cumsum(xp, xp.ones_like(slots[:, :1]), axis=0) - 1
    slots = row * columns + xp.minimum(slots, max_predictions)
    zeros = xp.zeros_like(xp.take(row, np.zeros(columns, np.int32), axis=1))
    changes = _scatter_add(
        xp, xp.reshape(zeros, (-1,)), xp.reshape(slots, (-1,)), xp.reshape(changes, (-1,))
    )
    changes = xp.reshape(changes, (-1, columns))[:, :-1]
    return _cumsum(xp, changes, axis=1) + np.arange(max_predictions, dtype=np.int32)


def _runs(xp, place):
    """Start, stop and first slot of each token's run of neighbours: `[B, M]` each."""
    before = xp.concatenate([xp.full_like(place[:, :1], -2), place[:, :-1]], axis=1)
    starts_run = xp.reshape(place != before + 1, (-1,))
    run = xp.reshape(_cumsum(xp, starts_run) - 1, (-1, place.shape[1]))
    heads = _true_indices(xp, starts_run)
    tails = xp.concatenate([heads[1:], xp.reshape(_size(xp, place), (1,))], axis=0) - 1
    head, tail = xp.take(heads, run), xp.take(tails, run)
    return xp.take(place, head), xp.take(place, tail) + 1, head


def _draw_below(xp, draws, stop):
    """Uniform integers in [0, stop) from uniform draws in [0, 1)."""
    return _int32(xp, draws * xp.asarray(stop, dtype=np.float64))


def _int32(xp, x):
    return xp.asarray(x, dtype=np.int32)


def _size(xp, x):
    return _int32(xp, xp.size(x))


def _cumsum(xp, x, axis=None):
    # NumPy would widen to 64 bits.
    return xp.cumsum(_int32(xp, x), axis=axis, dtype=np.int32)


def _true_indices(xp, x):
    return _int32(xp, xp.nonzero(x)[0])


def _scatter_add(xp, array, indices, values):
    # The one operation that the two namespaces do not share.
    if xp is np:
        array = array.copy()
        np.add.at(array, indices, values)
        return array
    import tensorflow as tf

    return tf.tensor_scatter_nd_add(array, indices[:, None], values)
