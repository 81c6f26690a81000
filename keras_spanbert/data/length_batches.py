"""Endless shuffled batches of rows of similar length, which can start at any step."""

import numpy as np

from keras_spanbert.data.array_stream import ArrayStream
from keras_spanbert.models.length_batches import epoch_batches, row_lengths, trim, trim_length


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
