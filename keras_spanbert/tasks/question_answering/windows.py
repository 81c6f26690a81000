"""Windows over questions and contexts, as arithmetic on their numbers of tokens.

The body keeps to the part of the NumPy API that `numpy` and
`tensorflow.experimental.numpy` share, so that `windows` and a SavedModel cut
the same ones.

Legend: Q = questions, W = windows, L = tokens a window. All integers are int32.
"""

import collections

import numpy as np

from keras_spanbert.models.pairs import take

Parts = collections.namedtuple(
    "Parts",
    [
        "example",  # [W], the question
        "head_size",  # [W], its tokens
        "size",  # [W], the context's tokens
        "first",  # [W], the part's first of them
        "count",  # [W], and how many
    ],
)
Places = collections.namedtuple(
    "Places",
    [
        "in_question",  # [W, L]
        "question_token",  # [W, L], 0 where not in it
        "in_context",  # [W, L]
        "context_token",  # [W, L], 0 where not in it
        "is_separator",  # [W, L]
        "segment_ids",  # bool [W, L]
        "padding_mask",  # bool [W, L]
    ],
)


def parts(xp, head_sizes, sizes, length, stride):
    """The parts of contexts that the windows show, by question.

    Args:
        xp: `numpy` or `tensorflow.experimental.numpy`.
        head_sizes: `[Q]`, tokens of the questions.
        sizes: `[Q]`, tokens of the contexts.
        length: int, L.
        stride: int, tokens from a part's start to the next one's.

    Returns:
        `Parts`.
    """
    room = length - 3 - head_sizes
    num_parts = 1 + xp.maximum(-(-(sizes - room) // stride), 0)
    ends = xp.cumsum(num_parts, dtype=np.int32)
    example = xp.repeat(_range_like(xp, sizes), num_parts)
    part = _range_like(xp, example) - take(xp, ends - num_parts, example)
    first = part * stride
    size, head_size = take(xp, sizes, example), take(xp, head_sizes, example)
    count = xp.minimum(length - 3 - head_size, size - first)
    return Parts(example, head_size, size, first, count)


def places(xp, parts, length):
    """What stands where in the windows: `[CLS] question [SEP] part [SEP]`."""
    head_size, count = parts.head_size[:, None], parts.count[:, None]
    place = xp.arange(length, dtype=np.int32)[None, :]
    token = place - head_size - 2  # Of the part.
    in_question = (place >= 1) & (place <= head_size)
    in_context = (token >= 0) & (token < count)
    nothing = np.int32(0)
    return Places(
        in_question,
        xp.where(in_question, place - 1, nothing),
        in_context,
        xp.where(in_context, token + parts.first[:, None], nothing),
        (place == head_size + 1) | (token == count),
        (token >= 0) & (token <= count),
        token <= count,
    )


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
    room = length - 3 - parts.head_size[:, None]
    token = xp.arange(length, dtype=np.int32)[None, :] - parts.head_size[:, None] - 2

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


def most_reach(length: int, stride: int) -> int:
    """The `reach` that does for any question and context."""
    return (length - 4) // stride


def _range_like(xp, x):
    return xp.cumsum(xp.ones_like(x), dtype=np.int32) - 1
