"""Endless shuffled batches of rows of similar length, which can start at any step."""

import numpy as np

from keras_spanbert.data.array_stream import BatchShard, RowStream, apply_weights
from keras_spanbert.models.length_batches import epoch_batches, row_lengths, trim, trim_length
from keras_spanbert.optional import require


class LengthGroupedStream(RowStream):
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
        self.arrays = tuple(array for array in arrays if array is not None)
        self.sizes = row_lengths(self.arrays[0])
        super().__init__(len(self.sizes), batch_size, seed, whole_epochs=True)

    def _epoch(self, epoch):
        return epoch_batches(self.sizes, self.batch_size, self.seed, epoch)

    def _length(self, rows):
        length = self.arrays[0]["token_ids"].shape[-1]
        return trim_length(self.sizes[rows].max(), length)

    def num_tokens(self) -> tuple[int, int]:
        """See `RowStream`. The counts are those of the first epoch."""
        mask = self.arrays[0]["padding_mask"]
        sequences = mask[0].size // mask.shape[-1]
        positions = sum(self._length(rows) * len(rows) * sequences for rows in self._epoch(0))
        return int(np.count_nonzero(mask)), positions

    def padding(self) -> float:
        """Returns the share of padding among the tokens of an epoch."""
        tokens, positions = self.num_tokens()
        return 1.0 - tokens / positions

    def dataset(self, part: int = 0, num_parts: int = 1):
        """See `ArrayStream.dataset`."""
        tf = require("tensorflow", "A stream")

        batch_shard = BatchShard(self.batch_size, part, num_parts)

        def batches():
            for rows, weights in self._rows(self.first_step):
                yield rows[batch_shard.rows], weights[batch_shard.rows], self._length(rows)

        signature = (*batch_shard.signature(), tf.TensorSpec([], tf.int32))
        dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
        tensors = tf.nest.map_structure(tf.constant, self.arrays)

        def gather(rows, weights, length):
            batch = tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), tensors)
            return trim(apply_weights(batch, weights) if self.has_weights else batch, length)

        return dataset.map(gather).prefetch(tf.data.AUTOTUNE)
