"""Shards of a prepared corpus: ArrayRecord files of blocks."""

import os
import tempfile
from collections.abc import Callable

import numpy as np

from keras_spanbert import files, stores
from keras_spanbert.data.blocks import TokenCounts

SPLITS = ("train", "held_out")
SUFFIX = ".array_record"  # Of shards' names.

# A record a group, so that reading one decompresses no other.
_WRITER_OPTIONS = "group_size:1,zstd:3"


def dtype(vocabulary_size: int, has_marks: bool = False) -> np.dtype:
    """Of the ids on disk, above which marks of linguistic spans may stand."""
    return np.dtype("<u2" if vocabulary_size <= 1 << 16 and not has_marks else "<u4")


def span_kinds(corpus) -> list[str]:
    """The kinds of linguistic spans that all of a corpus has."""
    return [kind for kind, places in corpus.lacks_spans.items() if not places]


def array_record():
    """The library's module, or an error that says how to install it."""
    try:
        from array_record.python import array_record_module
    except ImportError:
        raise ValueError(
            "A prepared corpus takes ArrayRecord (pip install keras-spanbert[prepare]). "
            "Received: no package array_record"
        ) from None
    return array_record_module


def write_shard(
    job: dict, tokenizer, is_cancelled: Callable[[], bool] = lambda: False
) -> tuple[str, dict, np.ndarray]:
    """Writes a shard; returns its split, what the manifest says of it, and counts of tokens."""
    if stores.is_store(job["path"]):
        with tempfile.TemporaryDirectory(prefix="keras_spanbert-") as folder:
            path = os.path.join(folder, os.path.basename(job["path"]))
            found = write_shard({**job, "path": path}, tokenizer, is_cancelled)
            if os.path.exists(path):
                stores.put_file(path, job["path"])
        return found
    path = job["path"]
    has_marks = bool(span_kinds(job["corpus"]))
    id_dtype = dtype(tokenizer.vocabulary_size(), has_marks)
    counts = TokenCounts(tokenizer)
    try:
        writer = array_record().ArrayRecordWriter(path, _WRITER_OPTIONS)
        try:
            for blocks in job["corpus"].blocks(
                tokenizer,
                job["sequence_length"],
                job["split"],
                job["min_tokens"],
                with_marks=has_marks,
            ):
                if is_cancelled():
                    break
                counts.add(blocks)
                for record in blocks.astype(id_dtype):
                    writer.write(record.tobytes())
        finally:
            writer.close()
    except RuntimeError as error:  # Of ArrayRecord.
        raise OSError(f"{path} cannot be written: {error}") from None
    counts, num_blocks = counts.result()
    shard = {
        "name": os.path.basename(path),
        "num_blocks": num_blocks,
        "bytes": os.path.getsize(path),
        "sha256": files.sha256(path),
    }
    if not num_blocks:
        os.remove(path)
    return job["split"], shard, counts
