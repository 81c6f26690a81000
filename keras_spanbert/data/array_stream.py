"""Shuffled batches of rows without end, from any step on."""

import dataclasses

import numpy as np

from keras_spanbert.optional import import_tensorflow


def check_batch_size(batch_size: int, num_rows: int) -> None:
    """Raises a ValueError where a batch has more rows than there are, if there are any."""
    if batch_size < 1 or 0 < num_rows < batch_size:
        raise ValueError(
            f"`batch_size` (--batch_size) must be from 1 to the data's {num_rows:,} rows. "
            f"Received: batch_size={batch_size}"
        )


def epoch_order(num_rows: int, seed: int, epoch: int) -> np.ndarray:
    """The order of an epoch's rows, `[num_rows]`, from the seed and the epoch alone."""
    return np.random.default_rng([seed, epoch]).permutation(num_rows)


@dataclasses.dataclass(frozen=True)
class Part:
    """The rows of each batch that are one process's.

    Args:
        batch_size: int, of all processes together.
        part, num_parts: ints. Rows are shared evenly, in order.

    Raises:
        ValueError: where they cannot be.
    """

    batch_size: int
    part: int = 0
    num_parts: int = 1

    def __post_init__(self):
        if not 0 <= self.part < self.num_parts or self.batch_size % self.num_parts:
            raise ValueError(
                "A batch must be shared evenly by parts, numbered from 0. Received: batch_size="
                f"{self.batch_size}, part={self.part}, num_parts={self.num_parts}"
            )

    @property
    def size(self) -> int:
        """Rows of the part."""
        return self.batch_size // self.num_parts

    @property
    def rows(self) -> slice:
        """Where they are in the batch."""
        return slice(self.part * self.size, (self.part + 1) * self.size)


class RowStream:
    """The order of batches of numbered rows, and a place in it.

    It is drawn anew in each epoch, from `seed` and the epoch alone. Epochs run
    into one another.

    Args:
        num_rows: int.
        batch_size: int.
        seed: int.

    Raises:
        ValueError: where there are no rows, or fewer than a batch has.
    """

    def __init__(self, num_rows: int, batch_size: int, seed):
        if num_rows < 1:
            raise ValueError(f"A stream must have a row or more. Received: num_rows={num_rows}")
        check_batch_size(batch_size, num_rows)
        self.num_rows = num_rows
        self.batch_size = batch_size
        self.seed = seed
        self.first_step = 0

    def start_at(self, step: int, state: dict | None = None) -> None:
        """Has datasets made from now on start at batch `step`: see `TrainingStream`."""
        before = (state or {}).get("num_rows", self.num_rows)
        if before != self.num_rows:
            raise ValueError(
                f"The data must have the {before:,} rows that it had until a run ends; a new run "
                f"(--preset) trains its model on others. Received: {self.num_rows:,} rows"
            )
        self.first_step = step

    def consumed(self, step: int) -> None:
        """See `TrainingStream`."""

    def state(self, step: int) -> dict:
        """See `TrainingStream`. The step says it all but for the number of rows, a check."""
        return {"num_rows": self.num_rows}

    def num_tokens(self) -> tuple[int, int] | None:
        """Tokens of an epoch, and with them the padding; `None` where it is not known."""
        return None

    def _rows(self, step):
        """Indices `[batch_size]` of the rows of each batch from `step` on."""
        epoch, row = divmod(step * self.batch_size, self.num_rows)
        waiting = self._order(epoch)[row:]
        while True:
            while len(waiting) < self.batch_size:
                epoch += 1
                waiting = np.concatenate([waiting, self._order(epoch)])
            yield waiting[: self.batch_size]
            waiting = waiting[self.batch_size :]

    def _order(self, epoch):
        return epoch_order(self.num_rows, self.seed, epoch)


class ArrayStream(RowStream):
    """Batches of the rows of arrays, in an order drawn anew in each epoch.

    See `RowStream`.

    Args:
        arrays: nested tuples and dicts of arrays with as many rows each.
        batch_size: int.
        seed: int.

    Example:
    ```python
    stream = ArrayStream((inputs, labels), batch_size=32, seed=1)
    model.fit(stream.dataset(), steps_per_epoch=1000)
    ```
    """

    def __init__(self, arrays, batch_size: int, seed):
        tf = import_tensorflow("A stream")

        super().__init__(len(tf.nest.flatten(arrays)[0]), batch_size, seed)
        self.arrays = arrays

    def batch(self, step: int):
        """The batch `step`."""
        tf = import_tensorflow("A stream")

        rows = next(self._rows(step))
        return tf.nest.map_structure(lambda array: array[rows], self.arrays)

    def num_tokens(self) -> tuple[int, int] | None:
        """See `RowStream`; of inputs with a `padding_mask`."""
        inputs = self.arrays[0] if isinstance(self.arrays, tuple) else self.arrays
        mask = inputs.get("padding_mask") if isinstance(inputs, dict) else None
        return None if mask is None else (int(np.count_nonzero(mask)), int(np.size(mask)))

    def dataset(self, part: int = 0, num_parts: int = 1):
        """`tf.data.Dataset` of batches, or of a process's rows of each.

        Args:
            part, num_parts: see `Part`. Default to all rows.
        """
        tf = import_tensorflow("A stream")

        own = Part(self.batch_size, part, num_parts)
        rows = tf.data.Dataset.from_generator(
            lambda: (rows[own.rows] for rows in self._rows(self.first_step)),
            output_signature=tf.TensorSpec([own.size], tf.int64),
        )
        tensors = tf.nest.map_structure(tf.constant, self.arrays)
        return rows.map(
            lambda rows: tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), tensors)
        ).prefetch(tf.data.AUTOTUNE)
