"""Corpora tokenised and cut into blocks once, then read at disk speed.

A prepared corpus is a folder of ArrayRecord shards, whose blocks are read in
any order, and `prepared.json`, which says what they are, with SHA-256 sums.
"""

import concurrent.futures
import copy
import functools
import logging
import os
import threading
from collections.abc import Iterator

import numpy as np

from keras_spanbert import stores
from keras_spanbert.data.array_stream import Part, RowStream, check_batch_size
from keras_spanbert.data.blocks import without_marks
from keras_spanbert.data.marked_text import SPAN_KINDS
from keras_spanbert.data.masked_batches import (
    EVALUATION_SEED,
    check_corpus,
    evaluation_batches,
    masked,
    needs_whole_batches,
)
from keras_spanbert.data.prepared.shards import SPLITS, SUFFIX, array_record, dtype
from keras_spanbert.files import read_json, sha256
from keras_spanbert.models.tokenizer import SpanBertTokenizer
from keras_spanbert.optional import import_tensorflow

# Without linguistic spans, and with them, which the first version would take for ids.
VERSIONS = (1, 2)
MANIFEST = "prepared.json"
_READER_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"
# Rows are read in this many at once: a call costs much beside a row.
_READ_ROWS = 4096


class PreparedCorpus:
    """A folder that `prepare` wrote.

    Its sums are checked when it is opened.

    Args:
        path: string. The folder; of one of a store (`s3://...`) a copy is kept:
            see `keras_spanbert.stores.local_copy`.
        damaged_shards: `"refuse"`, or `"skip"` to go on without them, with a
            warning that names them. Defaults to `"refuse"`.

    Attributes:
        sequence_length: int, of its blocks.
        min_tokens: int, see `Corpus.blocks`.
        vocabulary: list of tokens.
        lowercase: bool.
        cross_documents: bool, see `Corpus`.
        files: list of strings, paths of its shards.
        evaluation_texts: strings, those of the blocks that `evaluation_dataset`
            or `survey` drew from.
        lacks_spans: dict of each kind of linguistic spans to the folder, in a
            list, where it lacks them.

    Raises:
        ValueError: where there is none, it is of another version, or a shard is
            missing or damaged.

    Example:
    ```python
    corpus = PreparedCorpus("prepared")
    preprocessor = keras_spanbert.SpanBertPretrainerPreprocessor(
        corpus.tokenizer(), corpus.sequence_length
    )
    model.fit(corpus.training_dataset(preprocessor, 32, seed=1), steps_per_epoch=1000)
    ```
    """

    def __init__(self, path: str, damaged_shards: str = "refuse"):
        if damaged_shards not in ("refuse", "skip"):
            raise ValueError(
                "`damaged_shards` must be 'refuse' or 'skip'. "
                f"Received: damaged_shards={damaged_shards!r}"
            )
        self._read_manifest(path)
        self._check_shards(damaged_shards)

    @classmethod
    def just_written(cls, path: str) -> "PreparedCorpus":
        """Opens a folder as it was written: its shards are not read again, nor copied."""
        corpus = cls.__new__(cls)
        corpus._read_manifest(path)
        return corpus

    def _read_manifest(self, path):
        self.path = path
        manifest = _read_manifest(stores.join(path, MANIFEST))
        self.sequence_length = manifest["sequence_length"]
        self.min_tokens = manifest["min_tokens"]
        self.vocabulary = manifest["vocabulary"]
        self.lowercase = manifest["lowercase"]
        # Folders from before it was written there do not tell.
        self.cross_documents = manifest.get("cross_documents", False)
        self._counts = np.array(manifest["counts"])
        self._shards = manifest["shards"]
        self._readers = {}
        self.evaluation_texts = ()
        kinds = manifest.get("span_kinds", [])
        self.lacks_spans = {kind: [] if kind in kinds else [path] for kind in SPAN_KINDS}
        self._dtype = dtype(len(self.vocabulary), bool(kinds))

    @property
    def files(self) -> list[str]:
        return [self._path(shard) for shard in self._shards_of("all")]

    @functools.cached_property
    def _local(self):
        """The local folder of the shards."""
        # The copy stays the same where other files come into the folder, as `run.json`.
        return stores.local_copy(self.path, lambda name: name.endswith(SUFFIX))

    def tokenizer(self) -> SpanBertTokenizer:
        """Its `SpanBertTokenizer`."""
        return SpanBertTokenizer(self.vocabulary, lowercase=self.lowercase)

    def num_blocks(self, split: str = "train") -> int:
        """Number of blocks of a split: `"train"`, `"held_out"` or `"all"`."""
        return sum(shard["num_blocks"] for shard in self._shards_of(split))

    @property
    def holds_out(self) -> bool:
        """Whether it has held-out blocks."""
        return self.num_blocks("held_out") > 0

    def token_counts(
        self, tokenizer=None, sequence_length: int | None = None, min_tokens: int | None = None
    ) -> tuple[np.ndarray, int]:
        """As of `Corpus`, counted by `prepare` with its arguments; skipped shards are in it."""
        return self._counts, self.num_blocks()

    def read(self, rows, split="train", with_marks: bool = False) -> np.ndarray:
        """Blocks by their numbers.

        Args:
            rows: int array `[N]`, in any order.
            split: see `num_blocks`.
            with_marks: see `Corpus.blocks`.

        Returns:
            int32 `[N, sequence_length]`.
        """
        shards = self._shards_of(split)
        stops = np.cumsum([shard["num_blocks"] for shard in shards])
        of_shard = np.searchsorted(stops, rows, side="right")
        blocks = np.empty((len(rows), self.sequence_length), np.int32)
        for i in np.unique(of_shard):
            places = np.flatnonzero(of_shard == i)
            local = rows[places] - (stops[i - 1] if i else 0)
            records = self._reader(shards[i]).read(local.tolist())
            blocks[places] = np.frombuffer(b"".join(records), self._dtype).reshape(len(places), -1)
        return blocks if with_marks else without_marks(blocks)

    def check(self, tokenizer, sequence_length: int) -> None:
        """Raises where it was made for another model.

        Raises:
            ValueError: which says what differs.
        """
        if sequence_length != self.sequence_length:
            raise ValueError(
                f"A prepared corpus must be of the model's sequence length {sequence_length}; "
                f"prepare it again with that. Received: {self.path}, of {self.sequence_length}"
            )
        if tokenizer.lowercase != self.lowercase:
            raise ValueError(
                f"A prepared corpus must be of the model's tokenizer, lowercase="
                f"{tokenizer.lowercase}. Received: {self.path}, lowercase={self.lowercase}"
            )
        theirs = tokenizer.get_vocabulary()
        for i in range(max(len(theirs), len(self.vocabulary))):
            mine, other = ([*v[i : i + 1], None][0] for v in (self.vocabulary, theirs))
            if mine != other:
                raise ValueError(
                    f"A prepared corpus must be of the model's vocabulary, whose token {i} is "
                    f"{other!r}. Received: {self.path}, where it is {mine!r}"
                )

    def stream(
        self,
        preprocessor,
        batch_size: int,
        seed,
        min_tokens: int | None = None,
        shuffle_blocks: int | None = None,
        unigram_counts=None,
    ) -> "PreparedStream":
        """A `PreparedStream` of its training blocks.

        As `Corpus.stream`; `min_tokens` and the shuffling were settled by `prepare`.
        """
        return PreparedStream(self, preprocessor, batch_size, seed, unigram_counts)

    def training_dataset(self, preprocessor, batch_size: int, seed):
        """Masked batches without end, fixed by `seed`."""
        return self.stream(preprocessor, batch_size, seed).dataset()

    def evaluation_dataset(
        self,
        preprocessor,
        batch_size: int,
        split: str = "held_out",
        steps: int | None = None,
        min_tokens: int | None = None,
    ):
        """See `Corpus.evaluation_dataset`; `min_tokens` is that of `prepare`."""
        self.check(preprocessor.tokenizer, preprocessor.sequence_length)
        check_corpus(self, preprocessor)
        self.evaluation_texts = (text for text, _ in self.documents(split))

        def blocks():
            order = np.random.default_rng(EVALUATION_SEED).permutation(self.num_blocks(split))
            for start in range(0, len(order), _READ_ROWS):
                yield self.read(order[start : start + _READ_ROWS], split, with_marks=True)

        return evaluation_batches(blocks, preprocessor, batch_size, steps)

    def survey(
        self, preprocessor, batch_size: int, steps: int | None = None, min_tokens: int | None = None
    ):
        """See `Corpus.survey`."""
        check_batch_size(batch_size, self.num_blocks())
        dataset = self.evaluation_dataset(preprocessor, batch_size, "held_out", steps)
        return *self.token_counts(), dataset

    def documents(self, split: str = "train") -> Iterator[tuple[str, bool]]:
        """Yields `(text of a block, True)`."""
        tokenizer = self.tokenizer()
        for row in range(self.num_blocks(split)):
            block = self.read(np.array([row]), split)[0]
            is_text = ~np.isin(block, tokenizer.special_token_ids)
            yield tokenizer.detokenize(block[is_text]), True

    def _shards_of(self, split):
        if split not in (*SPLITS, "all"):
            raise ValueError(
                f"`split` must be one of {', '.join(SPLITS)}, all. Received: split={split!r}"
            )
        return [shard for name in SPLITS if split in (name, "all") for shard in self._shards[name]]

    def _path(self, shard):
        return stores.join(self.path, shard["name"])

    def _reader(self, shard):
        name = shard["name"]
        # A reader is of one thread.
        key = (name, threading.get_ident())
        if key not in self._readers:
            self._readers[key] = array_record().ArrayRecordReader(
                os.path.join(self._local, name), _READER_OPTIONS
            )
        return self._readers[key]

    def _check_shards(self, damaged_shards):
        shards = [(split, shard) for split in SPLITS for shard in self._shards[split]]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            faults = list(pool.map(lambda item: self._fault(item[1]), shards))
        for (split, shard), fault in zip(shards, faults):
            if fault is None:
                continue
            if damaged_shards == "refuse":
                raise ValueError(
                    "Shards must be as they were written. Received: "
                    f"{self._path(shard)}, {fault}; damaged_shards='skip' goes on without it"
                )
            logging.getLogger("keras_spanbert").warning(
                "Shard %s is %s: going on without its %d blocks",
                self._path(shard),
                fault,
                shard["num_blocks"],
            )
            self._shards[split].remove(shard)

    def _fault(self, shard):
        path = os.path.join(self._local, shard["name"])
        try:
            size = os.path.getsize(path)
        except OSError:
            return "missing"
        if size != shard["bytes"]:
            return f"of {size} bytes instead of {shard['bytes']}"
        return None if sha256(path) == shard["sha256"] else "not of its SHA-256 sum"


class PreparedStream(RowStream):
    """Masked batches of a prepared corpus in an order drawn anew in each epoch.

    Each epoch is a permutation of all blocks; see `RowStream`.

    Args:
        corpus: `PreparedCorpus`.
        preprocessor: `SpanBertPretrainerPreprocessor` of its tokenizer and
            sequence length.
        batch_size: int.
        seed: int.
        unigram_counts: see `TrainingStream`.
    """

    def __init__(self, corpus, preprocessor, batch_size: int, seed, unigram_counts=None):
        corpus.check(preprocessor.tokenizer, preprocessor.sequence_length)
        check_corpus(corpus, preprocessor)
        super().__init__(corpus.num_blocks(), batch_size, seed)
        self.corpus = corpus
        self.preprocessor = preprocessor
        self.unigram_counts = unigram_counts

    def dataset(self, part: int = 0, num_parts: int = 1):
        """`tf.data.Dataset` of `(x, y, sample_weight)`, or of a process's rows of each.

        With `unigram_counts` it reads and masks these alone, but for pairs of
        sentences, which are made of whole batches.

        Args:
            part, num_parts: see `Part`. Default to all rows.
        """
        tf = import_tensorflow("A corpus")

        own = Part(self.batch_size, part, num_parts)
        is_whole = needs_whole_batches(self.preprocessor, self.unigram_counts)
        read = Part(self.batch_size) if is_whole else own
        blocks = tf.data.Dataset.from_generator(
            lambda: self._blocks(self.first_step, read),
            output_signature=tf.TensorSpec(
                [None, read.size, self.corpus.sequence_length], tf.int32
            ),
        )
        batches = blocks.prefetch(1).unbatch()
        are_full = self.corpus.min_tokens >= self.corpus.sequence_length - 2
        batches = masked(
            batches,
            self.preprocessor,
            self.seed,
            self.first_step,
            are_full,
            may_have_marks=True,
            unigram_counts=self.unigram_counts,
            part=own,
        )
        return batches.prefetch(tf.data.AUTOTUNE)

    def batch(self, step: int):
        """The batch `step`."""
        stream = copy.copy(self)
        stream.start_at(step)
        return next(iter(stream.dataset()))

    def _blocks(self, step, part):
        """Arrays `[batches, rows of the part, L]`."""
        waiting = []
        batches = 1  # The first one soon.
        for rows in self._rows(step):
            waiting.append(rows[part.rows])
            if len(waiting) == batches:
                blocks = self.corpus.read(np.concatenate(waiting), with_marks=True)
                yield blocks.reshape(len(waiting), part.size, -1)
                waiting = []
                batches = max(1, _READ_ROWS // part.size)


def is_prepared(path: str) -> bool:
    """Whether a path is a prepared corpus."""
    return stores.is_file(stores.join(path, MANIFEST))


def _read_manifest(path):
    try:
        manifest = read_json(path)
    except FileNotFoundError:
        raise ValueError(
            f"A prepared corpus must have its manifest. Received: {path}, missing"
        ) from None
    version = manifest.get("version")
    if version not in VERSIONS:
        raise ValueError(
            f"A prepared corpus must be of version {VERSIONS[0]} or {VERSIONS[1]}. Received: "
            f"{path}, of version "
            f"{version}"
        )
    for shard in [shard for split in SPLITS for shard in manifest["shards"][split]]:
        if os.path.basename(shard["name"]) != shard["name"]:
            raise ValueError(
                f"Shards must lie in their folder. Received: {path}, with {shard['name']}"
            )
    return manifest
