"""Span masking as arithmetic: turns token properties and uniform draws into masks.

The released SpanBERT draws spans one after another until the budget is spent. Here all candidate
spans of all sequences are drawn at once. The sequential rules (an anchor that is already masked is
drawn again, a masked token costs no budget, the end of the budget cuts a span) are then applied by
comparing the candidates of a sequence with one another, with no loop over tokens.

The code uses only what `numpy` and `tensorflow.experimental.numpy` share. It runs eagerly and as
graph code inside `tf.data`, and gives the same masks for the same draws.

Legend: B = batch, L = sequence length, N = maskable tokens in the whole batch,
K = candidate spans per sequence, T = masked tokens in the whole batch,
M = masked positions per sequence (static, padded).
"""

import functools
import operator

import numpy as np

from keras_spanbert.layers.array_functions import (
    count_at_most,
    cumsum,
    draw_below,
    fixed_point,
    int32,
    scatter_add,
    scatter_min,
    size,
    take,
    true_indices,
)

# Number of spans in a set that is stored in one int64.
_BITS = 62


def span_length_distribution(geometric_p: float, max_span_words: int) -> np.ndarray:
    """Returns the probabilities of span lengths 1, 2, ..., `max_span_words`, in words.

    The geometric distribution `p * (1 - p)^(n - 1)`, truncated and renormalized (Joshi et al. 2020,
    section 3.1). Uniform if p is 0.
    """
    probabilities = (1.0 - geometric_p) ** np.arange(max_span_words)
    return probabilities / probabilities.sum()


def span_lengths(xp, draws, length_probabilities):
    """Returns span lengths in words, int32, from uniform draws of rank 2."""
    more_words = np.cumsum(length_probabilities)[:-1] <= draws[:, :, None]
    return 1 + xp.sum(more_words, axis=2, dtype=np.int32)


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
    """Masks spans of a batch of sequences. Returns the dict that `SpanMasking` returns.

    `token_ids` are int32, `maskable` and `continuation` bool, and `span_marks` int32 `[B, L]`.
    `draws` are uniform, float64 `[B, 2K + 1 + 2M]`, with `span_marks` `[B, 4K + 1 + 2M]`.
    `unigram_stops`, float64 `[V]`, is the cumulative distribution of random tokens, by default that
    of the batch's maskable tokens.
    """
    M = max_predictions
    K = (draws.shape[1] - 1 - 2 * M) // (2 if span_marks is None else 4)
    length = token_ids.shape[1]
    flat_ids = xp.reshape(token_ids, (-1,))  # [B*L]

    # Maskable tokens are numbered 0..N-1 through the batch. `position` maps
    # these numbers to places in `flat_ids`.
    position = true_indices(xp, maskable, size(xp, token_ids))  # [N + 1], with the end
    count = xp.sum(maskable, axis=1, keepdims=True, dtype=np.int32)  # [B, 1]
    last = cumsum(xp, count, axis=0)  # [B, 1], one past a sequence's tokens
    first = last - count  # [B, 1]
    budget = xp.minimum(
        int32(xp, xp.ceil(mask_rate * xp.asarray(count, dtype=np.float64))), M
    )  # [B, 1]

    anchors = first + draw_below(xp, draws[:, : K + 1], last - first)  # [B, K + 1]
    ends = None
    if span_marks is not None:
        anchors, ends = _linguistic_or_random(
            xp, maskable, span_marks, position[:-1], anchors, draws[:, 2 * K + 1 + 2 * M :]
        )
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
    # A sequence without tokens would draw from the next one.
    stops = xp.minimum(stops, last)
    # Two more spans fill the rest of the budget: one from a random word to the
    # sequence's end, and the whole sequence.
    starts = xp.concatenate([starts, first], axis=1)  # [B, K + 2]
    stops = xp.concatenate([stops, last, last], axis=1)
    single_words = len(length_probabilities) == 1 and span_marks is None
    number = _fill_budget(
        xp, None if single_words else anchors[:, :K], starts, stops, first, budget, M
    )
    m = np.arange(M, dtype=np.int32)[None, :]
    real = m < budget  # [B, M]

    # Empty slots get places apart from one another and from the text.
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
        random_ids = count_at_most(xp, unigram_stops, draws)
    source = xp.where(real, place, 0)
    ids = take(xp, flat_ids, source)
    new_ids = xp.where(
        choice < mask_token_rate,
        xp.full_like(ids, mask_token_id),
        xp.where(choice < mask_token_rate + random_token_rate, random_ids, ids),
    )
    change = xp.where(real, new_ids - ids, 0)

    row_start = length * (cumsum(xp, xp.ones_like(count), axis=0) - 1)  # [B, 1]
    # A span at the edge of a sequence has no neighbor and no target.
    positions, left, right = (
        xp.where(real, xp.minimum(xp.maximum(x - row_start, 0), length - 1), 0)
        for x in (place, start - 1, stop)
    )
    return {
        "token_ids": scatter_add(xp, token_ids, source, change),
        "mask_positions": positions,
        "mask_ids": xp.where(real, ids, 0),
        "mask_weights": xp.asarray(real, dtype=np.float32),
        "span_left": left,
        "span_right": right,
        "span_offsets": xp.where(real, offset, 0),
        "span_weights": xp.asarray(has_target, dtype=np.float32),
    }


def _linguistic_or_random(xp, maskable, span_marks, position, anchors, draws):
    """Returns the first and last tokens of candidates, `[B, K + 1]` and `[B, K]`, in 0..N.

    Takes draws `[B, 2K]`. Half of the candidates are linguistic spans, if there are any.
    """
    K = anchors.shape[1] - 1
    marks = xp.where(maskable, span_marks, 0)
    nothing = xp.zeros_like(marks[:, :1])
    before = xp.concatenate([nothing, marks[:, :-1]], axis=1)
    after = xp.concatenate([marks[:, 1:], nothing], axis=1)
    is_start = (marks == 1) | ((marks == 2) & (before == 0))
    is_last = (marks != 0) & (after != 2)
    # Spans do not overlap, so the i-th start belongs to the i-th last token.
    end = size(xp, position)
    starts, lasts = (
        true_indices(xp, take(xp, xp.reshape(flags, (-1,)), position), end)
        for flags in (is_start, is_last)
    )
    count = xp.sum(is_start, axis=1, keepdims=True, dtype=np.int32)  # [B, 1]
    first = cumsum(xp, count, axis=0) - count
    is_linguistic = (draws < 0.5) & (count > 0)  # [B, 2K]
    none = size(xp, starts) - 1
    span = xp.where(is_linguistic, first + draw_below(xp, 2 * draws, count), none)

    order = np.arange(2 * K, dtype=np.int32) + xp.zeros_like(span)
    first_draws = scatter_min(xp, xp.full_like(starts, 2 * K), span, order)
    # A span that was drawn before would be skipped later anyway. It is removed here, where that is
    # cheap, so K candidates take 2K draws. Each decides both the kind and the span.
    is_new = ~is_linguistic | (take(xp, first_draws, span) == order)
    slot = cumsum(xp, is_new, axis=1) - 1
    slot = xp.where(is_new, xp.minimum(slot, K), K)  # Slot K collects what is left out.
    row = cumsum(xp, xp.ones_like(count), axis=0) - 1
    # Spans are numbered from 1. 0 means a random word.
    spans = xp.where(is_linguistic & (slot < K), span + 1, 0)
    spans = scatter_add(xp, xp.zeros_like(anchors), row * (K + 1) + slot, spans)[:, :-1]

    span = xp.maximum(spans - 1, 0)
    starts = xp.where(spans > 0, take(xp, starts, span), anchors[:, :-1])
    lasts = xp.where(spans > 0, take(xp, lasts, span), anchors[:, :-1])
    return xp.concatenate([starts, anchors[:, -1:]], axis=1), lasts


def _spans(xp, maskable, continuation, anchors, places, lengths, ends, end_places):
    """Returns starts `[B, K + 1]` and stops `[B, K]` of drawn spans, in 0..N.

    `anchors` `[B, K + 1]` in 0..N are at `places` in the flat batch. `lengths` `[B, K]`, in words,
    count from the word of `ends` `[B, K]`, by default the anchor's word.
    """
    # A block is a run of maskable tokens. No word or span leaves its block.
    nothing = xp.zeros_like(maskable[:, :1])
    block_start = maskable & ~xp.concatenate([nothing, maskable[:, :-1]], axis=1)
    block_last = maskable & ~xp.concatenate([maskable[:, 1:], nothing], axis=1)
    end = size(xp, maskable)
    words = true_indices(xp, (maskable & ~continuation) | block_start, end)
    lasts = true_indices(xp, block_last, end)

    word = xp.maximum(count_at_most(xp, words, places) - 1, 0)  # [B, K + 1]
    if ends is None:
        ends, end_places, end_word = anchors[:, :-1], places[:, :-1], word[:, :-1]
    else:
        end_word = xp.maximum(count_at_most(xp, words, end_places) - 1, 0)
    stop_word = xp.minimum(end_word + lengths, size(xp, words) - 1)
    block = xp.minimum(count_at_most(xp, lasts, end_places - 1), size(xp, lasts) - 1)
    stop_places = xp.minimum(take(xp, words, stop_word), take(xp, lasts, block) + 1)
    # Inside a block, numbers and places increase together.
    starts = anchors + take(xp, words, word) - places
    stops = ends + stop_places - end_places
    return starts, stops


def _fill_budget(xp, anchors, starts, stops, first, budget, max_predictions):
    """Returns the tokens `[B, M]` that spans mask in turn until the budget is spent, ascending.

    The last two spans have no anchor. `anchors` is `None` if all others are single words. Only the
    first `budget` tokens of a sequence are valid.
    """
    # The ends of all spans cut the sequence into pieces. Each end is sorted with
    # its number, which identifies its span. Pieces between equal ends are empty. The
    # last of equal ends is the start of the first span, if one starts there.
    num_spans = starts.shape[1]  # K + 2
    num_ends = 2 * num_spans
    ends = xp.concatenate([starts, stops], axis=1) - first
    ends = xp.sort(ends * num_ends + np.arange(num_ends, dtype=np.int32)[::-1], axis=1)
    bounds, end = first + ends // num_ends, num_ends - 1 - ends % num_ends
    if anchors is None:
        # A piece starts with its word. Pieces without a word are in the last two spans.
        rest = num_spans - 1 - int32(xp, bounds >= starts[:, -2:-1])
        owner = xp.where(end < num_spans - 2, end, rest)
    else:
        owner = _first_accepted_spans(xp, anchors, bounds, end, num_spans)

    # Each piece belongs to the first accepted span over it. Spans before `cut`
    # mask all of their tokens, and `cut` masks as many as the budget has left.
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

    # Token m is m plus the distance from its piece's first slot to the piece's
    # start. The changes from piece to piece are summed along the slots.
    slots = cumsum(xp, widths, axis=1) - widths
    ahead = bounds - slots
    changes = xp.concatenate([ahead[:, :1], ahead[:, 1:] - ahead[:, :-1]], axis=1)
    m = np.arange(max_predictions + 1, dtype=np.int32)
    changes = scatter_add(xp, xp.zeros_like(row + m), row * len(m) + slots, changes)
    return (cumsum(xp, changes, axis=1) + m)[:, :-1]


def _first_accepted_spans(xp, anchors, bounds, end, num_spans):
    """Returns the first accepted span over each piece, int32 `[B, pieces]`."""
    # The spans over a piece are a set with one bit per span: each end up to the
    # piece adds or removes its span. The bounds increase from sequence to
    # sequence, so one search finds the pieces of all anchors.
    piece = count_at_most(xp, xp.reshape(bounds, (-1,)), anchors) - 1  # [B, K]
    spans = np.arange(num_spans)
    # Arrays `[num_spans]`: the bits of the spans in each of the int64 that make up a set.
    bits = [
        np.where(spans // _BITS == n, np.int64(1) << (spans % _BITS), 0)
        for n in range(-(-num_spans // _BITS))
    ]
    over_pieces = [xp.cumsum(take(xp, np.append(mine, -mine), end), axis=1) for mine in bits]
    over_anchors = [take(xp, xp.reshape(over, (-1,)), piece) for over in over_pieces]

    # A span is accepted if no accepted span before it covers its anchor. Each round settles at
    # least one more span. A few rounds mostly settle all of them.
    num_anchors = anchors.shape[1]
    before = [
        over & np.concatenate([[0], np.cumsum(mine)])[:num_anchors]
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

    # Sets `[B, 1]`.
    accepted = fixed_point(xp, accept, [xp.zeros_like(over[:, :1]) for over in over_anchors])
    owner = 0
    for n in reversed(range(len(bits))):
        over = over_pieces[n] & accepted[n]
        lowest = xp.asarray(xp.maximum(over & -over, 1), dtype=np.float64)
        first = n * _BITS + int32(xp, xp.log2(lowest) + 0.5)
        owner = xp.where(over != 0, first, owner)
    return owner


def _runs(xp, place):
    """Returns start, stop and first slot of each token's run of neighbors: `[B, M]` each."""
    before = xp.concatenate([xp.full_like(place[:, :1], -2), place[:, :-1]], axis=1)
    starts_run = xp.reshape(place != before + 1, (-1,))
    run = xp.reshape(cumsum(xp, starts_run) - 1, (-1, place.shape[1]))
    heads = true_indices(xp, starts_run, size(xp, place))
    head, tail = take(xp, heads, run), take(xp, heads[1:] - 1, run)
    flat_place = xp.reshape(place, (-1,))
    return take(xp, flat_place, head), take(xp, flat_place, tail) + 1, head
