"""Cuts words into the segments of the released scripts, with NumPy and in graph code.

W = words, S = segments, T = tokens of the document.
"""

import itertools
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from keras_spanbert.layers.array_functions import (
    append_end,
    cumsum,
    fixed_point,
    int32,
    range_like,
    repeat,
    scatter_min,
    searchsorted,
    size,
    take,
    true_indices,
)

SEPARATOR_SPEAKER = "[SPL]"


class Segments(NamedTuple):
    """The tokens of a document, cut into segments."""

    sizes: np.ndarray  # int32 [S], the number of tokens of each segment.
    # int32 [T], each token's index in a list of all subtokens, then [CLS], then [SEP].
    index: np.ndarray
    sentence_of: np.ndarray  # int32 [T], the sentence of each token.


def cut_words(sizes, sentence_sizes, max_segment_len: int, with_separators: bool, xp=np):
    """Cuts the subtokens of words into segments.

    A segment takes as many subtokens as fit, cut back to the last end of a
    sentence. If no sentence fits, it ends at the last end of a word, and if no word
    fits, within the word.

    Args:
        sizes: int32 `[W]`, the number of subtokens of each word, at least one.
        sentence_sizes: int32, the number of words of each sentence.
        max_segment_len: int, including two separators.
        with_separators: bool. Whether segments are stored with `[CLS]` and
            `[SEP]`, which then count as tokens.
        xp: `numpy` or `tensorflow.experimental.numpy`. Defaults to `numpy`.

    Returns:
        `Segments`.
    """
    sentence_of_word = repeat(xp, range_like(xp, sentence_sizes), sentence_sizes)
    sentence_of = repeat(xp, sentence_of_word, sizes)
    word_ends = bounds(xp, sizes)
    sentence_ends = take(xp, word_ends, bounds(xp, sentence_sizes))
    # If separators are added later, the released script leaves one more place.
    room = max_segment_len - (2 if with_separators else 3)
    limits = _segment_limits(xp, sentence_of, word_ends, sentence_ends, room)
    begins, ends = limits[:-1], limits[1:]
    if not with_separators:
        return Segments(ends - begins, range_like(xp, sentence_of), sentence_of)
    segment_of = repeat(xp, range_like(xp, begins), ends - begins + 2)
    index = range_like(xp, segment_of) - 2 * segment_of - 1
    is_first = index < take(xp, begins, segment_of)
    is_last = index == take(xp, ends, segment_of)
    nearest = index + int32(xp, is_first) - int32(xp, is_last)
    # The sentence number increases after its last subtoken, so before the separator.
    is_end = take(xp, sentence_ends, searchsorted(xp, sentence_ends, ends)) == ends
    is_next = int32(xp, is_last & take(xp, is_end, segment_of))
    num_subtokens = size(xp, sentence_of)
    index = xp.where(is_first, num_subtokens, xp.where(is_last, num_subtokens + 1, index))
    return Segments(ends - begins + 2, index, take(xp, sentence_of, nearest) + is_next)


def bounds(xp, sizes):
    """Returns 0 and the ends of consecutive parts with these sizes, int32 `[n + 1]`."""
    return append_end(xp, cumsum(xp, sizes) - sizes, int32(xp, xp.sum(sizes)))


def _segment_limits(xp, subtokens, word_ends, sentence_ends, room):
    """Returns 0 and the ends of segments, int32 `[S + 1]`."""
    begin = range_like(xp, append_end(xp, subtokens, size(xp, subtokens)))
    most = xp.minimum(begin + room, size(xp, subtokens))
    end = most  # The end of the segment that would begin at each subtoken.
    for ends in (word_ends, sentence_ends):
        last = take(xp, ends, searchsorted(xp, ends, most, "right") - 1)
        end = xp.where(last > begin, last, end)

    def follow(is_skipped, end):
        """Marks what follows each reached segment as reached. `end` then points twice as far."""
        return [scatter_min(xp, is_skipped, end, is_skipped), take(xp, end, end)]

    is_skipped, _ = fixed_point(xp, follow, [int32(xp, begin > 0), end])
    return true_indices(xp, is_skipped == 0)


def split_rows(values: Iterable, sizes: Iterable[int]) -> list[list]:
    """Splits values into lists of these sizes."""
    values = iter(values)
    return [list(itertools.islice(values, size)) for size in sizes]
