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
import functools
import math
import operator

import numpy as np

from keras_spanbert.layers.array_functions import (
    append_end,
    cumsum,
    draw_below,
    int32,
    num_at_most,
    scatter_add,
    size,
    take,
    true_indices,
    until_unchanged,
)
from keras_spanbert.layers.linguistic_candidates import linguistic_or_random

# The number of candidates needed has a standard deviation of at most about
# 0.8 sqrt(its mean): with these to spare, less than one sequence in 10,000 falls
# short of its budget. Two more candidates then fill it up.
_SPARE_ROOTS = 3.5
# Spans whose set is one int64.
_BITS = 62

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


def span_length_distribution(geometric_p: float, max_span_words: int) -> np.ndarray:
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


def num_candidates(sequence_length: int, mask_rate: float, length_probabilities: np.ndarray) -> int:
    """Number of candidate spans that fill the budget of a sequence."""
    mean_length = length_probabilities @ np.arange(1, len(length_probabilities) + 1)
    # Where a fraction f is masked, a draw masks about (1 - f) * (1 - f) *
    # mean_length new tokens: the sum over f from 0 to the rate is its odds.
    odds = mask_rate / max(1.0 - mask_rate, 1.0 / sequence_length)
    expected = sequence_length * odds / mean_length
    enough = math.ceil(expected + _SPARE_ROOTS * math.sqrt(expected))
    return min(enough, sequence_length)


def draws_per_sequence(
    num_candidates: int, max_predictions: int, has_linguistic: bool = False
) -> int:
    """Number of uniform draws that `span_masks` takes for each sequence."""
    return (4 if has_linguistic else 2) * num_candidates + 1 + 2 * max_predictions


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
    span_marks=None,
    unigram_stops=None,
):
    """Masks spans of a batch of sequences.

    Args:
        xp: `numpy` or `tensorflow.experimental.numpy`.
        token_ids: int32 `[B, L]`.
        maskable: bool `[B, L]`. False for special tokens and padding.
        continuation: bool `[B, L]`. True where a token continues a word.
        draws: float64 `[B, draws_per_sequence(K, M)]`, uniform in [0, 1), or as
            many as with `has_linguistic` where there are `span_marks`.
        mask_rate: float. Share of a sequence's maskable tokens to mask.
        max_predictions: int, M.
        length_probabilities: float `[max words]`. See
            `span_length_distribution`.
        max_span_tokens: int. Offsets from this one on get no SBO target.
        mask_token_id: int.
        mask_token_rate: float. Share replaced by `mask_token_id`.
        random_token_rate: float. Share replaced by random tokens.
        replacement: "span" or "token", what shares one choice of the above.
        span_marks: int32 `[B, L]`, see `SpanMasking`. With it half of the
            candidates are linguistic spans. Defaults to `None`.
        unigram_stops: float64 `[V]`, ascending to 1. Random tokens are drawn by
            their distribution function. Defaults to `None`: from the maskable
            tokens of the batch.

    Returns:
        `SpanMasks`, of int32 unless said otherwise there.
    """
    M = max_predictions
    K = (draws.shape[1] - 1 - 2 * M) // (2 if span_marks is None else 4)
    length = token_ids.shape[1]
    flat_ids = xp.reshape(token_ids, (-1,))  # [B*L]

    # Maskable tokens are numbered 0..N-1 through the batch. `position` leads
    # from these numbers to places in `flat_ids`.
    position = true_indices(xp, maskable)  # [N]
    count = xp.sum(maskable, axis=1, keepdims=True, dtype=np.int32)  # [B, 1]
    last = cumsum(xp, count, axis=0)  # [B, 1], one past a sequence's tokens
    first = last - count  # [B, 1]
    budget = xp.minimum(
        int32(xp, xp.ceil(mask_rate * xp.asarray(count, dtype=np.float64))), M
    )  # [B, 1]

    anchors = first + draw_below(xp, draws[:, : K + 1], last - first)  # [B, K + 1]
    ends = None
    if span_marks is not None:
        anchors, ends = linguistic_or_random(
            xp, maskable, span_marks, position, anchors, draws[:, 2 * K + 1 + 2 * M :]
        )
    position = append_end(xp, position, size(xp, token_ids))
    starts, stops = _spans(
        xp,
        maskable,
        continuation,
        anchors,
        take(xp, position, anchors),
        span_lengths(xp, draws[:, K + 1 : 2 * K + 1], length_probabilities),
        ends,
        None if ends is None else take(xp, position, ends),
    )
    # A sequence without tokens draws from its neighbour.
    stops = xp.minimum(stops, last)
    # What the drawn spans leave of the budget goes to two more: from a random
    # word to the sequence's end, and the whole sequence.
    starts = xp.concatenate([starts, first], axis=1)  # [B, K + 2]
    stops = xp.concatenate([stops, last, last], axis=1)
    number = _spend(xp, anchors[:, :K], starts, stops, first, budget, M)
    m = np.arange(M, dtype=np.int32)[None, :]
    real = m < budget  # [B, M]

    # Slots without a token stand apart from one another and from the text.
    apart = size(xp, token_ids) + 2 * m
    number = xp.where(real, number, last)
    place = xp.where(real, take(xp, position, number), apart)  # [B, M], out of 0..B*L-1
    start, stop, head = _runs(xp, place)
    offset = place - start
    has_target = (
        real
        & (offset < max_span_tokens)
        & (start > take(xp, position, first))
        & (stop <= take(xp, position, xp.maximum(last - 1, 0)))
    )

    choice = draws[:, 2 * K + 1 : 2 * K + 1 + M]
    if replacement == "span":
        choice = take(xp, xp.reshape(choice, (-1,)), head)
    draws = draws[:, 2 * K + 1 + M : 2 * K + 1 + 2 * M]
    if unigram_stops is None:
        random_number = draw_below(xp, draws, size(xp, position) - 1)
        random_place = xp.minimum(take(xp, position, random_number), size(xp, token_ids) - 1)
        random_ids = take(xp, flat_ids, random_place)
    else:
        random_ids = num_at_most(xp, unigram_stops, draws)
    source = xp.where(real, place, 0)
    ids = take(xp, flat_ids, source)
    new_ids = xp.where(
        choice < mask_token_rate,
        xp.full_like(ids, mask_token_id),
        xp.where(
            choice < mask_token_rate + random_token_rate,
            random_ids,
            ids,
        ),
    )
    change = xp.where(real, new_ids - ids, 0)

    row_start = length * (cumsum(xp, xp.ones_like(count), axis=0) - 1)  # [B, 1]

    def in_row(x):
        # A span at a sequence's very edge has no neighbour and no target.
        return xp.where(real, xp.minimum(xp.maximum(x - row_start, 0), length - 1), 0)

    return SpanMasks(
        token_ids=scatter_add(xp, token_ids, source, change),
        mask_positions=in_row(place),
        mask_ids=xp.where(real, ids, 0),
        mask_weights=xp.asarray(real, dtype=np.float32),
        span_left=in_row(start - 1),
        span_right=in_row(stop),
        span_offsets=xp.where(real, offset, 0),
        span_weights=xp.asarray(has_target, dtype=np.float32),
    )


def _spans(xp, maskable, continuation, anchors, places, lengths, ends, end_places):
    """Starts `[B, K + 1]` and stops `[B, K]` of drawn spans, in 0..N.

    `anchors` `[B, K + 1]` in 0..N are at `places` in the flat batch; `lengths`
    `[B, K]`, in words, count from the word of `ends` `[B, K]`, by default that
    of the anchor.
    """
    # A block is a stretch of maskable tokens; no word or span leaves its block.
    nothing = xp.zeros_like(maskable[:, :1])
    block_start = maskable & ~xp.concatenate([nothing, maskable[:, :-1]], axis=1)
    block_last = maskable & ~xp.concatenate([maskable[:, 1:], nothing], axis=1)
    end = size(xp, maskable)
    words = append_end(xp, true_indices(xp, (maskable & ~continuation) | block_start), end)
    lasts = append_end(xp, true_indices(xp, block_last), end)

    word = xp.maximum(num_at_most(xp, words, places) - 1, 0)  # [B, K + 1]
    if ends is None:
        ends, end_places, end_word = anchors[:, :-1], places[:, :-1], word[:, :-1]
    else:
        end_word = xp.maximum(num_at_most(xp, words, end_places) - 1, 0)
    stop_word = xp.minimum(end_word + lengths, size(xp, words) - 1)
    block = xp.minimum(num_at_most(xp, lasts, end_places - 1), size(xp, lasts) - 1)
    stop_places = xp.minimum(take(xp, words, stop_word), take(xp, lasts, block) + 1)
    # Inside a block, numbers and places go in step.
    starts = anchors + take(xp, words, word) - places
    stops = ends + stop_places - end_places
    return starts, stops


def _spend(xp, anchors, starts, stops, first, budget, max_predictions):
    """The tokens that spans mask in turn until the budget is spent, ascending.

    A span whose anchor is masked already is passed over; the last two have no
    anchor. `[B, M]`, of which a sequence's first `budget` hold.
    """
    # The ends of all spans cut the sequence into pieces. Each is sorted with its
    # number, which says whose it is.
    num_spans = starts.shape[1]  # K + 2
    num_ends = 2 * num_spans
    ends = xp.concatenate([starts, stops], axis=1) - first
    ends = xp.sort(ends * num_ends + np.arange(num_ends, dtype=np.int32), axis=1)
    bounds, end = first + ends // num_ends, ends % num_ends

    # The spans over a piece are a set, a bit for each: every end up to the piece
    # adds its span or takes it away. The bounds rise from sequence to sequence,
    # so that one search finds the pieces of all anchors.
    piece = num_at_most(xp, xp.reshape(bounds, (-1,)), anchors) - 1  # [B, K]
    over_pieces, over_anchors = [], []
    for bits in _bits(num_spans):
        over = xp.cumsum(take(xp, np.append(bits, -bits), end), axis=1)
        over_pieces.append(over)
        over_anchors.append(take(xp, xp.reshape(over, (-1,)), piece))
    owner = _owner(xp, over_pieces, _accept(xp, over_anchors, num_spans))

    # Each piece goes to the first accepted span over it. Spans before `cut` mask
    # all of theirs, `cut` as many tokens as are left then.
    widths = xp.concatenate([bounds[:, 1:], bounds[:, -1:]], axis=1) - bounds
    row = cumsum(xp, xp.ones_like(first), axis=0) - 1  # [B, 1]
    totals = scatter_add(xp, xp.zeros_like(starts), row * num_spans + owner, widths)
    spent = cumsum(xp, totals, axis=1)
    within = spent <= budget
    cut = xp.sum(within, axis=1, keepdims=True, dtype=np.int32)
    left = budget - xp.sum(xp.where(within, totals, 0), axis=1, keepdims=True, dtype=np.int32)
    cut_widths = xp.where(owner == cut, widths, 0)
    left = xp.maximum(left + cut_widths - cumsum(xp, cut_widths, axis=1), 0)
    widths = xp.where(owner < cut, widths, xp.minimum(cut_widths, left))

    # Token m is m plus what its piece's start is ahead of its first slot. What
    # that changes from piece to piece is added up along the slots.
    slots = cumsum(xp, widths, axis=1) - widths
    ahead = bounds - slots
    changes = xp.concatenate([ahead[:, :1], ahead[:, 1:] - ahead[:, :-1]], axis=1)
    m = np.arange(max_predictions + 1, dtype=np.int32)
    changes = scatter_add(xp, xp.zeros_like(row + m), row * len(m) + slots, changes)
    return (cumsum(xp, changes, axis=1) + m)[:, :-1]


def _bits(num_spans):
    """int64 arrays `[num_spans]`: in each, some spans have a bit, the others 0."""
    spans = np.arange(num_spans)
    for first in range(0, num_spans, _BITS):
        mine = (first <= spans) & (spans < first + _BITS)
        yield np.where(mine, np.int64(1) << (spans % _BITS), 0)


def _accept(xp, over_anchors, num_spans):
    """The spans whose anchor is not masked yet, as sets `[B, 1]`.

    `over_anchors` has the spans over each anchor, as sets `[B, K]`.
    """
    num_anchors = over_anchors[0].shape[1]
    anchors = np.arange(num_anchors)
    bits = list(_bits(num_spans))
    # A span stands where no accepted one before it is over its anchor. Round by round this is
    # right for one more span at least; mostly a handful of rounds is right for all.
    before = [
        over & np.concatenate([[0], np.cumsum(mine)])[anchors]
        for over, mine in zip(over_anchors, bits)
    ]
    always = [mine[num_anchors:].sum() for mine in bits]

    def accept(*accepted):
        masked = [over & mine for over, mine in zip(before, accepted)]
        stands = functools.reduce(operator.or_, masked) == 0  # [B, K]
        return [
            xp.sum(xp.where(stands, mine[:num_anchors], 0), axis=1, keepdims=True) + rest
            for mine, rest in zip(bits, always)
        ]

    return until_unchanged(xp, accept, [xp.zeros_like(over[:, :1]) for over in over_anchors])


def _owner(xp, over_pieces, accepted):
    """The first accepted span over each piece, int32 `[B, pieces]`."""
    owner = 0
    for n in reversed(range(len(accepted))):
        over = over_pieces[n] & accepted[n]
        lowest = xp.asarray(xp.maximum(over & -over, 1), dtype=np.float64)
        first = n * _BITS + int32(xp, xp.log2(lowest) + 0.5)
        owner = xp.where(over != 0, first, owner)
    return owner


def _runs(xp, place):
    """Start, stop and first slot of each token's run of neighbours: `[B, M]` each."""
    before = xp.concatenate([xp.full_like(place[:, :1], -2), place[:, :-1]], axis=1)
    starts_run = xp.reshape(place != before + 1, (-1,))
    run = xp.reshape(cumsum(xp, starts_run) - 1, (-1, place.shape[1]))
    heads = true_indices(xp, starts_run)
    tails = xp.concatenate([heads[1:], xp.reshape(size(xp, place), (1,))], axis=0) - 1
    head, tail = take(xp, heads, run), take(xp, tails, run)
    flat_place = xp.reshape(place, (-1,))
    return take(xp, flat_place, head), take(xp, flat_place, tail) + 1, head
