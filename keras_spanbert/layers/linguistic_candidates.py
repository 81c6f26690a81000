"""Candidate spans of which half are linguistic: see `span_masks`, which has the legend."""

import numpy as np

from keras_spanbert.layers.array_functions import (
    append_end,
    cumsum,
    draw_below,
    size,
    take,
    true_indices,
)


def linguistic_or_random(xp, maskable, span_marks, position, anchors, draws):
    """First and last tokens of candidates, `[B, K + 1]` and `[B, K]`, in 0..N.

    With probability 1/2 one of the sequence's linguistic spans, if it has any,
    drawn uniformly, in place of the random word of an anchor. One uniform draw
    `[B, K]` decides both.
    """
    marks = xp.where(maskable, span_marks, 0)
    nothing = xp.zeros_like(marks[:, :1])
    before = xp.concatenate([nothing, marks[:, :-1]], axis=1)
    after = xp.concatenate([marks[:, 1:], nothing], axis=1)
    is_start = (marks == 1) | ((marks == 2) & (before == 0))
    is_last = (marks != 0) & (after != 2)
    # Spans do not overlap, so that the i-th start belongs to the i-th last token.
    end = size(xp, position)
    starts, lasts = (
        append_end(xp, true_indices(xp, take(xp, xp.reshape(flags, (-1,)), position)), end)
        for flags in (is_start, is_last)
    )
    count = xp.sum(is_start, axis=1, keepdims=True, dtype=np.int32)  # [B, 1]
    first = cumsum(xp, count, axis=0) - count
    is_linguistic = (draws < 0.5) & (count > 0)
    span = xp.where(is_linguistic, first + draw_below(xp, 2 * draws, count), 0)
    random_word = anchors[:, :-1]
    starts = xp.where(is_linguistic, take(xp, starts, span), random_word)
    lasts = xp.where(is_linguistic, take(xp, lasts, span), random_word)
    return xp.concatenate([starts, anchors[:, -1:]], axis=1), lasts
