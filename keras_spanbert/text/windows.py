"""Computes windows over long texts from numbers of tokens, the same with NumPy and in a graph.

A window consists of some tokens (`[CLS]`, a question), a span of the text, and `[SEP]`. Legend: N =
texts, W = windows, L = tokens per window. All integers are int32.
"""

import collections

import numpy as np

from keras_spanbert.layers.array_functions import range_like, repeat, take

DocSpans = collections.namedtuple(
    "DocSpans",
    [
        "example",  # [W], index of the text
        "before",  # [W], number of tokens before the span
        "size",  # [W], number of tokens of the text
        "first",  # [W], index of the span's first token in the text
        "count",  # [W], number of tokens of the span
    ],
)


def doc_spans(xp, before, sizes, length, stride):
    """Splits texts into the spans that windows show, in the order of the texts: `DocSpans`.

    `before` and `sizes`, `[N]`, are the numbers of tokens before the span in each text's windows
    and of the text. Spans start `stride` tokens apart.
    """
    room = length - 1 - before
    num_spans = 1 + xp.maximum(-(-(sizes - room) // stride), 0)
    ends = xp.cumsum(num_spans, dtype=np.int32)
    example = repeat(xp, range_like(xp, sizes), num_spans)
    span = range_like(xp, example) - take(xp, ends - num_spans, example)
    first = span * stride
    size, before = take(xp, sizes, example), take(xp, before, example)
    count = xp.minimum(length - 1 - before, size - first)
    return DocSpans(example, before, size, first, count)


def is_max_context(xp, spans, length, stride):
    """Returns whether each token has its largest context in this window: bool `[W, L]`."""
    # Number of windows before and after that can contain the same token.
    reach = (length - 3) // stride
    if xp is np:  # Most texts have one window.
        beyond = np.max(spans.size + spans.before + 1 - length, initial=0)
        reach = min(reach, -(-int(beyond) // stride))
    first, size = spans.first[:, None], spans.size[:, None]
    room = length - 1 - spans.before[:, None]
    token = xp.arange(length, dtype=np.int32)[None, :] - spans.before[:, None]

    # A token's score in a span is its smaller context, left or right, plus a
    # hundredth of the span's size. The first span with the best score is chosen.
    def score(token, count):
        context = xp.asarray(xp.minimum(token, count - 1 - token), dtype=np.float64)
        return context + 0.01 * xp.asarray(count, dtype=np.float64)

    mine = score(token, spans.count[:, None])
    is_best = (token >= 0) & (token < spans.count[:, None])
    for offset in range(-reach, reach + 1):
        shift = offset * stride
        exists = (first + shift >= 0) & (first + shift - stride + room < size)
        count = xp.minimum(room, size - first - shift)
        other = token - shift
        is_in = exists & (other >= 0) & (other < count)
        theirs = score(other, count)
        is_best &= ~(is_in & (theirs >= mine if offset < 0 else theirs > mine))
    return is_best
