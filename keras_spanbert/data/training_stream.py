"""Shuffled and masked batches of a corpus, which can start at any step."""

import copy
import functools
import hashlib
import itertools

import numpy as np

from keras_spanbert.checks import check_counts, check_in
from keras_spanbert.data.batches import Batches
from keras_spanbert.data.blocks import extract_span_marks, remove_span_marks
from keras_spanbert.layers.span_masking import LINGUISTIC_SCHEMES
from keras_spanbert.optional import require

# All runs use the same masks for evaluation. Seeds of runs are smaller than this.
EVALUATION_SEED = 2**62
# The parts of a corpus that can be read.
SPLITS = ("train", "held_out", "all")
# Approximate number of rows per read. Each read has a high fixed cost.
_READ_ROWS = 4096


def check_corpus(corpus, preprocessor) -> None:
    """Raises `ValueError` if a corpus does not fit the preprocessor."""
    is_right = hasattr(preprocessor, "masking") and hasattr(preprocessor, "next_sentence")
    check_in("preprocessor", preprocessor, is_right, "a `SpanBertPretrainerPreprocessor`")
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
    batch_size: int = 0,
    first_row: int = 0,
):
    """Returns a `tf.data.Dataset` of masked batches of blocks, with or without marks of spans.

    With `unigram_counts`, the masks of a row depend on `seed` and the number of the row. Each batch
    then starts at row `first_row` of a whole batch of `batch_size` rows. Otherwise the masks depend
    on `seed` and the number of the batch, from `first_step`. If the blocks `are_full`, the result
    has no `padding_mask`, unless the preprocessor pads.
    """
    import tensorflow as tf

    scheme = preprocessor.masking.scheme

    def mask(i, batch):
        marks = {}
        if scheme in LINGUISTIC_SCHEMES:
            marks["span_marks"] = extract_span_marks(batch, scheme)
        batch = remove_span_marks(batch)
        if unigram_counts is None:
            draws = {"seed": tf.stack([np.int64(seed), i])}
        else:
            row = i * batch_size + first_row
            draws = {"seed": seed, "first_row": row, "unigram_counts": unigram_counts}
        x, *rest = preprocessor.mask(batch, **draws, **marks)
        if are_full and not preprocessor.next_sentence:  # Shortened pairs have padding.
            del x["padding_mask"]
        return x, *rest

    return batches.enumerate(first_step).map(
        mask, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )


class TrainingStream(Batches):
    """Endless batches of shuffled and masked blocks, the same for the same arguments.

    Each epoch is a permutation of all training blocks, and a batch can contain blocks
    of two epochs. Batches do not depend on the number of processes or threads.

    Args:
        corpus: `Corpus`, which is tokenized first, or `PreparedCorpus`.
        preprocessor: `SpanBertPretrainerPreprocessor`. It must have the tokenizer and
            the sequence length of a prepared corpus.
        batch_size: int.
        seed: int.
        min_tokens: int. See `Corpus.blocks`. Not used with a prepared corpus. Defaults to `8`.
        unigram_counts: see `SpanMasking` and `PreparedCorpus.token_counts`. If given, a
            row's masks depend on its number, and each of several processes reads and
            masks only its own rows, unless rows are sentence pairs. Defaults to `None`:
            the masks of a row depend on the other rows of its batch.

    Raises:
        ValueError: if the corpus does not fit the preprocessor, has no block to train
            on, or `batch_size` is larger than the number of blocks.

    Example:
    ```python
    stream = TrainingStream(corpus, preprocessor, batch_size=32, seed=1)
    model.fit(stream.dataset(), steps_per_epoch=1000)
    stream.start_at(1000)  # Here or in another process.
    model.fit(stream.dataset(), steps_per_epoch=1000)
    ```
    """

    def __init__(
        self, corpus, preprocessor, batch_size: int, seed, min_tokens: int = 8, unigram_counts=None
    ):
        self.corpus = corpus.prepared(preprocessor, min_tokens)
        if not self.corpus.num_blocks():
            raise ValueError(
                f"The training text must have a document of {self.corpus.min_tokens} tokens or "
                "more (--min_block_tokens). Received: none"
            )
        super().__init__(range(self.corpus.num_blocks()), batch_size, seed)
        self.preprocessor = preprocessor
        self.unigram_counts = unigram_counts

    def state(self) -> dict:
        """See `Batches`. Also has a checksum of the blocks."""
        checksums = "".join(self.corpus.checksums.values())
        return {**super().state(), "sha256": hashlib.sha256(checksums.encode()).hexdigest()}

    def dataset(self, part: int = 0, num_parts: int = 1):
        """Returns a `tf.data.Dataset` of `(x, y, sample_weight)`, or of one process's rows.

        Args:
            part, num_parts: see `Batches.batch`. Default to `0`, `1`: all rows.
        """
        tf = require("tensorflow", "A stream")

        own = read = self.part_of(part, num_parts)
        if self.preprocessor.next_sentence or self.unigram_counts is None:
            read = slice(0, self.batch_size)  # A row depends on the other rows of its batch.
        length = self.preprocessor.sequence_length
        blocks = tf.data.Dataset.from_generator(
            functools.partial(self._blocks, self.first_step, read),
            output_signature=tf.TensorSpec([None, read.stop - read.start, length], tf.int32),
        )
        batches = mask_batches(
            blocks.prefetch(1).unbatch(),
            self.preprocessor,
            self.seed,
            self.first_step,
            are_full=self.corpus.min_tokens >= length - 2,
            unigram_counts=self.unigram_counts,
            batch_size=self.batch_size,
            first_row=read.start,
        )
        if read != own:
            batches = batches.map(
                lambda *batch: tf.nest.map_structure(lambda array: array[own], batch)
            )
        return batches.prefetch(tf.data.AUTOTUNE)

    def batch(self, step: int, part: int = 0, num_parts: int = 1):
        """See `Batches`."""
        stream = copy.copy(self)
        stream.first_step = step
        return next(stream.dataset(part, num_parts).as_numpy_iterator())

    def _blocks(self, step, part):
        """Yields arrays `[batches, rows of the part, L]`."""
        steps, size = itertools.count(step), part.stop - part.start
        at_once = 1  # The first read is small, so that the first batch comes quickly.
        while True:
            rows = [self.rows(next(steps))[0][part] for _ in range(at_once)]
            blocks = self.corpus.read(np.concatenate(rows), with_marks=True)
            yield blocks.reshape(at_once, size, -1)
            at_once = max(1, _READ_ROWS // size)


class BlockDatasets:
    """Mixin that adds datasets of masked batches to a class with a method `prepared`."""

    def training_dataset(self, preprocessor, batch_size: int, seed, min_tokens: int = 8):
        """Returns an endless dataset of shuffled and masked batches: see `TrainingStream`.

        Returns:
            `tf.data.Dataset` of `(x, y, sample_weight)`.
        """
        return TrainingStream(self, preprocessor, batch_size, seed, min_tokens).dataset()

    def evaluation_dataset(
        self,
        preprocessor,
        batch_size: int,
        split: str = "held_out",
        steps: int | None = None,
        min_tokens: int = 8,
    ):
        """Returns a `tf.data` dataset of masked batches, the same in each pass.

        Args:
            preprocessor: `SpanBertPretrainerPreprocessor`.
            batch_size: int. If the last batch is not full, blocks of padding with
                weight 0 are added.
            split: string: `"train"`, `"held_out"` or `"all"`. Defaults to `"held_out"`.
            steps: int. Number of batches, with blocks of the whole split. Defaults to
                `None`: all blocks.
            min_tokens: int. See `Corpus.blocks`. Defaults to `8`.

        Returns:
            `tf.data.Dataset` of `(x, y, sample_weight)`, kept in memory.

        Raises:
            ValueError: if the corpus does not fit the preprocessor, or the split has no block.
        """
        tf = require("tensorflow", "A corpus")

        check_counts(batch_size=batch_size, steps=1 if steps is None else steps)
        check_in("split", split, split in SPLITS, f"one of {', '.join(SPLITS)}")
        corpus = self.prepared(preprocessor, min_tokens)
        if not corpus.num_blocks(split):
            raise ValueError(
                f"Evaluation text must have a document of {corpus.min_tokens} tokens or more "
                f"(--min_block_tokens). Received: none with split={split!r}"
            )
        length, pad_id = preprocessor.sequence_length, preprocessor.tokenizer.pad_token_id

        def blocks():
            order = np.random.default_rng(EVALUATION_SEED).permutation(corpus.num_blocks(split))
            for start in range(0, len(order), batch_size)[:steps]:
                rows = order[start : start + batch_size]
                batch = np.full((batch_size, length), pad_id, np.int32)
                batch[: len(rows)] = corpus.read(rows, split, with_marks=True)
                yield batch

        dataset = tf.data.Dataset.from_generator(
            blocks, output_signature=tf.TensorSpec([batch_size, length], tf.int32)
        )
        batches = mask_batches(dataset, preprocessor, EVALUATION_SEED).cache()
        # Counting also fills the cache. Without a known number of batches, Keras on TensorFlow
        # would count one batch too many in the mean of a loss.
        num_batches = sum(1 for _ in batches)
        return batches.apply(tf.data.experimental.assert_cardinality(num_batches))
