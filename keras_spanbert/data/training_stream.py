"""Masked batches of a corpus without end, from any step on."""

import copy
import io
import json

import numpy as np

from keras_spanbert.data.array_stream import Part, check_batch_size
from keras_spanbert.data.lanes import Lane, LaneState, Rows, choose_lanes, share
from keras_spanbert.data.masked_batches import check_corpus, masked, needs_whole_batches
from keras_spanbert.distribution import all_gather_bytes
from keras_spanbert.optional import import_tensorflow

# Rows that are handed to `tf.data` at once.
_ROWS_AT_ONCE = 512


class TrainingStream:
    """Batches of shuffled blocks, masked, fixed by `seed` altogether.

    A stream is made of lanes, as many as suit the files and the batch, however
    many processes there are. With `n` lanes, lane `i` makes the `i`-th `n`-th of
    the rows of each batch. The files, and the ranges of those above 64 MB, are
    shared evenly among the lanes, by their length; in each epoch a lane has another
    share, in an order drawn anew, and its blocks come through a shuffle buffer of
    its own. A lane goes to its next epoch without the others, when it has read its
    share: in each epoch each document is read once, by one lane, but for a moment
    some lanes may be in the next epoch already. Masks come from the row's number,
    or the batch's. So neither the parallelism nor the machine matters, and a
    process that takes part of the rows reads the text of their lanes alone.

    Args:
        corpus: `Corpus`.
        preprocessor: `SpanBertPretrainerPreprocessor`.
        batch_size: int.
        seed: int.
        epochs: int. The stream has one lane then, and each block so many times
            but for an incomplete last batch. Defaults to `None`, without end.
        min_tokens: see `Corpus.blocks`.
        shuffle_blocks: int. Size of the shuffle buffers of all lanes together.
        unigram_counts: see `SpanMasking`, as `Corpus.token_counts` gives them.
            With them a row's masks come from its number, and each of several
            processes masks its own rows alone. Defaults to `None`: masks come
            from the batch and its number.
        lanes: int. Defaults to `None`, those of the state that the stream
            starts at, in the beginning the largest power of two, at most 64,
            that divides `batch_size` and gives lanes that are about equally
            long. With `epochs` and several lanes the stream ends with the first
            lane that does.

    Attributes:
        lanes: int.

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
        lanes: int | None = None,
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
        self._read = Part(batch_size)
        self._given_lanes = lanes
        if lanes is None and epochs is None:
            lanes = choose_lanes(corpus.training_sizes(), batch_size)
        lanes = 1 if lanes is None else lanes
        empty = np.zeros(0, np.int32), np.zeros((0, preprocessor.sequence_length), np.int32)
        start = LaneState(0, 0, 0, *empty, None)
        self.start_at(0, _flat([start] * lanes))

    def start_at(self, step: int, state: dict) -> None:
        """Has datasets made from now on start at batch `step`.

        Args:
            step: int.
            state: dict from `state`, at `step` or before, of a stream with the
                same arguments.
        """
        if "rows" in state:  # Of before there were lanes, and ranges of files.
            self.corpus.joins_ranges = True
        starts = _lane_states(state)
        lanes = len(starts)
        sizes = self.corpus.training_sizes()
        most = np.count_nonzero(sizes)
        if not 1 <= lanes <= most or self.batch_size % lanes:
            raise ValueError(
                f"`lanes` must be from 1 to the {most:,} files, or ranges of large ones, with text "
                f"to train on, and divide `batch_size`. Received: lanes={lanes}, "
                f"batch_size={self.batch_size}"
            )
        if self._given_lanes not in (None, lanes):
            raise ValueError(
                f"`lanes` must be those of `state`, or None. Received: lanes={self._given_lanes} "
                f"with a state of {lanes} lanes"
            )
        row = max(start.rows for start in starts)
        if row * lanes > step * self.batch_size:
            raise ValueError(
                f"`state` must be of `step` or before. Received: state of row {row * lanes:,}, "
                f"step={step} with batch_size={self.batch_size}"
            )
        self.first_step = step
        self.lanes = lanes
        self._shares = share(sizes, lanes)
        self._starts = starts
        self._states = [[start] for start in starts]

    def dataset(self, part: int = 0, num_parts: int = 1):
        """`tf.data.Dataset` of `(x, y, sample_weight)`, or of a process's rows of each.

        A process reads and tokenises what the lanes of its rows read. With
        `unigram_counts` and without pairs these are its own rows, which it masks
        alone; else all rows.

        Args:
            part, num_parts: see `Part`. Default to all rows.

        Raises:
            ValueError: where a batch has more rows than the corpus has blocks.
        """
        tf = import_tensorflow("A stream")

        own = Part(self.batch_size, part, num_parts)
        self._check_batch_size()
        is_whole = needs_whole_batches(self.preprocessor, self.unigram_counts)
        read = self._read = Part(self.batch_size) if is_whole else own
        shape = [None, read.size, self.preprocessor.sequence_length]
        blocks = tf.data.Dataset.from_generator(
            lambda: self._blocks(read.rows), output_signature=tf.TensorSpec(shape, tf.int32)
        )
        are_full = self.min_tokens >= self.preprocessor.sequence_length - 2
        batches = masked(
            blocks.unbatch(),
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
        for states in self._states:  # The generator's thread appends to them.
            while len(states) > 1 and states[1].rows * self.lanes <= step * self.batch_size:
                del states[0]

    def state(self, step: int) -> dict:
        """What a stream takes to start at `step`, soon: a dict of numbers and arrays.

        Where processes have parts of the batches, all must ask, at the same step.
        """
        self.consumed(step)
        # Not by which lanes are made here: all must ask, or none.
        if self._read.num_parts > 1 and self.lanes > 1:
            made = self._lanes_of(self._read.rows)
            own = _packed({i: self._states[i][0] for i in made})
            for others in map(_unpacked, all_gather_bytes(own)):
                for i in others.keys() - made:
                    self._states[i] = [others[i]]
        return _flat([states[0] for states in self._states])

    def batch(self, step: int):
        """The batch `step`, the last one trained on or a later one; all must ask: see `state`."""
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

    def _lanes_of(self, rows):
        """The lanes that a slice of each batch takes."""
        size = self.batch_size // self.lanes
        return range(rows.start // size, -(-rows.stop // size))

    def _blocks(self, rows):
        """Arrays `[batches, rows, L]` from `first_step` on, of a slice of each batch."""
        size = self.batch_size // self.lanes
        # An iterator that is not used any more may still be filling its own lists.
        states = self._states = [[start] for start in self._starts]
        made = self._lanes_of(rows)
        lanes = [Rows(self._lane(i).rows(states[i])) for i in made]
        for i, lane in zip(made, lanes):
            lane.skip(self.first_step * size - self._starts[i].rows)
        own = slice(rows.start - made.start * size, rows.stop - made.start * size)
        batches = 1  # The first one soon.
        while True:
            taken = [lane.take(batches * size) for lane in lanes]
            whole = min(map(len, taken)) // size
            if whole:
                shape = whole, size, self.preprocessor.sequence_length
                parts = [rows[: whole * size].reshape(shape) for rows in taken]
                yield np.concatenate(parts, axis=1)[:, own]
            if whole < batches:
                return
            batches = max(1, _ROWS_AT_ONCE // self._read.size)

    def _lane(self, number):
        def read(units, skip, rest):
            return self.corpus.parts_of_blocks(
                self.preprocessor.tokenizer,
                self.preprocessor.sequence_length,
                min_tokens=self.min_tokens,
                order=units,
                skip=skip,
                rest=rest,
            )

        return Lane(
            number,
            self._shares,
            read,
            self.seed,
            self.epochs,
            max(1, self.shuffle_blocks // self.lanes),
        )


def _flat(states):
    """The states of all lanes as one dict, without lists."""
    return {
        f"{i}/{name}": value
        for i, state in enumerate(states)
        for name, value in state._asdict().items()
    }


def _packed(states):
    """States by the numbers of their lanes, as bytes that other processes can read."""
    arrays, rest = {}, {}
    for i, state in states.items():
        for name, value in state._asdict().items():
            if isinstance(value, np.ndarray):
                arrays[f"{i}/{name}"] = value
            else:
                rest.setdefault(i, {})[name] = value
    file = io.BytesIO()
    np.savez(file, rest=json.dumps(rest), **arrays)
    return file.getvalue()


def _unpacked(data):
    """What `_packed` was given."""
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        arrays = dict(file)
    states = {int(i): values for i, values in json.loads(str(arrays.pop("rest"))).items()}
    for key, array in arrays.items():
        i, name = key.split("/")
        states[int(i)][name] = array
    return {i: LaneState(**values) for i, values in states.items()}


def _lane_states(flat):
    """What `_flat` was given; or a state of before there were lanes."""
    if "rows" in flat:
        return [LaneState(**flat)]
    states = {}
    for key, value in flat.items():
        i, name = key.split("/")
        states.setdefault(int(i), {})[name] = value
    return [LaneState(**states[i]) for i in sorted(states)]
