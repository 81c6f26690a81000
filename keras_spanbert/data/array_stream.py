"""Endless shuffled batches of rows, which can start at any step."""

import copy
import dataclasses
import itertools

import numpy as np

from keras_spanbert.checks import check_counts, check_flags, check_id, is_integer
from keras_spanbert.models.length_batches import epoch_batches, row_lengths, trim, trim_length
from keras_spanbert.optional import require


def epoch_order(num_rows: int, seed: int, epoch: int) -> np.ndarray:
    """Returns the order of an epoch's rows, `[num_rows]`, from the seed and the epoch."""
    return np.random.default_rng([seed, epoch]).permutation(num_rows)


@dataclasses.dataclass(frozen=True)
class BatchShard:
    """The rows of each batch that belong to one process.

    Args:
        batch_size: int. Batch size of all processes together.
        part, num_parts: ints. The index of the part, from 0, and the number of
            equal parts of consecutive rows.

    Raises:
        ValueError: if the rows cannot be split evenly.
    """

    batch_size: int
    part: int = 0
    num_parts: int = 1

    def __post_init__(self):
        check_counts(batch_size=self.batch_size, num_parts=self.num_parts)
        check_id("part", self.part)
        if not 0 <= self.part < self.num_parts or self.batch_size % self.num_parts:
            raise ValueError(
                "`part` must be in [0, num_parts), and `batch_size` a multiple of `num_parts`. "
                f"Received: batch_size={self.batch_size}, part={self.part}, "
                f"num_parts={self.num_parts}"
            )

    @property
    def size(self) -> int:
        """Number of rows of the shard."""
        return self.batch_size // self.num_parts

    @property
    def rows(self) -> slice:
        """Slice of the batch with the rows of the shard."""
        return slice(self.part * self.size, (self.part + 1) * self.size)


class RowStream:
    """Endless batches of row numbers, which can start at any step.

    Each epoch has a new random order, which depends on `seed` and the epoch.

    Args:
        num_rows: int.
        batch_size: int.
        seed: int.
        whole_epochs: bool. Whether each epoch contains every row exactly once. If
            the last batch is not full, rows of weight 0 are added. Defaults to
            `False`: a batch can contain rows of two epochs.

    Raises:
        ValueError: if there are no rows, or fewer than `batch_size`.
    """

    def __init__(self, num_rows: int, batch_size: int, seed, whole_epochs: bool = False):
        if num_rows < 1:
            raise ValueError(f"A stream must have at least one row. Received: num_rows={num_rows}")
        check_id("seed", seed)
        check_flags(whole_epochs=whole_epochs)
        if not is_integer(batch_size) or not 1 <= batch_size <= num_rows:
            raise ValueError(
                f"`batch_size` (--batch_size) must be from 1 to the number of rows, {num_rows:,}. "
                f"Received: batch_size={batch_size!r}"
            )
        self.num_rows = num_rows
        self.batch_size = batch_size
        self.seed = seed
        self.whole_epochs = whole_epochs
        self.first_step = 0

    @property
    def num_batches(self) -> int:
        """Number of batches per epoch, including a last one that is not full."""
        return -(-self.num_rows // self.batch_size)

    @property
    def has_weights(self) -> bool:
        """Whether batches have weights, because the last one of each epoch is not full."""
        return self.whole_epochs and self.num_rows % self.batch_size > 0

    def start_at(self, step: int, state: dict | None = None) -> None:
        """Makes new datasets start at batch `step`.

        Args:
            step: int.
            state: dict, an earlier result of `state`, to check that the data is the
                same. Defaults to `None`: the data is not checked.
        """
        if state not in (None, self.state()):
            before = state.get("num_rows")
            received = f"{before:,} rows at the start and {self.num_rows:,} now"
            if before == self.num_rows:
                received = f"{before:,} rows that have changed"
            raise ValueError(
                "The data must be the same until the run ends. To train the model on other data, "
                f"start a new run (--preset). Received: {received}"
            )
        self.first_step = step

    def state(self) -> dict:
        """Returns a description of the data that `start_at` compares: the number of rows."""
        return {"num_rows": self.num_rows}

    def batch(self, step: int):
        """Returns the batch `step` as NumPy arrays."""
        stream = copy.copy(self)
        stream.first_step = step
        return next(stream.dataset().as_numpy_iterator())

    def _rows(self, step):
        """Yields the row numbers and weights, `[batch_size]` each, of the batches from `step`."""
        for rows in self._batches(step):
            weights = np.zeros(self.batch_size, "float32")
            weights[: len(rows)] = 1.0
            yield np.resize(rows, self.batch_size), weights

    def _batches(self, step):
        if self.whole_epochs:
            epoch, first = divmod(step, self.num_batches)
            yield from self._epoch(epoch)[first:]
            for later in itertools.count(epoch + 1):
                yield from self._epoch(later)
        epoch, row = divmod(step * self.batch_size, self.num_rows)
        waiting = self._order(epoch)[row:]
        while True:
            while len(waiting) < self.batch_size:
                epoch += 1
                waiting = np.concatenate([waiting, self._order(epoch)])
            yield waiting[: self.batch_size]
            waiting = waiting[self.batch_size :]

    def _epoch(self, epoch):
        """Returns the rows of each batch of a whole epoch."""
        order = self._order(epoch)
        return [order[i : i + self.batch_size] for i in range(0, self.num_rows, self.batch_size)]

    def _order(self, epoch):
        return epoch_order(self.num_rows, self.seed, epoch)


class ArrayStream(RowStream):
    """Endless shuffled batches of the rows of arrays, in a new order in each epoch.

    Args:
        arrays: nested tuples and dicts of arrays with the same number of rows.
            With `whole_epochs`, `(x, y)` or `(x, y, sample_weight)`.
        batch_size: int.
        seed: int.
        whole_epochs: bool. See `RowStream`. If it is `True`, the loss and metrics
            must be weighted means, as with Keras's `"mean_with_sample_weight"`
            and `weighted_metrics`. Defaults to `False`.

    Example:
    ```python
    stream = ArrayStream((inputs, labels), batch_size=32, seed=1)
    model.fit(stream.dataset(), steps_per_epoch=1000)
    ```
    """

    def __init__(self, arrays, batch_size: int, seed, whole_epochs: bool = False):
        tf = require("tensorflow", "A stream")

        super().__init__(len(tf.nest.flatten(arrays)[0]), batch_size, seed, whole_epochs)
        self.arrays = arrays

    def dataset(self, part: int = 0, num_parts: int = 1):
        """Returns a `tf.data.Dataset` of batches, or of one process's rows of each batch.

        Args:
            part, num_parts: see `BatchShard`. Default to `0`, `1`: all rows.
        """
        tf = require("tensorflow", "A stream")

        shard = BatchShard(self.batch_size, part, num_parts)

        def batches():
            for rows, weights in self._rows(self.first_step):
                # All processes cut their rows of a batch to the same length.
                yield rows[shard.rows], weights[shard.rows], self._length(rows)

        rows, weights = (tf.TensorSpec([shard.size], kind) for kind in (tf.int64, tf.float32))
        signature = rows, weights, tf.TensorSpec([], tf.int32)
        dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
        tensors = tf.nest.map_structure(tf.constant, self.arrays)

        def gather(rows, weights, length):
            batch = tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), tensors)
            return self._trim(_apply_weights(batch, weights) if self.has_weights else batch, length)

        return dataset.map(gather).prefetch(tf.data.AUTOTUNE)

    def _length(self, rows):
        """Returns the length to which `_trim` cuts a batch of these rows, 0 if it does not."""
        return 0

    def _trim(self, batch, length):
        return batch


def _apply_weights(batch, weights):
    """Multiplies a batch's sample weights by `weights` `[B]`. Returns `(x, y, sample_weight)`."""
    import tensorflow as tf

    x, y, *given = batch

    def times(array):
        shape = [-1, *[1] * (array.shape.rank - 1)]
        return array * tf.cast(tf.reshape(weights, shape), array.dtype)

    return x, y, tf.nest.map_structure(times, given[0]) if given else weights


class LengthGroupedStream(ArrayStream):
    """Batches of rows of similar length, each cut to one of a few lengths to reduce padding.

    Each epoch contains every row once: see `RowStream` and `epoch_batches`.

    Args:
        arrays: `(x, y)` or `(x, y, sample_weight)`. `x` is a dict of a model's
            arrays, `[N, L]` or with more axes between N and L. Labels are `[N]` or
            `[N, C]` with weights `[N]`, or both are `[N, L]`.
        batch_size: int.
        seed: int.

    Raises:
        ValueError: if there are no rows, or fewer than `batch_size`.

    Example:
    ```python
    stream = LengthGroupedStream((inputs, labels), batch_size=32, seed=1)
    model.fit(stream.dataset(), steps_per_epoch=1000)
    ```
    """

    def __init__(self, arrays: tuple, batch_size: int, seed):
        arrays = tuple(array for array in arrays if array is not None)
        super().__init__(arrays, batch_size, seed, whole_epochs=True)
        self.sizes = row_lengths(arrays[0])

    def _epoch(self, epoch):
        return epoch_batches(self.sizes, self.batch_size, self.seed, epoch)

    def _length(self, rows):
        length = self.arrays[0]["token_ids"].shape[-1]
        return trim_length(self.sizes[rows].max(), length)

    def _trim(self, batch, length):
        return trim(batch, length)

    def padding(self) -> float:
        """Returns the share of padding among the tokens of an epoch."""
        mask = self.arrays[0]["padding_mask"]
        sequences = mask[0].size // mask.shape[-1]
        positions = sum(self._length(rows) * len(rows) * sequences for rows in self._epoch(0))
        return 1.0 - np.count_nonzero(mask) / positions
