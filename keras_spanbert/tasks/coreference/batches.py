"""Pads the arrays of documents to inputs of the model with few different shapes.

S = segments, L = tokens of a segment, T = tokens of a document, N = candidate
spans, K = spans that are kept. `xp` is `numpy` or `tensorflow.experimental.numpy`.
"""

from collections.abc import Iterable

import keras
import numpy as np

from keras_spanbert.data.batches import round_up
from keras_spanbert.layers.array_functions import (
    append_end,
    cumsum,
    int32,
    size,
    take,
    true_indices,
)
from keras_spanbert.tasks.coreference.scoring import GIVEN
from keras_spanbert.tasks.coreference.segments import truncate
from keras_spanbert.tasks.coreference.spans import candidate_spans, num_top_spans

# Inputs with a value for each token.
_OF_TOKENS = ("token_places", "speaker_ids", "segment_index", "overlap_places")


def document_inputs(tensors: dict, model, xp=np, given: bool = False) -> dict:
    """Returns a document's inputs without padding.

    Args:
        tensors: dict from the preprocessor's `tensors`.
        model: `SpanBertCoreferenceResolver`.
        xp: `numpy` or `tensorflow.experimental.numpy`.
        given: bool. Whether the gold mentions are the only candidates, and all are
            kept. Defaults to `False`.

    Returns:
        Dict of int32 arrays: `token_ids`, `padding_mask` `[S, L]`, `token_places`,
        `speaker_ids`, `segment_index` `[T]`, `starts`, `ends` `[N]`,
        `top_span_mask` `[K]` and `genre` `[]`. With overlap there are also
        `overlap_token_ids`, `overlap_padding_mask` `[S + 1, L]` and
        `overlap_places` `[T]`.
    """
    mask = tensors["input_mask"]
    is_overlap = "overlap_ids" in tensors
    is_token = mask_separators(mask, xp) if is_overlap else mask > 0
    places = true_indices(xp, is_token)
    if given:
        starts, ends = tensors["gold_starts"], tensors["gold_ends"]
        top_span_mask = xp.full_like(starts, GIVEN)
    else:
        starts, ends = candidate_spans(tensors["sentence_map"], model.max_span_width, xp)
        num_top = num_top_spans(size(xp, places), model.top_span_ratio, xp)
        top_span_mask = xp.ones((num_top,), np.int32)
    inputs = {
        "token_ids": tensors["input_ids"],
        "padding_mask": mask,
        "token_places": places,
        "speaker_ids": take(xp, xp.reshape(tensors["speaker_ids"], (-1,)), places),
        "segment_index": int32(xp, xp.nonzero(is_token)[0]),
        "starts": starts,
        "ends": ends,
        "top_span_mask": top_span_mask,
        "genre": tensors["genre"],
    }
    if is_overlap:
        inputs["overlap_token_ids"] = tensors["overlap_ids"]
        inputs["overlap_padding_mask"] = tensors["overlap_mask"]
        is_token = mask_separators(tensors["overlap_mask"], xp)
        inputs["overlap_places"] = true_indices(xp, is_token)
    return inputs


def gold_clusters(tensors: dict, inputs: dict) -> np.ndarray:
    """Returns the gold cluster of each candidate of `document_inputs`, 0 for none: int32 `[N]`."""
    num_tokens = len(inputs["token_places"])
    starts, ends = (tensors[name].astype(np.int64) for name in ["gold_starts", "gold_ends"])
    is_inside = (starts >= 0) & (ends < num_tokens)
    wanted = (starts * num_tokens + ends)[is_inside]
    keys = inputs["starts"].astype(np.int64) * num_tokens + inputs["ends"]
    found = np.searchsorted(keys, wanted)  # Candidates are sorted.
    is_candidate = np.append(keys, -1)[found] == wanted
    labels = np.zeros(len(keys), np.int32)
    labels[found[is_candidate]] = tensors["cluster_ids"][is_inside][is_candidate]
    return labels


def mask_separators(mask, xp=np):
    """Returns where rows have tokens other than separators, their first and last tokens."""
    num_following = cumsum(xp, mask[:, ::-1], axis=1)[:, ::-1] - mask
    return (mask > 0) & (cumsum(xp, xp.ones_like(mask), axis=1) > 1) & (num_following > 0)


def padded_sizes(inputs: dict, model, xp=np) -> dict:
    """Returns the number of rows to pad each input to, and the `length` of rows of tokens.

    Graphs have dynamic shapes. Otherwise there are only a few sizes: 1, 2, 3, 4, 5, 6, 7,
    8, 10, 12, 14, 16, 20, 24, ..., at most a quarter more than needed. The number of
    tokens is then rounded up to whole blocks of the widest span, which the attention of
    spans uses. There are at least as many spans as antecedents, because that many are
    always chosen.
    """
    sizes, longest = {}, np.int32(1)
    columns = np.arange(1, inputs["token_ids"].shape[1] + 1, dtype=np.int32)
    for name, array in inputs.items():
        if name.endswith("padding_mask"):
            last = append_end(xp, xp.reshape(array * columns, (-1,)), longest)
            longest = xp.max(last)
        if name != "genre":
            sizes[name] = _num_rows(xp, array)
    sizes["length"] = longest
    if xp is np:
        sizes = {name: round_up(int(number)) for name, number in sizes.items()}
    for name in sizes.keys() & _OF_TOKENS:
        sizes[name] = -(-sizes[name] // model.max_span_width) * model.max_span_width
    num_top = num_top_spans(sizes["token_places"], model.top_span_ratio, xp)
    num_top = xp.maximum(num_top, np.int32(model.max_top_antecedents))
    if xp is np and _num_rows(xp, inputs["top_span_mask"]) > num_top:
        num_top = sizes["top_span_mask"]  # Given mentions can be more than a model keeps.
    sizes["top_span_mask"] = num_top
    sizes["length"] = xp.minimum(sizes["length"], np.int32(len(columns)))
    return sizes


def largest(sizes: Iterable[dict]) -> dict:
    """Returns the maximum of each size."""
    return keras.tree.map_structure(lambda *numbers: max(numbers), *sizes)


def _num_rows(xp, array):
    return size(xp, array[:, 0] if len(array.shape) == 2 else array)


def pad(inputs: dict, sizes: dict, xp=np) -> dict:
    """Returns the padded inputs of one document as a batch of one."""
    # Rows of padding have a mask of 1, because a softmax over nothing would be undefined.
    values = {"ends": -1, "padding_mask": 1, "overlap_padding_mask": 1}
    longest, length = inputs["token_ids"].shape[1], sizes["length"]
    padded = {}
    for name, array in inputs.items():
        if len(array.shape) == 2:
            array = array[:, :length]  # After the longest segment there is only padding.
        elif name.endswith("_places"):
            array = array // longest * length + array % longest
        if name != "genre":
            missing = sizes[name] - _num_rows(xp, array)
            widths = [(0, missing), (0, 0)][: len(array.shape)]
            array = xp.pad(array, widths, "constant", constant_values=values.get(name, 0))
        padded[name] = array[None]
    return padded


class Documents:
    """The arrays of documents, all padded to the same shape, for `Batches`.

    A document with more than `max_segments` is cut to a run of that many. The seed,
    the epoch and the document determine the run.

    Args:
        model: `SpanBertCoreferenceResolver`.
        documents: list of dicts, see the preprocessor's `segment`.
        max_segments: int. Maximum number of segments of a document, or `None` for
            whole documents.
        seed: int.
    """

    def __init__(self, model, documents: list[dict], max_segments: int | None, seed: int):
        model.check_preprocessor()
        if not documents:
            raise ValueError("There must be at least one document. Received: none")
        self.model = model
        self.tensors = [model.preprocessor.tensors(document) for document in documents]
        self.has_labels = all("clusters" in document for document in documents)
        self.max_segments = max_segments
        self.seed = seed
        # Large enough for any run of segments.
        self.sizes = largest(
            padded_sizes(self._inputs(self._run(document, first)), model)
            for document in self.tensors
            for first in range(self._num_runs(document))
        )

    def __len__(self):
        return len(self.tensors)

    def batch(self, numbers: Iterable[int], epoch: int) -> tuple:
        """Returns inputs, and labels if known, of documents in an epoch."""
        rows = [self.document(int(number), epoch) for number in numbers]
        batch = keras.tree.map_structure(lambda *arrays: np.concatenate(arrays), *rows)
        return batch if self.has_labels else batch[:1]

    def document(self, number: int, epoch: int) -> tuple[dict, dict]:
        """Returns inputs and labels of a document in an epoch, as a batch of one."""
        padded = pad(self._inputs(self.cut(number, epoch)), self.sizes)
        return padded, {"cluster_ids": padded.pop("cluster_ids")}

    def cut(self, number: int, epoch: int) -> dict:
        """Returns the arrays of the run of segments that is used of a document in an epoch."""
        tensors = self.tensors[number]
        generator = np.random.default_rng([self.seed, epoch, number])
        return self._run(tensors, int(generator.integers(self._num_runs(tensors))))

    def _inputs(self, tensors):
        inputs = document_inputs(tensors, self.model)
        return {**inputs, "cluster_ids": gold_clusters(tensors, inputs)}

    def _num_runs(self, tensors):
        num_segments = len(tensors["input_ids"])
        return max(num_segments - (self.max_segments or num_segments), 0) + 1

    def _run(self, tensors, first):
        if self._num_runs(tensors) == 1:
            return tensors
        return truncate(tensors, first, self.max_segments)
