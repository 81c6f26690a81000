"""Reads prepared corpora: folders of shards, which `prepared.json` describes."""

import concurrent.futures
import functools
import itertools
import logging
import os
import threading
from collections.abc import Iterator

import numpy as np
from array_record.python import array_record_module

from keras_spanbert import cache, stores
from keras_spanbert.checks import check_in, check_path
from keras_spanbert.data.annotated_text import SPAN_KINDS
from keras_spanbert.data.blocks import remove_span_marks
from keras_spanbert.data.prepared.shards import SPLITS, SUFFIX, dtype
from keras_spanbert.data.training_stream import BlockDatasets, check_corpus
from keras_spanbert.files import read_json, sha256
from keras_spanbert.models.tokenizer import SpanBertTokenizer

# Version 2 has linguistic spans, which readers of version 1 would mistake for ids.
VERSIONS = (1, 2)
MANIFEST = "prepared.json"
_READER_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"


class PreparedCorpus(BlockDatasets):
    """A corpus in a folder that `prepare` wrote.

    The constructor checks the SHA-256 sums of the shards.

    Args:
        path: string. The folder. A folder in a store (`s3://...`) is copied:
            see `keras_spanbert.cache.local_copy`.
        damaged_shards: string. What to do if shards are missing or damaged:
            `"refuse"` raises an error, and `"skip"` continues without them and logs
            a warning that names them. Defaults to `"refuse"`.

    Attributes:
        sequence_length: int. Length of the blocks.
        min_tokens: int, see `Corpus.blocks`.
        vocabulary: list of tokens.
        lowercase: bool.
        added_tokens: dict, see `SpanBertTokenizer`. `None` if an old version wrote the
            folder, which did not record them.
        cross_documents: bool, see `Corpus`.
        files: list of strings, paths of the shards.
        checksums: dict from each file to its SHA-256 sum.
        lacks_spans: dict from each kind of linguistic span to a list: empty if the
            corpus has spans of this kind, else with the folder.

    Raises:
        ValueError: if the folder has no prepared corpus or one of another version,
            or a shard is missing or damaged.

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
        is_known = damaged_shards in ("refuse", "skip")
        check_in("damaged_shards", damaged_shards, is_known, "'refuse' or 'skip'")
        self._read_manifest(path)
        self._check_shards(damaged_shards)

    @classmethod
    def just_written(cls, path: str) -> "PreparedCorpus":
        """Opens a folder that was just written, without checking or copying its shards."""
        corpus = cls.__new__(cls)
        corpus._read_manifest(path)
        return corpus

    def _read_manifest(self, path):
        self.path = path = check_path("path", path)
        manifest = _read_manifest(stores.join(path, MANIFEST))
        self.sequence_length = manifest["sequence_length"]
        self.min_tokens = manifest["min_tokens"]
        self.vocabulary = manifest["vocabulary"]
        self.lowercase = manifest["lowercase"]
        # Folders written by old versions lack these values.
        self.added_tokens = manifest.get("added_tokens")
        self.cross_documents = manifest.get("cross_documents", False)
        self._counts = np.array(manifest["counts"])
        self._shards = manifest["shards"]
        self._readers = {}
        kinds = manifest.get("span_kinds", [])
        self.lacks_spans = {kind: [] if kind in kinds else [path] for kind in SPAN_KINDS}
        self._dtype = dtype(len(self.vocabulary), bool(kinds))

    @property
    def files(self) -> list[str]:
        return list(self.checksums)

    @property
    def checksums(self) -> dict[str, str]:
        return {self._path(shard): shard["sha256"] for shard in self._matching_shards("all")}

    @functools.cached_property
    def _local(self):
        """The local folder of the shards, a copy if the corpus is in a store."""
        # Only shards are copied. If other files change, such as `run.json`, the copy stays valid.
        return cache.local_copy(self.path, lambda name: name.endswith(SUFFIX))

    def tokenizer(self) -> SpanBertTokenizer:
        """Returns the tokenizer that the corpus was prepared with."""
        return SpanBertTokenizer(
            self.vocabulary, lowercase=self.lowercase, added_tokens=self.added_tokens
        )

    def num_blocks(self, split: str = "train") -> int:
        """Returns the number of blocks of a split: `"train"`, `"held_out"` or `"all"`."""
        return sum(shard["num_blocks"] for shard in self._matching_shards(split))

    @property
    def holds_out(self) -> bool:
        """Whether the corpus has held-out blocks."""
        return self.num_blocks("held_out") > 0

    def token_counts(self) -> tuple[np.ndarray, int]:
        """Returns the counts of tokens, int64 `[V]`, and the number of training blocks.

        The counts are those of the training blocks, 0 for special tokens. They include
        shards that were skipped.
        """
        return self._counts, self.num_blocks()

    def read(self, rows, split="train", with_marks: bool = False) -> np.ndarray:
        """Reads blocks by number.

        Args:
            rows: int array `[N]`. Numbers of blocks, in any order.
            split: see `num_blocks`.
            with_marks: see `Corpus.blocks`.

        Returns:
            int32 `[N, sequence_length]`.
        """
        shards = self._matching_shards(split)
        stops = np.cumsum([shard["num_blocks"] for shard in shards])
        of_shard = np.searchsorted(stops, rows, side="right")
        blocks = np.empty((len(rows), self.sequence_length), np.int32)
        for i in np.unique(of_shard):
            places = np.flatnonzero(of_shard == i)
            local = rows[places] - (stops[i - 1] if i else 0)
            records = self._reader(shards[i]).read(local.tolist())
            blocks[places] = np.frombuffer(b"".join(records), self._dtype).reshape(len(places), -1)
        return blocks if with_marks else remove_span_marks(blocks)

    def prepared(self, preprocessor, min_tokens=None, progress=None) -> "PreparedCorpus":
        """Returns this corpus, after checking that it fits the preprocessor.

        Raises:
            ValueError: if the corpus was prepared with another tokenizer or length, or
                does not fit the preprocessor: see `Corpus.prepared`.
        """
        check_corpus(self, preprocessor)
        tokenizer, sequence_length = preprocessor.tokenizer, preprocessor.sequence_length
        if sequence_length != self.sequence_length:
            raise ValueError(
                f"A prepared corpus must have the model's sequence length, {sequence_length}. "
                f"Prepare it again. Received: {self.path}, with {self.sequence_length}"
            )
        for name in ["lowercase", "added_tokens"]:
            mine, other = getattr(self, name), getattr(tokenizer, name)
            if mine not in (None, other):
                raise ValueError(
                    f"A prepared corpus must have the model's tokenizer, {name}={other}. Received: "
                    f"{self.path}, {name}={mine}"
                )
        tokens = itertools.zip_longest(self.vocabulary, tokenizer.get_vocabulary())
        for i, (mine, other) in enumerate(tokens):
            if mine != other:
                raise ValueError(
                    f"A prepared corpus must have the model's vocabulary, whose token {i} is "
                    f"{other!r}. Received: {self.path}, where it is {mine!r}"
                )
        return self

    def documents(self, split: str = "train") -> Iterator[tuple[str, bool]]:
        """Yields `(text, True)` for each block, like `Corpus.documents`."""
        tokenizer = self.tokenizer()
        for row in range(self.num_blocks(split)):
            block = self.read(np.array([row]), split)[0]
            is_text = ~np.isin(block, tokenizer.special_token_ids)
            yield tokenizer.detokenize(block[is_text]), True

    def _matching_shards(self, split):
        check_in("split", split, split in (*SPLITS, "all"), f"one of {', '.join(SPLITS)}, all")
        return [shard for name in SPLITS if split in (name, "all") for shard in self._shards[name]]

    def _path(self, shard):
        return stores.join(self.path, shard["name"])

    def _reader(self, shard):
        name = shard["name"]
        # A reader can be used by only one thread.
        key = (name, threading.get_ident())
        if key not in self._readers:
            self._readers[key] = array_record_module.ArrayRecordReader(
                os.path.join(self._local, name), _READER_OPTIONS
            )
        return self._readers[key]

    def _check_shards(self, damaged_shards):
        shards = [(split, shard) for split in SPLITS for shard in self._shards[split]]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            faults = list(pool.map(self._find_fault, [shard for _, shard in shards]))
        for (split, shard), fault in zip(shards, faults):
            if fault is None:
                continue
            if damaged_shards == "refuse":
                raise ValueError(
                    "Shards must be complete and unchanged. Received: "
                    f"{self._path(shard)}, {fault}. damaged_shards='skip' continues without it"
                )
            logging.getLogger("keras_spanbert").warning(
                "Shard %s cannot be used (%s): continuing without its %d blocks",
                self._path(shard),
                fault,
                shard["num_blocks"],
            )
            self._shards[split].remove(shard)

    def _find_fault(self, shard):
        path = os.path.join(self._local, shard["name"])
        try:
            size = os.path.getsize(path)
        except OSError:
            return "missing"
        if size != shard["bytes"]:
            return f"with {size} bytes instead of {shard['bytes']}"
        return None if sha256(path) == shard["sha256"] else "with another SHA-256 sum"


def is_prepared(path: str) -> bool:
    """Returns whether a path is a prepared corpus."""
    return stores.kind(stores.join(check_path("path", path), MANIFEST)) == "file"


def _read_manifest(path):
    try:
        manifest = read_json(path)
    except FileNotFoundError:
        raise ValueError(
            f"A prepared corpus must have a manifest. Received: {path}, which does not exist"
        ) from None
    version = manifest.get("version")
    if version not in VERSIONS:
        raise ValueError(
            f"A prepared corpus must have version {VERSIONS[0]} or {VERSIONS[1]}. Received: "
            f"{path}, with version {version}"
        )
    for shard in [shard for split in SPLITS for shard in manifest["shards"][split]]:
        if os.path.basename(shard["name"]) != shard["name"]:
            raise ValueError(
                f"Shards must be in the folder of the manifest. Received: {path}, with the shard "
                f"{shard['name']}"
            )
    return manifest
