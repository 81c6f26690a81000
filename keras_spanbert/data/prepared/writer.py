"""Tokenizes a corpus and cuts it into blocks, once."""

import concurrent.futures
import contextlib
import functools
import os
import threading

import numpy as np

from keras_spanbert import cache, files, stores
from keras_spanbert.checks import check_in, check_length, check_path
from keras_spanbert.data.prepared import corpus as prepared
from keras_spanbert.data.prepared.shards import SPLITS, SUFFIX, span_kinds, write_shard
from keras_spanbert.optional import check_installed


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
    """Tokenizes a corpus and writes its blocks to a folder.

    The blocks are those of `corpus.blocks`, for any number of shards and any
    runner. They include the kinds of linguistic spans that all documents have.
    The folder appears only when it is complete.

    Args:
        corpus: `Corpus`.
        tokenizer: `SpanBertTokenizer`.
        sequence_length: int. Length of a block, including `[CLS]` and `[SEP]`.
        path: string. A folder that does not exist or is empty. In a store
            (`s3://...`) workers write shards directly. `prepared.json` is
            written last, and without it the folder is not a prepared corpus.
        min_tokens: see `Corpus.blocks`.
        num_shards: int. Number of files per split. Each is written by one worker
            and contains the blocks of whole text files, or of whole ranges of
            files above 64 MB. Defaults to `None`, 16. It is at most the number of
            `corpus.ranges`.
        beam_runner: string. Name of an Apache Beam runner, for example
            `"DirectRunner"` (extra `beam`). All workers must be able to access
            the folder. Defaults to `None`: threads of this process.
        beam_options: strings. Options of the pipeline, such as
            `"--flink_master=host:8081"`.
        progress: function that is called with three numbers: finished shards, all
            shards, and written blocks. Defaults to `None`. Not called with Beam.

    Returns:
        `PreparedCorpus`.

    Raises:
        ValueError: if the folder is not empty, an argument is out of its range,
            or Beam or its runner is not installed.
        OSError: if the folder cannot be written, or the text has changed since the
            corpus was made.

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
        from keras_spanbert.data.prepared import beam

        run = beam.beam_job_runner(beam_runner, beam_options)
    else:
        run = functools.partial(_run_in_threads, progress)
    with _new_folder(path) as partial:
        jobs = _jobs(corpus, tokenizer, sequence_length, partial, min_tokens, num_shards or 16)
        found = run(corpus, jobs, tokenizer)
        corpus.check_unchanged()  # Its ranges are only valid for the text that it read first.
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
            "added_tokens": dict(tokenizer.added_tokens),
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


def _jobs(corpus, tokenizer, sequence_length, folder, min_tokens, num_shards):
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
    splits = SPLITS if corpus.holds_out else SPLITS[:1]
    return [
        {
            "split": split,
            "ranges": group,
            "sequence_length": sequence_length,
            "min_tokens": min_tokens,
            "path": stores.join(folder, f"{split}-{i:05d}-of-{len(groups):05d}{SUFFIX}"),
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
