"""Masked batches of a corpus without end, from any step on."""

import collections
import copy

import numpy as np

from keras_spanbert.data.array_stream import Part, check_batch_size
from keras_spanbert.data.masked_batches import check_corpus, masked, needs_whole_batches
from keras_spanbert.data.shuffle_buffer import ShuffleBuffer
from keras_spanbert.optional import import_tensorflow

# Where in the stream its generator was, between two parts of the text.
_State = collections.namedtuple(
    "_State",
    [
        "rows",  # int, given out so far
        "epoch",  # int
        "parts",  # int, of the epoch's text read so far
        "rest",  # int32 [tokens], of an unfinished document
        "buffer",  # int32 [filled, L], what waits in the shuffle buffer
        "generator",  # dict, state of NumPy's generator
    ],
)
# Copying the buffer must cost little beside filling it.
_BUFFERS_BETWEEN_STATES = 4


class TrainingStream:
    """Batches of shuffled blocks, masked, fixed by `seed` altogether.

    Files come in an order drawn anew in each epoch, blocks through a shuffle
    buffer, masks from the row's number, or the batch's, so that neither the
    parallelism nor the machine matters. Epochs run into one another.

    Args:
        corpus: `Corpus`.
        preprocessor: `SpanBertPretrainerPreprocessor`.
        batch_size: int.
        seed: int.
        epochs: int. Defaults to `None`, without end.
        min_tokens: see `Corpus.blocks`.
        shuffle_blocks: int. Size of the shuffle buffer.
        unigram_counts: see `SpanMasking`, as `Corpus.token_counts` gives them.
            With them a row's masks come from its number, and each of several
            processes masks its own rows alone. Defaults to `None`: masks come
            from the batch and its number.

    Example:
    ```python
    stream = TrainingStream(corpus, preprocessor, batch_size=32, seed=1)
    model.fit(stream.dataset(), steps_per_epoch=1000)
    stream.start_at(1000, stream.state(1000))  # Here or in another process.
    model.fit(stream.dataset(), steps_per_epoch=1000)
    ```
    """

    def __init__(
        self,
        corpus,
        preprocessor,
        batch_size: int,
        seed,
        epochs: int | None = None,
        min_tokens: int = 8,
        shuffle_blocks: int = 10_000,
        unigram_counts=None,
    ):
        check_corpus(corpus, preprocessor)
        self.corpus = corpus
        self.preprocessor = preprocessor
        self.batch_size = batch_size
        self.seed = seed
        self.epochs = epochs
        self.min_tokens = min_tokens
        self.shuffle_blocks = shuffle_blocks
        self.unigram_counts = unigram_counts
        self._has_a_batch = False
        length = preprocessor.sequence_length
        start = _State(0, 0, 0, np.zeros(0, np.int32), np.zeros((0, length), np.int32), None)
        self.start_at(0, start._asdict())

    def start_at(self, step: int, state: dict) -> None:
        """Has datasets made from now on start at batch `step`.

        Args:
            step: int.
            state: dict from `state`, at `step` or before, of a stream with the
                same arguments.
        """
        start = _State(**state)
        if start.rows > step * self.batch_size:
            raise ValueError(
                f"`state` must be of `step` or before. Received: state of row {start.rows:,}, "
                f"step={step} with batch_size={self.batch_size}"
            )
        self.first_step = step
        self._start = start
        self._states = [start]

    def dataset(self, part: int = 0, num_parts: int = 1):
        """`tf.data.Dataset` of `(x, y, sample_weight)`, or of a process's rows of each.

        Each process reads and tokenises all of the text: that is what gives the
        same order to any number of them. With `unigram_counts` and without
        pairs it masks its own rows alone.

        Args:
            part, num_parts: see `Part`. Default to all rows.

        Raises:
            ValueError: where a batch has more rows than the corpus has blocks.
        """
        tf = import_tensorflow("A stream")

        own = Part(self.batch_size, part, num_parts)
        self._check_batch_size()
        spec = tf.TensorSpec([None, self.preprocessor.sequence_length], tf.int32)
        rows = tf.data.Dataset.from_generator(self._rows, output_signature=spec).unbatch()
        batches = rows.batch(self.batch_size, drop_remainder=True)
        if not needs_whole_batches(self.preprocessor, self.unigram_counts):
            batches = batches.map(lambda batch: batch[own.rows])
        are_full = self.min_tokens >= self.preprocessor.sequence_length - 2
        batches = masked(
            batches,
            self.preprocessor,
            self.seed,
            self.first_step,
            are_full,
            may_have_marks=True,
            unigram_counts=self.unigram_counts,
            part=own,
        )
        return batches.prefetch(tf.data.AUTOTUNE)

    def consumed(self, step: int) -> None:
        """Notes that the batches before `step` were trained on: older states are let go."""
        states = self._states  # The generator's thread appends to it.
        while len(states) > 1 and states[1].rows <= step * self.batch_size:
            del states[0]

    def state(self, step: int) -> dict:
        """What a stream takes to start at `step`, soon: a dict of numbers and arrays."""
        self.consumed(step)
        return self._states[0]._asdict()

    def batch(self, step: int):
        """The batch `step`, the last one trained on or a later one."""
        stream = copy.copy(self)
        stream.start_at(step, self.state(step))
        return next(iter(stream.dataset()))

    def _check_batch_size(self):
        """Reads as many blocks as a batch has, once."""
        if self._has_a_batch:
            return
        tokenizer, length = self.preprocessor.tokenizer, self.preprocessor.sequence_length
        num_rows = self.corpus.counted_blocks.get((tokenizer, length, self.min_tokens), 0)
        if not num_rows:
            parts = self.corpus.parts_of_blocks(tokenizer, length, min_tokens=self.min_tokens)
            for blocks, _ in parts:
                num_rows += len(blocks)
                if 0 < self.batch_size <= num_rows:
                    break
        check_batch_size(self.batch_size, num_rows)
        self._has_a_batch = True

    def _rows(self):
        """Arrays `[rows, L]` from `first_step` on."""
        start = self._start
        # An iterator that is not used any more may still be filling its own list.
        states = self._states = [start]
        skip = self.first_step * self.batch_size - start.rows
        for rows in self._all_rows(start, states):
            if skip < len(rows):
                yield rows[skip:]
            skip = max(0, skip - len(rows))

    def _all_rows(self, start, states):
        rows = start.rows
        epoch = start.epoch
        while self.epochs is None or epoch < self.epochs:
            generator = np.random.default_rng([self.seed, epoch])
            order = generator.permutation(len(self.corpus.files))
            if start.generator is not None:
                generator.bit_generator.state = start.generator
            shuffle = ShuffleBuffer(self.shuffle_blocks, generator, start.buffer)
            parts = self.corpus.parts_of_blocks(
                self.preprocessor.tokenizer,
                self.preprocessor.sequence_length,
                min_tokens=self.min_tokens,
                file_order=order,
                skip=start.parts,
                rest=start.rest,
            )
            for number, (blocks, rest) in enumerate(parts, start=start.parts + 1):
                for shuffled in shuffle.push(blocks):
                    rows += len(shuffled)
                    yield shuffled
                if rows - states[-1].rows >= _BUFFERS_BETWEEN_STATES * self.shuffle_blocks:
                    states.append(
                        _State(
                            rows,
                            epoch,
                            number,
                            rest,
                            shuffle.waiting(),
                            generator.bit_generator.state,
                        )
                    )
            for shuffled in shuffle.flush():
                rows += len(shuffled)
                yield shuffled
            epoch += 1
            start = start._replace(
                parts=0, rest=start.rest[:0], buffer=start.buffer[:0], generator=None
            )
