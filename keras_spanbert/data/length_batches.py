"""Shuffled batches of rows of like length without end, from any step on."""

import itertools

import numpy as np

from keras_spanbert.data.array_stream import Part, RowStream
from keras_spanbert.models.length_batches import (
    BATCHES_AT_ONCE,
    order_by_length,
    sizes_of,
    trim,
    trimmed_length,
)
from keras_spanbert.optional import import_tensorflow


class LengthGroupedStream(RowStream):
    """Batches of rows of like length, cut to few lengths, so that little is padding.

    Of 50 batches at most, an epoch or an equal part of it, the rows are sorted by
    length and the batches shuffled: see `RowStream`.

    Args:
        arrays: `(x, y)` or `(x, y, sample_weight)`: a dict of a model's arrays,
            `[N, L]` or with more axes between, and arrays `[N]` or `[N, L]`.
        batch_size: int.
        seed: int.

    Raises:
        ValueError: where there are no rows, or fewer than a batch has.

    Example:
    ```python
    stream = LengthGroupedStream((inputs, labels), batch_size=32, seed=1)
    model.fit(stream.dataset(), steps_per_epoch=1000)
    ```
    """

    def __init__(self, arrays: tuple, batch_size: int, seed):
        self.arrays = tuple(array for array in arrays if array is not None)
        self.sizes = sizes_of(self.arrays[0])
        super().__init__(len(self.sizes), batch_size, seed)
        # Parts of as many batches each, so that an epoch has nearly every row once.
        in_epoch = self.num_rows // batch_size
        self.num_batches = -(-in_epoch // -(-in_epoch // BATCHES_AT_ONCE))

    def _rows(self, step):
        part, first = divmod(step, self.num_batches)
        rows = super()._rows(part * self.num_batches)
        for number in itertools.count(part):
            together = np.concatenate(list(itertools.islice(rows, self.num_batches)))
            seed = [self.seed, number, 1]
            yield from order_by_length(together, self.sizes, self.batch_size, seed)[first:]
            first = 0

    def _length(self, rows):
        length = self.arrays[0]["token_ids"].shape[-1]
        return trimmed_length(self.sizes[rows].max(), length)

    def num_tokens(self) -> tuple[int, int]:
        """See `RowStream`."""
        # An epoch leaves out what fills no batch.
        batched = self.num_rows // self.batch_size * self.batch_size
        return tuple(round(count * self.num_rows / batched) for count in self._counts())

    def padding(self) -> float:
        """The share of an epoch's tokens that is padding."""
        tokens, positions = self._counts()
        return 1.0 - tokens / positions

    def _counts(self):
        """Tokens of the batches of the first epoch, and with them the padding."""
        taken = list(itertools.islice(self._rows(0), self.num_rows // self.batch_size))
        mask = self.arrays[0]["padding_mask"]
        sequences = mask[0].size // mask.shape[-1]
        tokens = sum(int(np.count_nonzero(mask[rows])) for rows in taken)
        return tokens, sum(self._length(rows) * len(rows) * sequences for rows in taken)

    def dataset(self, part: int = 0, num_parts: int = 1):
        """See `ArrayStream.dataset`."""
        tf = import_tensorflow("A stream")

        own = Part(self.batch_size, part, num_parts)

        def batches():
            for rows in self._rows(self.first_step):
                yield rows[own.rows], self._length(rows)

        signature = (tf.TensorSpec([own.size], tf.int64), tf.TensorSpec([], tf.int32))
        dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
        tensors = tf.nest.map_structure(tf.constant, self.arrays)

        def gather(rows, length):
            batch = tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), tensors)
            return trim(batch, length)

        return dataset.map(gather).prefetch(tf.data.AUTOTUNE)
