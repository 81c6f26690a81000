"""Candidate spans, half of them linguistic. `span_masks` has the legend of the shapes."""

import numpy as np

from keras_spanbert.layers.array_functions import (
    append_end,
    cumsum,
    draw_below,
    scatter_add,
    scatter_min,
    size,
    take,
    true_indices,
)


def linguistic_or_random(xp, maskable, span_marks, position, anchors, draws):
    """Returns the first and last tokens of candidates, `[B, K + 1]` and `[B, K]`, in 0..N.

    With probability 1/2 a candidate is a linguistic span of the sequence, if it has any, otherwise
    the random word at its anchor. Takes draws `[B, 2K]`.
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
        append_end(xp, true_indices(xp, take(xp, xp.reshape(flags, (-1,)), position)), end)
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
