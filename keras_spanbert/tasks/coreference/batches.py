"""The arrays of documents as inputs of the model, padded to few shapes.

S = segments, L = tokens of a segment, T = tokens of a document, N = candidate
spans, K = spans that are kept.
"""

import collections
from collections.abc import Iterable

import keras
import numpy as np

from keras_spanbert.data.array_stream import Part, RowStream, epoch_order
from keras_spanbert.models.length_batches import round_up
from keras_spanbert.optional import import_tensorflow
from keras_spanbert.tasks.coreference.spans import candidate_spans, num_top_spans
from keras_spanbert.tasks.coreference.tensors import truncate

# What decides the shapes of all inputs.
Sizes = collections.namedtuple("Sizes", ["segments", "length", "tokens", "spans"])
# Of the resolver's arguments, those that inputs depend on.
Settings = collections.namedtuple(
    "Settings", ["max_span_width", "top_span_ratio", "max_top_antecedents"]
)


def document_inputs(tensors: dict, settings: Settings) -> tuple[dict, np.ndarray]:
    """A document's inputs without padding, and the labels of its candidates.

    Args:
        tensors: dict of `tensorize`.
        settings: `Settings`.

    Returns:
        `(inputs, labels)`. Inputs are a dict of int32 arrays: `token_ids`,
        `padding_mask` `[S, L]`, `token_places`, `speaker_ids`, `segment_index`
        `[T]`, `starts`, `ends` `[N]`, `top_span_mask` `[K]` and `genre` `[]`;
        with overlap also `overlap_token_ids`, `overlap_padding_mask`
        `[S + 1, L]` and `overlap_places` `[T]`. Labels are int32 `[N]`, the
        gold cluster of a candidate, 0 for none.
    """
    mask = tensors["input_mask"]
    is_overlap = "overlap_ids" in tensors
    is_token = _without_separators(mask) if is_overlap else mask > 0
    places = np.flatnonzero(is_token)
    starts, ends = candidate_spans(tensors["sentence_map"], settings.max_span_width)
    inputs = {
        "token_ids": tensors["input_ids"],
        "padding_mask": mask,
        "token_places": places,
        "speaker_ids": tensors["speaker_ids"].reshape(-1)[places],
        "segment_index": places // mask.shape[1],
        "starts": starts,
        "ends": ends,
        "top_span_mask": np.ones(num_top_spans(len(places), settings.top_span_ratio)),
        "genre": tensors["genre"],
    }
    if is_overlap:
        inputs["overlap_token_ids"] = tensors["overlap_ids"]
        inputs["overlap_padding_mask"] = tensors["overlap_mask"]
        is_token = _without_separators(tensors["overlap_mask"])
        inputs["overlap_places"] = np.flatnonzero(is_token)
    inputs = {name: np.asarray(array, np.int32) for name, array in inputs.items()}
    return inputs, _labels(tensors, starts, ends, len(places))


def _labels(tensors, starts, ends, num_tokens):
    """The gold cluster of each candidate, 0 for none."""
    gold = [tensors[name].astype(np.int64) for name in ["gold_starts", "gold_ends"]]
    is_inside = (gold[0] >= 0) & (gold[1] < num_tokens)
    wanted = gold[0][is_inside] * num_tokens + gold[1][is_inside]
    # In order, since candidates are.
    keys = starts.astype(np.int64) * num_tokens + ends
    labels = np.zeros(len(keys), np.int32)
    if len(keys):
        found = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        is_candidate = keys[found] == wanted
        labels[found[is_candidate]] = tensors["cluster_ids"][is_inside][is_candidate]
    return labels


def _without_separators(mask):
    """Where rows have tokens between the first and the last one, which separate."""
    is_token = mask > 0
    last = mask.shape[1] - 1 - np.argmax(is_token[:, ::-1], axis=1)
    is_token[:, 0] = False
    is_token[np.arange(len(mask)), last] = False
    return is_token


def sizes_of(inputs: dict, settings: Settings) -> Sizes:
    """The sizes that a document is padded to, of which there are few.

    They are 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, ...: a quarter more than
    needed at most.
    """
    masks = [inputs["padding_mask"], inputs.get("overlap_padding_mask", inputs["padding_mask"])]
    longest = max(int(np.max(np.nonzero(mask)[1], initial=0)) + 1 for mask in masks)
    return Sizes(
        segments=round_up(len(inputs["token_ids"])),
        length=min(round_up(longest), inputs["token_ids"].shape[1]),
        tokens=_whole_blocks(round_up(len(inputs["token_places"])), settings),
        spans=round_up(len(inputs["starts"])),
    )


def _whole_blocks(num_tokens, settings):
    """The attention of spans goes by blocks of the widest span."""
    width = settings.max_span_width
    return max(-(-num_tokens // width), 1) * width


def pad(inputs: dict, labels: np.ndarray, sizes: Sizes, settings: Settings) -> tuple[dict, dict]:
    """Inputs and labels of one document with padding, as a batch of one."""
    tops = num_top_spans(sizes.tokens, settings.top_span_ratio)
    lengths = {
        "token_ids": (sizes.segments, sizes.length),
        "padding_mask": (sizes.segments, sizes.length),
        "overlap_token_ids": (sizes.segments + 1, sizes.length),
        "overlap_padding_mask": (sizes.segments + 1, sizes.length),
        "starts": (sizes.spans,),
        "ends": (sizes.spans,),
        # No fewer than antecedents: that many are chosen in any case.
        "top_span_mask": (max(tops, settings.max_top_antecedents, 1),),
        "genre": (),
    }
    longest = inputs["token_ids"].shape[1]
    padded = {}
    for name, array in inputs.items():
        shape = lengths.get(name, (sizes.tokens,))
        whole = np.full(shape, -1 if name == "ends" else 0, np.int32)
        if array.ndim == 2:
            array = array[:, : sizes.length]  # Beyond the longest segment there is padding alone.
        elif name.endswith("_places"):
            array = array // longest * sizes.length + array % longest
        whole[tuple(slice(0, n) for n in array.shape)] = array
        if name.endswith("padding_mask"):
            whole[:, 0] = 1  # A softmax over nothing would be undefined.
        padded[name] = whole[None]
    cluster_ids = np.zeros((1, sizes.spans), np.int32)
    cluster_ids[0, : len(labels)] = labels
    return padded, {"cluster_ids": cluster_ids}


class DocumentBatches(keras.utils.PyDataset):
    """Documents as batches for `fit` and `evaluate`, all of one shape.

    A document with more than `max_segments` is cut to a run of that many, drawn
    anew in each epoch, from the seed, the epoch and the document alone.

    Args:
        tensors: list of dicts of `tensorize`.
        settings: `Settings`.
        batch_size: int. Documents at once. Defaults to `1`.
        max_segments: int. Defaults to `None`: whole documents.
        has_labels: bool. Whether the documents' clusters are known. Defaults to
            `True`.
        shuffle: bool. Whether documents come in an order drawn anew in each
            epoch. Defaults to `False`.
        seed: int. Defaults to `0`.
        **kwargs: see `keras.utils.PyDataset`.
    """

    def __init__(
        self,
        tensors: list[dict],
        settings: Settings,
        batch_size: int = 1,
        max_segments: int | None = None,
        has_labels: bool = True,
        shuffle: bool = False,
        seed: int = 0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if not tensors:
            raise ValueError("There must be a document or more. Received: none")
        self.tensors = tensors
        self.settings = settings
        self.batch_size = batch_size
        self.max_segments = max_segments
        self.has_labels = has_labels
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        sizes = [self._largest(document) for document in tensors]
        self.sizes = Sizes(*(max(values) for values in zip(*sizes)))

    def __len__(self):
        return -(-len(self.tensors) // self.batch_size)

    def __getitem__(self, index):
        order = epoch_order(len(self.tensors), self.seed, self.epoch) if self.shuffle else None
        numbers = range(len(self.tensors)) if order is None else order.tolist()
        chosen = numbers[index * self.batch_size : (index + 1) * self.batch_size]
        return self.batch([(number, self.epoch) for number in chosen])

    def on_epoch_end(self):
        self.epoch += 1

    def batch(self, chosen: Iterable[tuple[int, int]]) -> tuple:
        """Inputs, and labels where there are, of documents by number, each in an epoch."""
        rows = [self.document(number, epoch) for number, epoch in chosen]
        inputs = {name: np.concatenate([x[name] for x, _ in rows]) for name in rows[0][0]}
        if not self.has_labels:
            return (inputs,)
        return inputs, {"cluster_ids": np.concatenate([y["cluster_ids"] for _, y in rows])}

    def document(self, number: int, epoch: int) -> tuple[dict, dict]:
        """Inputs and labels of a document in an epoch, as a batch of one."""
        inputs, labels = document_inputs(self.cut(number, epoch), self.settings)
        return pad(inputs, labels, self.sizes, self.settings)

    def cut(self, number: int, epoch: int) -> dict:
        """The arrays of the run of segments that a document is in an epoch."""
        tensors = self.tensors[number]
        beyond = self._num_beyond(tensors)
        if not beyond:
            return tensors
        generator = np.random.default_rng([self.seed, epoch, number])
        return truncate(tensors, int(generator.integers(beyond + 1)), self.max_segments)

    def _num_beyond(self, tensors):
        """How many segments are cut off."""
        if self.max_segments is None:
            return 0
        return max(len(tensors["input_ids"]) - self.max_segments, 0)

    def _largest(self, tensors):
        """Sizes that hold whatever run of segments is drawn."""
        runs = range(self._num_beyond(tensors) + 1)
        cuts = [
            truncate(tensors, run, self.max_segments) if len(runs) > 1 else tensors for run in runs
        ]
        sizes = [sizes_of(document_inputs(cut, self.settings)[0], self.settings) for cut in cuts]
        return [max(values) for values in zip(*sizes)]


class DocumentStream(RowStream):
    """Shuffled batches of documents without end, from any step on: see `RowStream`.

    Args:
        documents: `DocumentBatches`, whose batch size and seed it takes.
    """

    def __init__(self, documents: DocumentBatches):
        super().__init__(len(documents.tensors), documents.batch_size, documents.seed)
        self.documents = documents

    def num_tokens(self) -> tuple[int, int]:
        """See `RowStream`; of the segments that documents are cut to in the first epoch."""
        cuts = (self.documents.cut(number, 0) for number in range(self.num_rows))
        sizes = self.documents.sizes
        return (
            sum(int(np.count_nonzero(cut["input_mask"])) for cut in cuts),
            self.num_rows * sizes.segments * sizes.length,
        )

    def dataset(self, part: int = 0, num_parts: int = 1):
        """See `ArrayStream.dataset`."""
        tf = import_tensorflow("A stream")

        own = Part(self.batch_size, part, num_parts)

        def batches():
            place = self.first_step * self.batch_size
            for rows in self._rows(self.first_step):
                epochs = [(place + i) // self.num_rows for i in range(self.batch_size)]
                yield self.documents.batch(list(zip(rows.tolist(), epochs))[own.rows])
                place += self.batch_size

        example = self.documents.batch([(0, 0)] * own.size)
        signature = tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, tf.int32), example)
        return tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(
            tf.data.AUTOTUNE
        )
