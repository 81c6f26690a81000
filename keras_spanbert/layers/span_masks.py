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

# Candidates in units of the standard deviation of the number needed: falls
# short about once in a million sequences. Two more candidates then fill up.
_SPARE_DEVIATIONS = 5.0

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
    enough = math.ceil(expected + _SPARE_DEVIATIONS * math.sqrt(expected))
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

    anchors, starts, stops = _candidates(
        xp,
        position,
        xp.take(xp.reshape(continuation, (-1,)), position),
        length,
        first,
        last,
        draws[:, : K + 1],
        draws[:, K + 1 : 2 * K + 1],
        length_probabilities,
    )
    accepted = _accept(xp, anchors, starts, stops)
    masked = _spend(xp, starts, stops, accepted, budget, _size(xp, position))  # [N]

    # From here on per masked token; `run` is the span that holds the token.
    number = _true_indices(xp, masked)  # [T], out of 0..N-1
    place = xp.take(position, number)  # [T], out of 0..B*L-1
    row = place // length
    start, stop, run_slot = _runs(xp, place, length)  # [T] each
    row_first, row_last = xp.take(first, row), xp.take(last, row) - 1
    offset = place - start
    has_target = (
        (offset < max_span_tokens)
        & (start > xp.take(position, row_first))
        & (stop <= xp.take(position, row_last))
    )

    # One slot a masked token in [B, M]; `slot` leads there from [T].
    filled = _cumsum(xp, budget, axis=0) - budget  # [B, 1]
    to_slot = row * M - xp.take(filled, row)
    slot = to_slot + _cumsum(xp, xp.ones_like(place)) - 1
    choice = xp.take(
        draws[:, 2 * K + 1 : 2 * K + 1 + M],
        to_slot + run_slot if replacement == "span" else slot,
    )
    random_number = _draw_below(xp, xp.take(draws[:, 2 * K + 1 + M :], slot), _size(xp, position))
    ids = xp.take(flat_ids, place)
    new_ids = xp.where(
        choice < mask_token_rate,
        xp.full_like(ids, mask_token_id),
        xp.where(
            choice < mask_token_rate + random_token_rate,
            xp.take(flat_ids, xp.take(position, random_number)),
            ids,
        ),
    )

    m = np.arange(M, dtype=np.int32)[None, :]
    real = m < budget  # [B, M]
    source = xp.where(real, filled + m, _size(xp, place))

    def spread(x):
        padded = xp.concatenate([x, np.zeros(1, np.int32)], axis=0)
        return xp.take(padded, source)

    return SpanMasks(
        token_ids=xp.reshape(
            flat_ids + _scatter_add(xp, place, new_ids - ids, _size(xp, token_ids)),
            (-1, length),
        ),
        mask_positions=spread(place % length),
        mask_ids=spread(ids),
        mask_weights=xp.asarray(real, dtype=np.float32),
        # A span at a sequence's very edge has no neighbour and no target.
        span_left=spread(xp.maximum(start - 1 - row * length, 0)),
        span_right=spread(xp.minimum(stop - row * length, length - 1)),
        span_offsets=spread(offset),
        span_weights=xp.asarray(spread(_int32(xp, has_target)), dtype=np.float32),
    )


def _candidates(
    xp,
    position,
    continuation,
    length,
    first,
    last,
    anchor_draws,
    length_draws,
    length_probabilities,
):
    """Anchors `[B, K]` and spans `[B, K + 2]` as starts and stops in 0..N.

    The last two are not drawn: from a random word to the sequence's end, and
    the whole sequence. They take up what the others leave of the budget.
    """
    previous = xp.concatenate([np.full(1, -2, np.int32), position[:-1]], axis=0)
    # A block is a stretch of maskable tokens; no word or span leaves its block.
    block_start = (position != previous + 1) | (position % length == 0)
    word_start = block_start | ~continuation
    end = xp.reshape(_size(xp, position), (1,))
    word_starts = xp.concatenate([_true_indices(xp, word_start), end], axis=0)
    block_starts = xp.concatenate([_true_indices(xp, block_start), end], axis=0)

    # A sequence without maskable tokens draws from a neighbour; its budget of 0
    # leaves that without effect. The appended 0 is there for an empty batch.
    word_of = _cumsum(xp, word_start) - 1
    word_of = xp.concatenate([word_of, np.zeros(1, np.int32)], axis=0)
    block_of = _cumsum(xp, block_start) - 1
    block_of = xp.concatenate([block_of, np.zeros(1, np.int32)], axis=0)
    anchors = first + _draw_below(xp, anchor_draws, last - first)  # [B, K + 1]
    words = xp.take(word_of, anchors)
    starts = xp.take(word_starts, words)
    anchors, words = anchors[:, :-1], words[:, :-1]

    lengths = span_lengths(xp, length_draws, length_probabilities)
    stop_words = xp.minimum(words + lengths, _size(xp, word_starts) - 1)
    next_blocks = xp.minimum(xp.take(block_of, anchors) + 1, _size(xp, block_starts) - 1)
    stops = xp.minimum(xp.take(word_starts, stop_words), xp.take(block_starts, next_blocks))
    return (
        anchors,
        xp.concatenate([starts, first], axis=1),
        xp.concatenate([stops, last, last], axis=1),
    )


def _accept(xp, anchors, starts, stops):
    """Which candidates count `[B, K + 2]`: those whose anchor is not masked."""
    K = anchors.shape[1]
    # [B, K (covers), K (is covered)]
    covers = (starts[:, :K, None] <= anchors[:, None, :]) & (
        anchors[:, None, :] < stops[:, :K, None]
    )
    covered = covers[:, 0, :]
    accepted = [xp.ones_like(covered[:, :1])]
    for k in range(1, K):
        accept = ~covered[:, k : k + 1]
        covered = covered | (accept & covers[:, k, :])
        accepted.append(accept)
    always = xp.ones_like(covered[:, :1])
    return xp.concatenate([*accepted, always, always], axis=1)


def _spend(xp, starts, stops, accepted, budget, size):
    """Masks accepted candidates in turn until the budget is spent: bool `[N]`."""
    # All ends of a sequence's candidates cut it into pieces. Each piece belongs
    # to the first candidate that covers it.
    bounds = xp.sort(xp.concatenate([starts, stops], axis=1), axis=1)
    widths = xp.concatenate([bounds[:, 1:] - bounds[:, :-1], xp.zeros_like(bounds[:, :1])], axis=1)
    covers = (
        accepted[:, None, :]
        & (starts[:, None, :] <= bounds[:, :, None])
        & (bounds[:, :, None] < stops[:, None, :])
    )  # [B, pieces, K + 2]
    owner = _int32(xp, xp.argmax(covers, axis=2))
    pieces = bounds.shape[1]
    order = xp.argsort(owner * pieces + np.arange(pieces, dtype=np.int32), axis=1)
    bounds = xp.take_along_axis(bounds, order, axis=1)
    widths = xp.take_along_axis(widths, order, axis=1)
    spent = _cumsum(xp, widths, axis=1) - widths
    taken = xp.minimum(xp.maximum(budget - spent, 0), widths)
    ones = xp.ones_like(bounds)
    edges = _scatter_add(
        xp,
        xp.reshape(xp.concatenate([bounds, bounds + taken], axis=1), (-1,)),
        xp.reshape(xp.concatenate([ones, -ones], axis=1), (-1,)),
        size + 1,
    )
    return _cumsum(xp, edges)[:-1] > 0


def _runs(xp, place, length):
    """Start, stop and number of the first token of each token's run: `[T]` each."""
    previous = xp.concatenate([np.full(1, -2, np.int32), place[:-1]], axis=0)
    starts_run = (place != previous + 1) | (place % length == 0)
    run = _cumsum(xp, starts_run) - 1
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


def _scatter_add(xp, indices, values, size):
    # The one operation that the two namespaces do not share.
    if xp is np:
        return np.bincount(indices, values, size).astype(np.int32)
    import tensorflow as tf

    return tf.scatter_nd(indices[:, None], values, xp.reshape(size, (1,)))
