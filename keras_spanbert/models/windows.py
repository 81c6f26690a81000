"""Windows over long texts, as arithmetic on numbers of tokens.

The body keeps to the part of the NumPy API that `numpy` and
`tensorflow.experimental.numpy` share, so that preprocessors and a SavedModel cut
the same ones. A window is some tokens (`[CLS]`, a question), a part of the text,
and `[SEP]`.

Legend: N = texts, W = windows, L = tokens a window. All integers are int32.
"""

import collections

import numpy as np

from keras_spanbert.models.pairs import take

Parts = collections.namedtuple(
    "Parts",
    [
        "example",  # [W], the text
        "before",  # [W], tokens before the part
        "size",  # [W], the text's tokens
        "first",  # [W], the part's first of them
        "count",  # [W], and how many
    ],
)


def parts(xp, before, sizes, length, stride):
    """The parts of texts that the windows show, by text.

    Args:
        xp: `numpy` or `tensorflow.experimental.numpy`.
        before: `[N]`, tokens before the part in each text's windows.
        sizes: `[N]`, tokens of the texts.
        length: int, L.
        stride: int, tokens from a part's start to the next one's.

    Returns:
        `Parts`.
    """
    room = length - 1 - before
    num_parts = 1 + xp.maximum(-(-(sizes - room) // stride), 0)
    ends = xp.cumsum(num_parts, dtype=np.int32)
    example = xp.repeat(_range_like(xp, sizes), num_parts)
    part = _range_like(xp, example) - take(xp, ends - num_parts, example)
    first = part * stride
    size, before = take(xp, sizes, example), take(xp, before, example)
    count = xp.minimum(length - 1 - before, size - first)
    return Parts(example, before, size, first, count)


def is_max_context(xp, parts, length, stride, reach):
    """Whether each token's context is at its largest in this window: bool `[W, L]`.

    Args:
        xp: see `parts`.
        parts: `Parts`.
        length: int, L.
        stride: int.
        reach: int. How many windows before and after may hold the same token.
    """
    first, size = parts.first[:, None], parts.size[:, None]
    room = length - 1 - parts.before[:, None]
    token = xp.arange(length, dtype=np.int32)[None, :] - parts.before[:, None]

    # A token's score in a part is its smaller context, left or right, and a
    # hundredth of the part's size. The first part with the best score has it.
    def score(token, count):
        context = xp.asarray(xp.minimum(token, count - 1 - token), dtype=np.float64)
        return context + 0.01 * xp.asarray(count, dtype=np.float64)

    mine = score(token, parts.count[:, None])
    is_best = (token >= 0) & (token < parts.count[:, None])
    for parts_on in range(-reach, reach + 1):
        shift = parts_on * stride
        exists = (first + shift >= 0) & (first + shift - stride + room < size)
        count = xp.minimum(room, size - first - shift)
        other = token - shift
        is_in = exists & (other >= 0) & (other < count)
        if parts_on < 0:
            is_best &= ~(is_in & (score(other, count) >= mine))
        elif parts_on > 0:
            is_best &= ~(is_in & (score(other, count) > mine))
    return is_best


def most_reach(room: int, stride: int) -> int:
    """The `reach` that does for any text.

    Args:
        room: int. Most tokens of a text in a window.
        stride: int.
    """
    return (room - 1) // stride


def _range_like(xp, x):
    return xp.cumsum(xp.ones_like(x), dtype=np.int32) - 1
