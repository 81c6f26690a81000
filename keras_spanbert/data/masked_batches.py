"""Converts blocks of tokens to masked batches, and determines the seeds of the masks."""

from collections.abc import Callable

import numpy as np

from keras_spanbert.data.array_stream import BatchShard
from keras_spanbert.data.blocks import extract_span_marks, remove_span_marks
from keras_spanbert.layers.masking_schemes import LINGUISTIC_SCHEMES
from keras_spanbert.optional import require

# All runs use the same masks for evaluation. Seeds of runs are smaller than this.
EVALUATION_SEED = 2**62


def needs_whole_batches(preprocessor, unigram_counts) -> bool:
    """Returns whether masking a row needs the other rows of its batch.

    Sentence pairs are made from several rows. Without `unigram_counts`, random tokens are
    drawn from the whole batch.
    """
    return preprocessor.next_sentence or unigram_counts is None


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


def evaluation_batches(blocks: Callable, preprocessor, batch_size: int, steps: int | None = None):
    """Returns batches for `evaluation_dataset`. `blocks()` returns an iterator of blocks."""
    tf = require("tensorflow", "A corpus")

    def pad_batch(batch):
        missing = batch_size - tf.shape(batch)[0]
        pad_id = preprocessor.tokenizer.pad_token_id
        batch = tf.pad(batch, [[0, missing], [0, 0]], constant_values=pad_id)
        return tf.ensure_shape(batch, [batch_size, preprocessor.sequence_length])

    spec = tf.TensorSpec([None, preprocessor.sequence_length], tf.int32)
    dataset = tf.data.Dataset.from_generator(blocks, output_signature=spec)
    dataset = (
        dataset.unbatch().batch(batch_size).map(pad_batch).take(-1 if steps is None else steps)
    )
    dataset = mask_batches(dataset, preprocessor, EVALUATION_SEED).cache()
    # Counting also fills the cache. Without a known number of batches, Keras on TensorFlow would
    # count one batch too many in the mean of a loss.
    num_batches = sum(1 for _ in dataset)
    return dataset.apply(tf.data.experimental.assert_cardinality(num_batches))


def rows_to_read(stream, batch_shard: BatchShard) -> BatchShard:
    """Returns the rows of each batch that a process must read to mask its own rows."""
    is_whole = needs_whole_batches(stream.preprocessor, stream.unigram_counts)
    return BatchShard(batch_shard.batch_size) if is_whole else batch_shard


def masked_stream(blocks: Callable, stream, batch_shard: BatchShard, min_tokens: int):
    """Returns the masked batches of a stream, from its next step.

    Args:
        blocks: function that returns an iterator of arrays `[batches, rows to read, L]`.
        stream: `TrainingStream`.
        batch_shard: `BatchShard`, the rows of each batch to return.
        min_tokens: int. The smallest number of tokens in a block.

    Returns:
        `tf.data.Dataset` of `(x, y, sample_weight)`.
    """
    tf = require("tensorflow", "A stream")

    length = stream.preprocessor.sequence_length
    spec = tf.TensorSpec([None, rows_to_read(stream, batch_shard).size, length], tf.int32)
    batches = mask_batches(
        tf.data.Dataset.from_generator(blocks, output_signature=spec).prefetch(1).unbatch(),
        stream.preprocessor,
        stream.seed,
        stream.first_step,
        are_full=min_tokens >= length - 2,
        unigram_counts=stream.unigram_counts,
        batch_shard=batch_shard,
    )
    return batches.prefetch(tf.data.AUTOTUNE)


def mask_batches(
    batches,
    preprocessor,
    seed: int,
    first_step=0,
    are_full: bool = False,
    unigram_counts=None,
    batch_shard: BatchShard | None = None,
):
    """Masks batches of blocks with the preprocessor.

    With `unigram_counts`, the masks of a row depend on `seed` and the number of the row.
    Otherwise the masks of a batch depend on `seed` and the number of the batch. They do
    not depend on how many batches are masked in parallel.

    Args:
        batches: `tf.data.Dataset` of int `[B, L]`, ids with or without marks of linguistic
            spans. Contains only the rows of `batch_shard` unless `needs_whole_batches`.
        preprocessor: `SpanBertPretrainerPreprocessor`.
        seed: int.
        first_step: int or scalar tensor, the number of the first batch.
            Defaults to `0`.
        are_full: bool. Whether no block has padding. The result then has no
            `padding_mask`, unless the preprocessor pads. Defaults to `False`.
        unigram_counts: see `SpanMasking`. Requires `batch_shard`.
        batch_shard: `BatchShard`, the rows of each batch to return. Defaults to `None`: all rows.

    Returns:
        `tf.data.Dataset` of `(x, y, sample_weight)`.
    """
    tf = require("tensorflow", "A corpus")

    scheme = preprocessor.masking.scheme
    are_whole = needs_whole_batches(preprocessor, unigram_counts)

    def mask(i, batch):
        marks = {}
        if scheme in LINGUISTIC_SCHEMES:
            marks["span_marks"] = extract_span_marks(batch, scheme)
        batch = remove_span_marks(batch)
        if unigram_counts is None:
            draws = {"seed": tf.stack([np.int64(seed), i])}
        else:
            first_row = i * batch_shard.batch_size + (0 if are_whole else batch_shard.rows.start)
            draws = {"seed": seed, "first_row": first_row, "unigram_counts": unigram_counts}
        x, *rest = preprocessor.mask(batch, **draws, **marks)
        if are_full and not preprocessor.has_padding:
            del x["padding_mask"]
        if batch_shard is not None and are_whole:
            return tf.nest.map_structure(lambda array: array[batch_shard.rows], (x, *rest))
        return x, *rest

    return batches.enumerate(first_step).map(
        mask,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
