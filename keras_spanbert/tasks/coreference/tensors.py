"""A document in subtokens as arrays, row for row those of the released scripts.

S = segments, L = longest segment, T = tokens of the document, G = gold mentions.
"""

from collections.abc import Sequence

import numpy as np

from keras_spanbert.tasks.coreference.segments import SEPARATOR_SPEAKER

# Where the released graphs put speakers beyond the most that they tell apart.
_OTHER_SPEAKER = {"independent": 3, "overlap": 0}


def tensorize(
    document: dict,
    token_ids: Sequence[Sequence[int]],
    *,
    model_type: str,
    max_segment_len: int,
    max_num_speakers: int,
    genres: Sequence[str],
    cls_token_id: int,
    sep_token_id: int,
) -> dict:
    """A document's arrays.

    Args:
        document: dict of the released keys.
        token_ids: the ids of its segments' tokens.
        model_type: "independent" or "overlap".
        max_segment_len: int, L.
        max_num_speakers: int.
        genres: strings, what documents' keys begin with.
        cls_token_id, sep_token_id: ints.

    Returns:
        Dict of `input_ids`, `input_mask`, `speaker_ids` `[S, L]`, `text_len`
        `[S]`, `genre` `[]`, `gold_starts`, `gold_ends`, `cluster_ids` `[G]`,
        `sentence_map` `[T]`; with overlap also `overlap_ids` and `overlap_mask`
        `[S + 1, L]`. All int32.
    """
    number_of = _speaker_numbers(document["speakers"], max_num_speakers)
    other = _OTHER_SPEAKER[model_type]
    speakers = [[number_of.get(name, other) for name in row] for row in document["speakers"]]
    rows = [list(row) for row in token_ids]
    is_overlap = model_type == "overlap"
    extra = {}
    if is_overlap:
        windows = overlapping_windows(rows, max_segment_len // 2)
        windows = [[cls_token_id, *row, sep_token_id] for row in windows]
        rows = [[cls_token_id, *row, sep_token_id] for row in rows]
        speakers = [[0, *row, 0] for row in speakers]
        extra["overlap_ids"], extra["overlap_mask"] = _padded(windows, max_segment_len)
    input_ids, input_mask = _padded(rows, max_segment_len)
    gold = sorted(
        (start, end, number)
        for number, cluster in enumerate(document.get("clusters", []), start=1)
        for start, end in cluster
    )
    starts, ends, cluster_ids = np.array(gold, np.int32).reshape(-1, 3).T
    genre = document.get("doc_key", "")[:2]
    genres = list(genres)
    return {
        "input_ids": input_ids,
        "input_mask": input_mask,
        **extra,
        "text_len": np.array([len(row) for row in document["sentences"]], np.int32),
        "speaker_ids": _padded(speakers, max_segment_len)[0],
        "genre": np.int32(genres.index(genre) if genre in genres else 0),
        "gold_starts": starts,
        "gold_ends": ends,
        "cluster_ids": cluster_ids,
        "sentence_map": np.array(document["sentence_map"], np.int32),
    }


def overlapping_windows(segments: Sequence[Sequence], half: int) -> list:
    """Windows over the joints of segments, one more than there are segments.

    The first holds the first half of the first segment, the others the second
    half of a segment and the first half of the next, the last what is left.
    """
    before = [[], *(segment[half:] for segment in segments)]
    after = [*(segment[:half] for segment in segments), []]
    return [[*a, *b] for a, b in zip(before, after)]


def truncate(tensors: dict, offset: int, max_segments: int) -> dict:
    """The arrays of a run of segments, as the released scripts cut documents to train on.

    Args:
        tensors: dict of `tensorize`.
        offset: int. The first segment of the run.
        max_segments: int. Its length.
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
    # Those that reach over the run's ends are kept, and never match.
    touches = (ends >= 0) & (starts < num_tokens)
    cut["gold_starts"], cut["gold_ends"] = starts[touches], ends[touches]
    cut["cluster_ids"] = tensors["cluster_ids"][touches]
    return cut


def _truncated_windows(tensors, begin, end):
    """The windows of a run of segments: the rest of the segment before is masked."""
    ids = tensors["overlap_ids"][begin : end + 1].copy()
    mask = tensors["overlap_mask"][begin : end + 1].copy()
    half = tensors["input_ids"].shape[1] // 2
    left_over = np.maximum(tensors["text_len"] - half, 0)
    if begin:
        mask[0, 1 : 1 + left_over[begin - 1]] = 0
    if end < len(tensors["input_ids"]):
        # The next segment's first half goes, and the separator moves up.
        last = left_over[end - 1]
        separator = ids[-1, mask[-1].sum() - 1]
        ids[-1, 1 + last] = separator
        ids[-1, 2 + last :] = 0
        mask[-1, 2 + last :] = 0
    return {"overlap_ids": ids, "overlap_mask": mask}


def speaker_of_all(max_num_speakers: int, model_type: str) -> int:
    """The number of a speaker who says all of a document."""
    return _speaker_numbers([["-"]], max_num_speakers).get("-", _OTHER_SPEAKER[model_type])


def _speaker_numbers(speakers, max_num_speakers):
    numbers = {"UNK": 0, SEPARATOR_SPEAKER: 1}
    for name in (name for row in speakers for name in row):
        if len(numbers) >= max_num_speakers:
            break
        numbers.setdefault(name, len(numbers))
    return numbers


def _padded(rows, length):
    """Rows of different sizes as an array with zeros behind them, and where they are."""
    array = np.zeros((len(rows), length), np.int32)
    mask = np.zeros((len(rows), length), np.int32)
    for i, row in enumerate(rows):
        array[i, : len(row)] = row
        mask[i, : len(row)] = 1
    return array, mask
