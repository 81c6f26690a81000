"""Cuts documents into segments, and converts them to the arrays of the released scripts.

W = words, S = segments, L = longest segment, T = tokens of the document. `xp` is `numpy`
or `tensorflow.experimental.numpy`.
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
# Number of the speaker of separators.
SEPARATOR_NUMBER = 1
# Number that the released graphs give to speakers beyond their maximum.
_OTHER_SPEAKER = {"independent": 3, "overlap": 0}


class Segments(NamedTuple):
    """The tokens of a document, cut into segments."""

    sizes: np.ndarray  # int32 [S], the number of tokens of each segment.
    # int32 [T], each token's index in a list of all subtokens, then [CLS], then [SEP].
    index: np.ndarray
    word_of: np.ndarray  # int32 [T], the word of each token, -1 for a separator.
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
    """
    word_of = repeat(xp, range_like(xp, sizes), sizes)
    sentence_of = take(xp, repeat(xp, range_like(xp, sentence_sizes), sentence_sizes), word_of)
    word_ends = bounds(xp, sizes)
    sentence_ends = take(xp, word_ends, bounds(xp, sentence_sizes))
    # If separators are added later, the released script leaves one more place.
    room = max_segment_len - (2 if with_separators else 3)
    limits = _segment_limits(xp, sentence_of, word_ends, sentence_ends, room)
    begins, ends = limits[:-1], limits[1:]
    if not with_separators:
        return Segments(ends - begins, range_like(xp, word_of), word_of, sentence_of)
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
    word_of = xp.where(is_first | is_last, -1, take(xp, word_of, nearest))
    sentence_of = take(xp, sentence_of, nearest) + is_next
    return Segments(ends - begins + 2, index, int32(xp, word_of), sentence_of)


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


def segment_rows(
    ids, speakers, sizes, max_segment_len: int, separators: tuple[int, int] | None, xp=np
) -> dict:
    """Converts the tokens of a document to one row per segment.

    With overlap, there are also windows over the joints of segments, one more than
    there are segments. The first window contains the first half of the first segment.
    The others contain the second half of a segment and the first half of the next. The
    last contains the rest.

    Args:
        ids, speakers: int32 `[T]`, the id and the speaker's number of each token.
        sizes: int32 `[S]`, the number of tokens of each segment.
        max_segment_len: int, L.
        separators: with overlap, the ids of `[CLS]` and `[SEP]`, which are added to
            each row. `None` if segments include them.

    Returns:
        Dict of the arrays `[S]`, `[S, L]` and `[S + 1, L]` of the preprocessor's `tensors`.
    """

    def to_rows(values, begins, sizes, separators):
        """Returns parts of values as rows, padded with zeros, and their mask."""
        place = np.arange(max_segment_len, dtype=np.int32) - (1 if separators else 0)
        sizes = sizes[:, None]
        is_inside = (place >= 0) & (place < sizes)
        index = xp.where(is_inside, begins[:, None] + place, 0)
        rows = xp.where(is_inside, take(xp, append_end(xp, values, 0), index), 0)
        if separators:
            first, last = separators
            rows = xp.where(place < 0, first, xp.where(place == sizes, last, rows))
            is_inside = place <= sizes
        return int32(xp, rows), int32(xp, is_inside)

    begins = bounds(xp, sizes)  # [S + 1]
    rows = {"text_len": sizes}
    rows["input_ids"], rows["input_mask"] = to_rows(ids, begins[:-1], sizes, separators)
    rows["speaker_ids"], _ = to_rows(speakers, begins[:-1], sizes, separators and (0, 0))
    if separators:
        half, none = max_segment_len // 2, np.zeros(1, np.int32)
        before = xp.concatenate([none, xp.maximum(sizes - half, 0)], axis=0)
        after = xp.concatenate([xp.minimum(sizes, half), none], axis=0)
        windows = to_rows(ids, begins - before, before + after, separators)
        rows["overlap_ids"], rows["overlap_mask"] = windows
    return rows


def truncate(tensors: dict, offset: int, max_segments: int) -> dict:
    """Returns the preprocessor's `tensors` of a run of segments that begins at `offset`.

    The released scripts cut documents like this in training.
    """
    kept = slice(offset, offset + max_segments)
    cut = {n: tensors[n][kept] for n in ["input_ids", "input_mask", "speaker_ids", "text_len"]}
    first, num_tokens = tensors["text_len"][:offset].sum(), cut["text_len"].sum()
    cut["sentence_map"] = tensors["sentence_map"][first : first + num_tokens]
    cut["genre"] = tensors["genre"]
    starts, ends = tensors["gold_starts"] - first, tensors["gold_ends"] - first
    # Mentions that extend beyond the run are kept, but never match a span.
    touches = (ends >= 0) & (starts < num_tokens)
    cut["gold_starts"], cut["gold_ends"] = starts[touches], ends[touches]
    cut["cluster_ids"] = tensors["cluster_ids"][touches]
    if "overlap_ids" in tensors:
        end = offset + len(cut["text_len"])
        ids, mask = (tensors[n][offset : end + 1].copy() for n in ("overlap_ids", "overlap_mask"))
        left_over = np.maximum(tensors["text_len"] - tensors["input_ids"].shape[1] // 2, 0)
        if offset:  # The rest of the segment before the run is masked.
            mask[0, 1 : 1 + left_over[offset - 1]] = 0
        if end < len(tensors["text_len"]):
            # The next segment's first half is removed, and the separator moves left.
            last = left_over[end - 1]
            ids[-1, 1 + last] = ids[-1, mask[-1].sum() - 1]
            ids[-1, 2 + last :] = mask[-1, 2 + last :] = 0
        cut["overlap_ids"], cut["overlap_mask"] = ids, mask
    return cut


def speaker_numbers(names: list[str], max_num_speakers: int, model_type: str) -> list[int]:
    """Returns the number of each token's speaker."""
    numbers = {"UNK": 0, SEPARATOR_SPEAKER: SEPARATOR_NUMBER}
    for name in dict.fromkeys(names):
        if len(numbers) < max_num_speakers:
            numbers.setdefault(name, len(numbers))
    return [numbers.get(name, _OTHER_SPEAKER[model_type]) for name in names]
