"""Converts blocks of tokens to masked batches, and determines the seeds of the masks."""

import numpy as np

from keras_spanbert.data.array_stream import BatchShard
from keras_spanbert.data.blocks import extract_span_marks, remove_span_marks
from keras_spanbert.layers.masking_schemes import LINGUISTIC_SCHEMES
from keras_spanbert.optional import require

# All runs use the same masks for evaluation. Seeds of runs are smaller than this.
EVALUATION_SEED = 2**62


def check_corpus(corpus, preprocessor) -> None:
    """Raises `ValueError` if a corpus does not fit the preprocessor.

    Linguistic masking schemes need spans. Sentence pairs need blocks of one document each.
    """
    if preprocessor.next_sentence and corpus.cross_documents:
        raise ValueError(
            "`next_sentence` (--objectives with nsp) needs blocks of one document each, because "
            "the sentences of a pair come from one document. Received: blocks that cross documents "
            f"(cross_documents=True, --cross_documents) from {', '.join(corpus.files[:1])}"
        )
    scheme = preprocessor.masking.scheme
    if scheme not in LINGUISTIC_SCHEMES or not corpus.lacks_spans[scheme]:
        return
    places = corpus.lacks_spans[scheme]
    more = f" and {len(places) - 3:,} more" if len(places) > 3 else ""
    raise ValueError(
        f"`scheme={scheme}` (--masking_scheme) needs text with such spans: .jsonl files with "
        "`spans`, or a corpus that --task=prepare wrote from such files or with --span_annotator. "
        f"Received: text without spans in {', '.join(places[:3])}{more}"
    )


def mask_batches(
    batches,
    preprocessor,
    seed: int,
    first_step=0,
    are_full: bool = False,
    unigram_counts=None,
    shard: BatchShard | None = None,
):
    """Masks batches of blocks with the preprocessor.

    With `unigram_counts`, the masks of a row depend on `seed` and the number of the row.
    Otherwise the masks of a batch depend on `seed` and the number of the batch. They do
    not depend on how many batches are masked in parallel.

    Args:
        batches: `tf.data.Dataset` of int `[B, L]`, ids with or without marks of linguistic
            spans.
        preprocessor: `SpanBertPretrainerPreprocessor`.
        seed: int.
        first_step: int or scalar tensor, the number of the first batch.
            Defaults to `0`.
        are_full: bool. Whether no block has padding. The result then has no
            `padding_mask`, unless the preprocessor pads. Defaults to `False`.
        unigram_counts: see `SpanMasking`. Requires `shard`.
        shard: `BatchShard`. The rows of each whole batch that `batches` contains. Used
            only with `unigram_counts`.

    Returns:
        `tf.data.Dataset` of `(x, y, sample_weight)`.
    """
    tf = require("tensorflow", "A corpus")

    scheme = preprocessor.masking.scheme

    def mask(i, batch):
        marks = {}
        if scheme in LINGUISTIC_SCHEMES:
            marks["span_marks"] = extract_span_marks(batch, scheme)
        batch = remove_span_marks(batch)
        if unigram_counts is None:
            draws = {"seed": tf.stack([np.int64(seed), i])}
        else:
            first_row = i * shard.batch_size + shard.rows.start
            draws = {"seed": seed, "first_row": first_row, "unigram_counts": unigram_counts}
        x, *rest = preprocessor.mask(batch, **draws, **marks)
        if are_full and not preprocessor.has_padding:
            del x["padding_mask"]
        return x, *rest

    return batches.enumerate(first_step).map(
        mask,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
