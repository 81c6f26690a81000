"""A shuffle whose state can be kept."""

from collections.abc import Iterator

import numpy as np


class ShuffleBuffer:
    """Shuffles the rows of arrays through a buffer of `size` rows.

    Args:
        size: int.
        generator: `numpy.random.Generator`.
        waiting: array `[rows, ...]`, what `waiting` gave, perhaps no rows.
            Defaults to `None`: `waiting` needs a row first.
    """

    def __init__(self, size: int, generator: np.random.Generator, waiting=None):
        self.size = size
        self.generator = generator
        self._buffer = None
        self._filled = 0
        if waiting is not None:
            self._fill(waiting)

    def push(self, array: np.ndarray) -> Iterator[np.ndarray]:
        """Takes rows, and yields as many others once the buffer is full."""
        for start in range(0, len(array), self.size):
            rows = self._fill(array[start : start + self.size])
            if len(rows):
                places = self.generator.permutation(self.size)[: len(rows)]
                yield self._buffer[places]
                self._buffer[places] = rows

    def flush(self) -> Iterator[np.ndarray]:
        """Yields what is left."""
        if self._filled:
            yield self._buffer[self.generator.permutation(self._filled)]
            self._filled = 0

    def waiting(self) -> np.ndarray:
        """What is in the buffer, to go on with."""
        return self._buffer[: self._filled].copy()

    def _fill(self, rows):
        """Rows for which there is no room."""
        if self._buffer is None:
            self._buffer = np.zeros((self.size, *rows.shape[1:]), rows.dtype)
        first, rows = np.split(rows, [self.size - self._filled])
        self._buffer[self._filled : self._filled + len(first)] = first
        self._filled += len(first)
        return rows
