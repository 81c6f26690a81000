"""Tokenising a corpus and cutting it into blocks, once and for all."""

import concurrent.futures
import contextlib
import copy
import os
import threading

import numpy as np

from keras_spanbert import files, stores
from keras_spanbert.data.prepared import corpus as prepared
from keras_spanbert.data.prepared.shards import (
    SPLITS,
    SUFFIX,
    array_record,
    span_kinds,
    write_shard,
)


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
) -> prepared.PreparedCorpus:
    """Tokenises a corpus and writes its blocks to a folder.

    Its blocks are those that `corpus.blocks` yields, in whatever number of
    shards and by whichever runner, with the linguistic spans of each kind that
    all documents bring. The folder appears when it is whole.

    Args:
        corpus: `Corpus`.
        tokenizer: `SpanBertTokenizer`.
        sequence_length: int, of a block, `[CLS]` and `[SEP]` included.
        path: string, a folder that does not exist or is empty; of a store
            (`s3://...`), where workers write shards themselves, none takes it
            for a prepared corpus before its last object, `prepared.json`.
        min_tokens: see `Corpus.blocks`.
        num_shards: int. Files of each split, each a worker's piece of work, of
            which each holds the blocks of whole text files, or of whole ranges
            of those above 64 MB. Defaults to `None`, 16; never more than
            `corpus.ranges`.
        beam_runner: string. Name of an Apache Beam runner, for example
            `"DirectRunner"`, to do it (extra `beam`); the folder must be one
            that all workers see. Defaults to `None`: threads of this process.
        beam_options: strings. Options of the pipeline, as
            `"--flink_master=host:8081"`.
        progress: function of shards done, all shards, and blocks written.
            Defaults to `None`. Not called with Beam.

    Returns:
        `PreparedCorpus`.

    Raises:
        ValueError: where the folder holds something, an argument is out of its
            range, or Beam or its runner is not installed.
        OSError: where it cannot be written.

    Example:
    ```python
    corpus = Corpus("texts/*.txt", held_out=0.05)
    tokenizer = keras_spanbert.SpanBertTokenizer(corpus.train_vocabulary(8000))
    prepare(corpus, tokenizer, sequence_length=512, path="prepared")
    ```
    """
    if num_shards is not None and num_shards < 1:
        raise ValueError(f"`num_shards` must be at least 1. Received: num_shards={num_shards}")
    if sequence_length < 3:
        raise ValueError(
            "`sequence_length` must be at least 3: [CLS], a token, [SEP]. "
            f"Received: sequence_length={sequence_length}"
        )
    files.check_new(path)
    if beam_runner:
        run = _beam().by_runner(beam_runner, beam_options)
    else:
        run = _in_threads(progress)
    array_record()
    with _new_folder(path) as partial:
        jobs = _jobs(corpus, tokenizer, sequence_length, partial, min_tokens, num_shards or 16)
        found = run(jobs, tokenizer)
        counts = np.zeros(tokenizer.vocabulary_size(), np.int64)
        shards = {split: [] for split in SPLITS}
        for split, shard, shard_counts in sorted(found, key=lambda item: item[1]["name"]):
            if shard["num_blocks"]:
                shards[split].append(shard)
            if split == "train":
                counts += shard_counts
        kinds = span_kinds(corpus)
        manifest = {
            "version": prepared.VERSIONS[bool(kinds)],
            "sequence_length": sequence_length,
            "min_tokens": min_tokens,
            "lowercase": tokenizer.lowercase,
            "cross_documents": corpus.cross_documents,
            "vocabulary": tokenizer.get_vocabulary(),
            "counts": counts.tolist(),
            "shards": shards,
            **({"span_kinds": kinds} if kinds else {}),
        }
        files.write_json(stores.join(partial, prepared.MANIFEST), manifest, indent=None)
    return prepared.PreparedCorpus.just_written(path)


@contextlib.contextmanager
def _new_folder(path):
    """`files.new_folder`, but of a store the folder itself, whose manifest is written last."""
    if not stores.is_store(path):
        with files.new_folder(path) as partial:
            yield partial
        return
    try:
        yield path
    except BaseException:
        stores.remove_folder(path)
        raise


def _jobs(corpus, tokenizer, sequence_length, folder, min_tokens, num_shards):
    """A job a shard: what `write_shard` takes."""
    file_sizes = [stores.size(name) for name in corpus.files]
    sizes = np.array(
        [(within.stop or file_sizes[i]) - within.start for i, *_, within in corpus.ranges], np.int64
    )
    num_shards = min(num_shards, len(sizes))
    # Whole ranges, in their order, as many bytes a shard as that allows.
    of_file = (np.cumsum(sizes) - sizes // 2 - 1) * num_shards // max(sizes.sum(), 1)
    groups = [np.flatnonzero(of_file == i).tolist() for i in range(num_shards)]
    groups = [group for group in groups if group]
    parts = [_part(corpus, group) for group in groups]
    splits = SPLITS if corpus.holds_out else SPLITS[:1]
    return [
        {
            "corpus": part,
            "split": split,
            "sequence_length": sequence_length,
            "min_tokens": min_tokens,
            "path": stores.join(folder, f"{split}-{i:05d}-of-{len(parts):05d}{SUFFIX}"),
        }
        for split in splits
        for i, part in enumerate(parts)
    ]


def _part(corpus, ranges):
    """The corpus of some of its ranges alone: a worker's, to which it is sent."""
    part = copy.copy(corpus)
    part.ranges = [corpus.ranges[i] for i in ranges]
    files = sorted({place.file for place in part.ranges})
    part.files = [corpus.files[file] for file in files]
    numbers = {file: number for number, file in enumerate(files)}
    part.ranges = [place._replace(file=numbers[place.file]) for place in part.ranges]
    part.evaluation_texts, part.counted_blocks = [], {}
    part.lacks_spans = {kind: places[:1] for kind, places in corpus.lacks_spans.items()}
    return part


def _in_threads(progress):
    def run(jobs, tokenizer):
        is_cancelled = threading.Event()
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            try:
                futures = [
                    pool.submit(write_shard, job, tokenizer, is_cancelled.is_set) for job in jobs
                ]
                found = []
                for future in concurrent.futures.as_completed(futures):
                    found.append(future.result())
                    if progress:
                        blocks = sum(shard["num_blocks"] for _, shard, _ in found)
                        progress(len(found), len(jobs), blocks)
                return found
            except BaseException:
                is_cancelled.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    return run


def _beam():
    try:
        from keras_spanbert.data.prepared import beam
    except ImportError as error:
        if not (error.name or "").startswith("apache_beam"):
            raise
        raise ValueError(
            "`beam_runner` takes Apache Beam (pip install keras-spanbert[beam]). Received: no "
            "package apache_beam"
        ) from None
    return beam
