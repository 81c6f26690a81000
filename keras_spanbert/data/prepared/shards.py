"""Shards of a prepared corpus: ArrayRecord files of blocks."""

import contextlib
import os
from collections.abc import Callable

import numpy as np
from array_record.python import array_record_module

from keras_spanbert import files, stores
from keras_spanbert.data.blocks import remove_span_marks

SPLITS = ("train", "held_out")
SUFFIX = ".array_record"  # Ending of the shards' file names.

# One record per group, so that reading a record decompresses no other.
_WRITER_OPTIONS = "group_size:1,zstd:3"


def dtype(vocabulary_size: int, has_marks: bool = False) -> np.dtype:
    """Returns the dtype of stored ids. Ids with marks of linguistic spans need 32 bits."""
    return np.dtype("<u2" if vocabulary_size <= 1 << 16 and not has_marks else "<u4")


def span_kinds(corpus) -> list[str]:
    """Returns the kinds of linguistic spans that all documents of a corpus have."""
    return [kind for kind, places in corpus.lacks_spans.items() if not places]


def write_shard(
    corpus, job: dict, tokenizer, is_cancelled: Callable[[], bool] = lambda: False
) -> tuple[str, dict, np.ndarray]:
    """Writes a shard. A shard without blocks is not kept. If `is_cancelled`, it is incomplete.

    Returns the split, the shard's entry in the manifest, and the number of times that each token
    occurs, int64 `[V]`, 0 for special tokens.
    """
    has_marks = bool(span_kinds(corpus))
    id_dtype = dtype(tokenizer.vocabulary_size(), has_marks)
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
