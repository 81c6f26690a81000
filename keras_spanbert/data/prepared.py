"""Corpora that are tokenized and cut into blocks once, then read at disk speed.

A prepared corpus is a folder of shards, which are ArrayRecord files of blocks, and `prepared.json`.
"""

import concurrent.futures
import contextlib
import functools
import itertools
import os
import threading
from collections.abc import Callable, Iterator

import numpy as np
from array_record.python import array_record_module

from keras_spanbert import cache, files, stores
from keras_spanbert.checks import check_in, check_length, check_path
from keras_spanbert.data.blocks import SPAN_KINDS, remove_span_marks, tokenizer_settings
from keras_spanbert.data.training_stream import BlockDatasets, check_corpus
from keras_spanbert.models.tokenizer import SpanBertTokenizer
from keras_spanbert.optional import check_installed
from keras_spanbert.wording import LOG

__all__ = ["PreparedCorpus", "prepare"]

_VERSION = 3
_MANIFEST = "prepared.json"
_SPLITS = ("train", "held_out")
_SUFFIX = ".array_record"  # Ending of the shards' file names.
_READER_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"
# One record per group, so that reading a record decompresses no other.
_WRITER_OPTIONS = "group_size:1,zstd:3"


class PreparedCorpus(BlockDatasets):
    """A corpus in a folder that `prepare` wrote.

    The constructor checks the SHA-256 sums of the shards.

    Args:
        path: string. The folder. A folder in a store (`s3://...`) is copied:
            see `keras_spanbert.cache.local_copy`.
        damaged_shards: string. What to do if shards are missing or damaged:
            `"refuse"`, or `"skip"` to log a warning and continue without them.
            `None` skips this check. Defaults to `"refuse"`.

    Attributes:
        sequence_length: int. Length of the blocks.
        min_tokens: int, see `Corpus.blocks`.
        vocabulary, lowercase, added_tokens, special_tokens_in_strings: see `SpanBertTokenizer`.
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

    def __init__(self, path: str, damaged_shards: str | None = "refuse"):
        is_known = damaged_shards in ("refuse", "skip", None)
        check_in("damaged_shards", damaged_shards, is_known, "'refuse', 'skip' or None")
        self.path = path = check_path("path", path)
        name = stores.join(path, _MANIFEST)
        try:
            manifest = files.read_json(name)
        except FileNotFoundError:
            raise ValueError(
                f"A prepared corpus must have a manifest. Received: {name}, which does not exist"
            ) from None
        if (version := manifest.get("version")) != _VERSION:
            raise ValueError(
                f"A prepared corpus must have version {_VERSION}. Prepare it again with "
                f"--task=prepare. Received: {name}, with version {version}"
            )
        self._shards = manifest["shards"]
        for shard in self._matching_shards("all"):
            if os.path.basename(shard["name"]) != shard["name"]:
                raise ValueError(
                    f"Shards must be in the folder of the manifest. Received: {name}, with the "
                    f"shard {shard['name']}"
                )
        self.sequence_length = manifest["sequence_length"]
        self.min_tokens = manifest["min_tokens"]
        self.vocabulary = manifest["vocabulary"]
        self.lowercase = manifest["lowercase"]
        self.added_tokens = manifest["added_tokens"]
        # Older manifests lack this setting.
        self.special_tokens_in_strings = manifest.get("special_tokens_in_strings", False)
        self.cross_documents = manifest["cross_documents"]
        self._counts = np.array(manifest["counts"])
        self._readers = {}
        kinds = manifest["span_kinds"]
        self.lacks_spans = {kind: [] if kind in kinds else [path] for kind in SPAN_KINDS}
        self._dtype = _dtype(len(self.vocabulary), bool(kinds))
        if damaged_shards is not None:
            self._check_shards(damaged_shards)

    @property
    def files(self) -> list[str]:
        return list(self.checksums)

    @property
    def checksums(self) -> dict[str, str]:
        shards = self._matching_shards("all")
        return {stores.join(self.path, shard["name"]): shard["sha256"] for shard in shards}

    @functools.cached_property
    def _local(self):
        """The local folder of the shards, a copy if the corpus is in a store."""
        # Only shards are copied. If other files change, such as `run.json`, the copy stays valid.
        return cache.local_copy(self.path, lambda name: name.endswith(_SUFFIX))

    def tokenizer(self) -> SpanBertTokenizer:
        """Returns the tokenizer that the corpus was prepared with."""
        return SpanBertTokenizer(**tokenizer_settings(self))

    def num_blocks(self, split: str = "train") -> int:
        """Returns the number of blocks of a split: `"train"`, `"held_out"` or `"all"`."""
        return sum(shard["num_blocks"] for shard in self._matching_shards(split))

    @property
    def holds_out(self) -> bool:
        """Whether the corpus has held-out blocks."""
        return self.num_blocks("held_out") > 0

    def token_counts(self) -> tuple[np.ndarray, int]:
        """Returns the counts of tokens, int64 `[V]`, and the number of training blocks.

        The counts are 0 for special tokens, and include shards that were skipped.
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
        wanted = {"sequence_length": sequence_length, **tokenizer_settings(tokenizer)}
        tokens = itertools.zip_longest(self.vocabulary, wanted.pop("vocabulary"))
        for name, other in wanted.items():
            mine = getattr(self, name)
            if mine != other:
                raise ValueError(
                    f"A prepared corpus must have the model's {name}={other}. Prepare it again. "
                    f"Received: {self.path}, with {name}={mine}"
                )
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
        check_in("split", split, split in (*_SPLITS, "all"), f"one of {', '.join(_SPLITS)}, all")
        return [shard for name in _SPLITS if split in (name, "all") for shard in self._shards[name]]

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
        shards = [(split, shard) for split in _SPLITS for shard in self._shards[split]]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            faults = list(pool.map(self._find_fault, [shard for _, shard in shards]))
        for (split, shard), fault in zip(shards, faults):
            if fault is None:
                continue
            path = stores.join(self.path, shard["name"])
            if damaged_shards == "refuse":
                raise ValueError(
                    "Shards must be complete and unchanged. Received: "
                    f"{path}, {fault}. damaged_shards='skip' continues without it"
                )
            message = "Shard %s cannot be used (%s): continuing without its %d blocks"
            LOG.warning(message, path, fault, shard["num_blocks"])
            self._shards[split].remove(shard)

    def _find_fault(self, shard):
        path = os.path.join(self._local, shard["name"])
        try:
            size = os.path.getsize(path)
        except OSError:
            return "missing"
        if size != shard["bytes"]:
            return f"with {size} bytes instead of {shard['bytes']}"
        return None if files.sha256(path) == shard["sha256"] else "with another SHA-256 sum"


# === Writing ===
def prepare(
    corpus,
    tokenizer,
    sequence_length: int,
    path: str,
    min_tokens: int = 8,
    num_shards: int | None = None,
    beam_runner: str | None = None,
    beam_options=(),
    progress=None,
) -> PreparedCorpus:
    """Tokenizes a corpus and writes its blocks to a folder.

    The blocks are those of `corpus.blocks`, for any number of shards and any runner, with the kinds
    of linguistic spans that all documents have. The folder appears only when it is complete.

    Args:
        corpus: `Corpus`.
        tokenizer: `SpanBertTokenizer`.
        sequence_length: int. Length of a block, including `[CLS]` and `[SEP]`.
        path: string. A folder that does not exist or is empty. In a store
            (`s3://...`) workers write shards directly. `prepared.json` is written last,
            and without it the folder is not a prepared corpus.
        min_tokens: see `Corpus.blocks`.
        num_shards: int. Number of files per split, at most that of `corpus.ranges`.
            Each is written by one worker, from whole ranges. Defaults to `None`, 16.
        beam_runner: string. Name of an Apache Beam runner, for example
            `"DirectRunner"` (extra `beam`). All workers must be able to access
            the folder. Defaults to `None`: threads of this process.
        beam_options: strings. Options of the pipeline, such as `"--flink_master=host:8081"`.
        progress: function that is called with three numbers: finished shards, all
            shards, and written blocks. Defaults to `None`. Not called with Beam.

    Returns:
        `PreparedCorpus`.

    Raises:
        ValueError: if the folder is not empty, an argument is out of its range,
            or Beam or its runner is not installed.
        OSError: if the folder cannot be written, or the text has changed since the corpus was made.

    Example:
    ```python
    corpus = Corpus("texts/*.txt", held_out=0.05)
    tokenizer = keras_spanbert.SpanBertTokenizer(corpus.train_vocabulary(8000))
    prepare(corpus, tokenizer, sequence_length=512, path="prepared")
    ```
    """
    check_in("num_shards", num_shards, num_shards is None or num_shards >= 1, "at least 1")
    check_length(sequence_length)
    path = check_path("path", path)
    files.check_new(path)
    if beam_runner:
        check_installed("apache_beam", "`beam_runner`")
        from keras_spanbert.data import beam

        run = beam.job_runner(beam_runner, beam_options, write_shard)
    else:
        run = functools.partial(_run_in_threads, progress)
    with _new_folder(path) as partial:
        jobs = _jobs(corpus, sequence_length, partial, min_tokens, num_shards or 16)
        found = run(corpus, jobs, tokenizer)
        corpus.check_unchanged()  # Its ranges are only valid for the text that it read first.
        counts = np.zeros(tokenizer.vocabulary_size(), np.int64)
        shards = {split: [] for split in _SPLITS}
        for split, shard, shard_counts in sorted(found, key=lambda item: item[1]["name"]):
            if shard["num_blocks"]:
                shards[split].append(shard)
            if split == "train":
                counts += shard_counts
        manifest = {
            "version": _VERSION,
            "sequence_length": sequence_length,
            "min_tokens": min_tokens,
            "cross_documents": corpus.cross_documents,
            **tokenizer_settings(tokenizer),
            "counts": counts.tolist(),
            "shards": shards,
            "span_kinds": _span_kinds(corpus),
        }
        files.write_json(stores.join(partial, _MANIFEST), manifest, indent=None)
    return PreparedCorpus(path, damaged_shards=None)


@contextlib.contextmanager
def _new_folder(path):
    """Does what `files.new_folder` does. In a store, writes to the folder directly."""
    if not stores.is_store(path):
        with files.new_folder(path) as folder:
            yield folder
            files.remove_partial(folder)  # Workers that were killed leave them.
        return
    try:
        yield path
    except BaseException:
        stores.remove(path)
        raise


def _jobs(corpus, sequence_length, folder, min_tokens, num_shards):
    """Returns the jobs of `write_shard`, one per shard."""
    file_sizes = [os.path.getsize(cache.local_copy(name)) for name in corpus.files]
    sizes = np.array(
        [(within.stop or file_sizes[i]) - within.start for i, *_, within in corpus.ranges], np.int64
    )
    num_shards = min(num_shards, len(sizes))
    # Each shard gets consecutive ranges, and all shards get about the same number of bytes.
    of_file = (np.cumsum(sizes) - sizes // 2 - 1) * num_shards // max(sizes.sum(), 1)
    groups = [np.flatnonzero(of_file == i).tolist() for i in range(num_shards)]
    groups = [group for group in groups if group]
    splits = _SPLITS if corpus.holds_out else _SPLITS[:1]
    return [
        {
            "split": split,
            "ranges": group,
            "sequence_length": sequence_length,
            "min_tokens": min_tokens,
            "path": stores.join(folder, f"{split}-{i:05d}-of-{len(groups):05d}{_SUFFIX}"),
        }
        for split in splits
        for i, group in enumerate(groups)
    ]


def _run_in_threads(progress, corpus, jobs, tokenizer):
    """Returns the results of `write_shard` for all jobs."""
    is_cancelled, found = threading.Event(), []

    def report():
        if progress:
            blocks = sum(shard["num_blocks"] for _, shard, _ in found)
            progress(len(found), len(jobs), blocks)

    report()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            futures = [
                pool.submit(write_shard, corpus, job, tokenizer, is_cancelled.is_set)
                for job in jobs
            ]
            for future in concurrent.futures.as_completed(futures):
                found.append(future.result())
                report()
        except BaseException:
            is_cancelled.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return found


# === Shards ===
def _dtype(vocabulary_size: int, has_marks: bool) -> np.dtype:
    """Returns the dtype of stored ids. Ids with marks of linguistic spans need 32 bits."""
    return np.dtype("<u2" if vocabulary_size <= 1 << 16 and not has_marks else "<u4")


def _span_kinds(corpus) -> list[str]:
    """Returns the kinds of linguistic spans that all documents of a corpus have."""
    return [kind for kind, places in corpus.lacks_spans.items() if not places]


def write_shard(
    corpus, job: dict, tokenizer, is_cancelled: Callable[[], bool] = lambda: False
) -> tuple[str, dict, np.ndarray]:
    """Writes a shard. A shard without blocks is not kept. If `is_cancelled`, it is incomplete.

    Returns the split, the shard's entry in the manifest, and the number of times that each token
    occurs, int64 `[V]`, 0 for special tokens.
    """
    has_marks = bool(_span_kinds(corpus))
    id_dtype = _dtype(tokenizer.vocabulary_size(), has_marks)
    counts, num_blocks = np.zeros(tokenizer.vocabulary_size(), np.int64), 0
    settings = tokenizer, job["sequence_length"], job["split"], job["min_tokens"]
    try:
        with files.atomic_write(job["path"], "wb") as file:
            path = file.name
            writer = array_record_module.ArrayRecordWriter(path, _WRITER_OPTIONS)
            with contextlib.closing(writer):
                for blocks in corpus.blocks(*settings, with_marks=has_marks, order=job["ranges"]):
                    if is_cancelled():
                        break
                    ids = remove_span_marks(blocks)
                    counts += np.bincount(ids.ravel(), minlength=len(counts))
                    num_blocks += len(blocks)
                    for record in blocks.astype(id_dtype):
                        writer.write(record.tobytes())
            size, checksum = os.path.getsize(path), files.sha256(path)
    except RuntimeError as error:  # Raised by ArrayRecord.
        raise OSError(f"{job['path']} cannot be written: {error}") from None
    if not num_blocks:
        stores.remove(job["path"])
    counts[tokenizer.special_token_ids] = 0
    name = os.path.basename(job["path"])
    shard = {"name": name, "num_blocks": num_blocks, "bytes": size, "sha256": checksum}
    return job["split"], shard, counts
