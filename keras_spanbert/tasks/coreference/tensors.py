"""Converts a document in subtokens to arrays, the same as those of the released scripts.

S = segments, L = longest segment, T = tokens of the document.
"""

import numpy as np

from keras_spanbert.layers.array_functions import append_end, int32, take
from keras_spanbert.tasks.coreference.segments import SEPARATOR_SPEAKER, bounds

# Number of the speaker of separators.
SEPARATOR_NUMBER = 1
# Number that the released graphs give to speakers beyond their maximum.
_OTHER_SPEAKER = {"independent": 3, "overlap": 0}


def segment_rows(
    ids, speakers, sizes, max_segment_len: int, separators: tuple[int, int] | None, xp=np
) -> dict:
    """Converts the tokens of a document to one row per segment.

    With overlap, there are also windows across the boundaries of segments, one more
    than there are segments. The first window contains the first half of the first segment.
    The others contain the second half of a segment and the first half of the next. The
    last contains the rest.

    Args:
        ids, speakers: int32 `[T]`, the id and the speaker's number of each token.
        sizes: int32 `[S]`, the number of tokens of each segment.
        max_segment_len: int, L.
        separators: with overlap, the ids of `[CLS]` and `[SEP]`, which are added to
            each row. `None` if segments include them.
        xp: `numpy` or `tensorflow.experimental.numpy`. Defaults to `numpy`.

    Returns:
        Dict of the arrays `[S]`, `[S, L]` and `[S + 1, L]` of the preprocessor's `tensors`.
    """
    begins = bounds(xp, sizes)  # [S + 1]
    rows = {"text_len": sizes}

    def add_rows(name, begins, sizes):
        ids_of_rows = _pad_rows(xp, ids, begins, sizes, max_segment_len, separators)
        rows[f"{name}_ids"], rows[f"{name}_mask"] = ids_of_rows

    add_rows("input", begins[:-1], sizes)
    no_speakers = separators and (0, 0)
    rows["speaker_ids"], _ = _pad_rows(
        xp, speakers, begins[:-1], sizes, max_segment_len, no_speakers
    )
    if separators:
        half, none = max_segment_len // 2, np.zeros(1, np.int32)
        before = xp.concatenate([none, xp.maximum(sizes - half, 0)], axis=0)
        after = xp.concatenate([xp.minimum(sizes, half), none], axis=0)
        add_rows("overlap", begins - before, before + after)
    return rows


def _pad_rows(xp, values, begins, sizes, length, separators):
    """Returns parts of values as rows `[n, length]`, padded with zeros, and their mask."""
    place = np.arange(length, dtype=np.int32) - (1 if separators else 0)
    sizes = sizes[:, None]
    is_inside = (place >= 0) & (place < sizes)
    index = xp.where(is_inside, begins[:, None] + place, 0)
    rows = xp.where(is_inside, take(xp, append_end(xp, values, 0), index), 0)
    if separators:
        first, last = separators
        rows = xp.where(place < 0, first, xp.where(place == sizes, last, rows))
        is_inside = place <= sizes
    return int32(xp, rows), int32(xp, is_inside)


def truncate(tensors: dict, offset: int, max_segments: int) -> dict:
    """Returns the arrays of a run of segments, cut as by the released scripts in training.

    Args:
        tensors: dict from the preprocessor's `tensors`.
        offset: int. The first segment of the run.
        max_segments: int. Number of segments of the run.
    """
    kept = slice(offset, offset + max_segments)
    cut = {name: tensors[name][kept] for name in ["input_ids", "input_mask", "speaker_ids"]}
    cut["text_len"] = tensors["text_len"][kept]
    sizes = tensors["text_len"]
    if "overlap_ids" in tensors:
        cut.update(_truncated_windows(tensors, offset, offset + len(cut["input_ids"])))
    first = sizes[:offset].sum()
    num_tokens = sizes[kept].sum()
    cut["sentence_map"] = tensors["sentence_map"][first : first + num_tokens]
    cut["genre"] = tensors["genre"]
    starts, ends = tensors["gold_starts"] - first, tensors["gold_ends"] - first
    # Mentions that extend beyond the run are kept, but never match a span.
    touches = (ends >= 0) & (starts < num_tokens)
    cut["gold_starts"], cut["gold_ends"] = starts[touches], ends[touches]
    cut["cluster_ids"] = tensors["cluster_ids"][touches]
    return cut


def _truncated_windows(tensors, begin, end):
    """Returns the windows of a run of segments. The rest of the previous segment is masked."""
    ids = tensors["overlap_ids"][begin : end + 1].copy()
    mask = tensors["overlap_mask"][begin : end + 1].copy()
    half = tensors["input_ids"].shape[1] // 2
    left_over = np.maximum(tensors["text_len"] - half, 0)
    if begin:
        mask[0, 1 : 1 + left_over[begin - 1]] = 0
    if end < len(tensors["input_ids"]):
        # The next segment's first half is removed, and the separator moves left.
        last = left_over[end - 1]
        separator = ids[-1, mask[-1].sum() - 1]
        ids[-1, 1 + last] = separator
        ids[-1, 2 + last :] = 0
        mask[-1, 2 + last :] = 0
    return {"overlap_ids": ids, "overlap_mask": mask}


def speaker_numbers(names: list[str], max_num_speakers: int, model_type: str) -> list[int]:
    """Returns the number of each token's speaker."""
    numbers = {"UNK": 0, SEPARATOR_SPEAKER: SEPARATOR_NUMBER}
    for name in dict.fromkeys(names):
        if len(numbers) < max_num_speakers:
            numbers.setdefault(name, len(numbers))
    return [numbers.get(name, _OTHER_SPEAKER[model_type]) for name in names]
