"""Blocks of tokens to masked batches, by one rule for the masks' seeds."""

from collections.abc import Callable

import numpy as np

from keras_spanbert.data.array_stream import Part
from keras_spanbert.data.blocks import span_marks, without_marks
from keras_spanbert.layers.masking_schemes import LINGUISTIC_SCHEMES
from keras_spanbert.optional import import_tensorflow

# Evaluation is the same whatever the run's seed, which is never this one.
EVALUATION_SEED = 2**62


def needs_whole_batches(preprocessor, unigram_counts) -> bool:
    """Whether rows depend on others of their batch: by pairs, or by random tokens."""
    return preprocessor.next_sentence or unigram_counts is None


def check_corpus(corpus, preprocessor) -> None:
    """Raises a ValueError where a corpus lacks what the preprocessor takes.

    That is linguistic spans of the masking scheme, and for pairs blocks of one document each.
    """
    if preprocessor.next_sentence and corpus.cross_documents:
        raise ValueError(
            "`next_sentence` (--objectives with nsp) takes blocks of one document each, since a "
            "pair is of one. Received: blocks that cross documents (cross_documents=True, "
            f"--cross_documents), of {', '.join(corpus.files[:1])}"
        )
    scheme = preprocessor.masking.scheme
    if scheme not in LINGUISTIC_SCHEMES or not corpus.lacks_spans[scheme]:
        return
    places = corpus.lacks_spans[scheme]
    more = f" and {len(places) - 3:,} more" if len(places) > 3 else ""
    raise ValueError(
        f"`scheme={scheme}` (--scheme) takes text with such spans: .jsonl files with `spans`, or "
        "what --task=prepare wrote from these or with --spans. Received without: "
        f"{', '.join(places[:3])}{more}"
    )


def evaluation_batches(blocks: Callable, preprocessor, batch_size: int, steps: int | None = None):
    """See `Corpus.evaluation_dataset`; `blocks` is a function that returns an iterator of them."""
    tf = import_tensorflow("A corpus")

    def fill_up(batch):
        missing = batch_size - tf.shape(batch)[0]
        pad_id = preprocessor.tokenizer.pad_token_id
        batch = tf.pad(batch, [[0, missing], [0, 0]], constant_values=pad_id)
        return tf.ensure_shape(batch, [batch_size, preprocessor.sequence_length])

    spec = tf.TensorSpec([None, preprocessor.sequence_length], tf.int32)
    dataset = tf.data.Dataset.from_generator(blocks, output_signature=spec)
    dataset = dataset.unbatch().batch(batch_size).map(fill_up).take(-1 if steps is None else steps)
    dataset = masked(dataset, preprocessor, EVALUATION_SEED, may_have_marks=True).cache()
    # Fills the cache. Keras on TensorFlow would count one batch more in the mean of a loss where
    # the number is not known.
    num_batches = sum(1 for _ in dataset)
    return dataset.apply(tf.data.experimental.assert_cardinality(num_batches))


def masked(
    batches,
    preprocessor,
    seed: int,
    first_step=0,
    are_full: bool = False,
    may_have_marks=False,
    unigram_counts=None,
    part: Part | None = None,
):
    """Batches of blocks as the preprocessor masks them.

    With `unigram_counts` and a `part` a row's masks are fixed by `seed` and the
    row's number, else a batch's by `seed` and the batch's number, whatever the
    parallelism.

    Args:
        batches: `tf.data.Dataset` of int `[B, L]`, or of a part's rows alone
            where that is enough, see `needs_whole_batches`.
        preprocessor: `SpanBertPretrainerPreprocessor`.
        seed: int.
        first_step: int or scalar tensor, the number of the first batch.
            Defaults to `0`.
        are_full: bool. Whether no block has padding: then there is no
            `padding_mask`, unless the preprocessor pads. Defaults to `False`.
        may_have_marks: bool. Whether marks of linguistic spans may stand above
            the ids. Schemes that take none leave them away. Defaults to
            `False`.
        unigram_counts: see `SpanMasking`.
        part: `Part`, the rows that come out of each batch. Defaults to `None`,
            all.

    Returns:
        `tf.data.Dataset` of `(x, y, sample_weight)`.
    """
    tf = import_tensorflow("A corpus")

    scheme = preprocessor.masking.scheme
    are_whole = needs_whole_batches(preprocessor, unigram_counts)

    def mask(i, batch):
        marks = {}
        if may_have_marks:
            if scheme in LINGUISTIC_SCHEMES:
                marks["span_marks"] = span_marks(batch, scheme)
            batch = without_marks(batch)
        if unigram_counts is None:
            draws = {"seed": tf.stack([np.int64(seed), i])}
        else:
            first_row = i * part.batch_size + (0 if are_whole else part.rows.start)
            draws = {"seed": seed, "first_row": first_row, "unigram_counts": unigram_counts}
        x, *rest = preprocessor.mask(batch, **draws, **marks)
        if are_full and not preprocessor.has_padding:
            del x["padding_mask"]
        if part is not None and are_whole:
            return tf.nest.map_structure(lambda array: array[part.rows], (x, *rest))
        return x, *rest

    return batches.enumerate(first_step).map(
        mask,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
