"""Lanes: parts of a text's stream that are made each without the others.

A lane makes the same rows of every batch, of files, or ranges of large ones, of its
own. What it reads is given out by such units: a unit has a size and a place in the
corpus's order, and no more of it is known.
"""

import collections
import heapq
from collections.abc import Iterator

import numpy as np

from keras_spanbert.data.shuffle_buffer import ShuffleBuffer

MAX_LANES = 64
# The longest lane, by the mean. In steps that make one epoch of text, a lane of that length leaves
# a fifth of its share unread, and short ones have begun another.
_MOST_UNEVEN = 1.25
# Copying the buffer must cost little beside filling it.
_BUFFERS_BETWEEN_STATES = 4

# Where in a lane its generator was, between two parts of the text.
LaneState = collections.namedtuple(
    "LaneState",
    [
        "rows",  # int, given out so far
        "epoch",  # int
        "parts",  # int, of the epoch's text read so far
        "rest",  # int32 [tokens], of an unfinished document
        "buffer",  # int32 [filled, L], what waits in the shuffle buffer
        "generator",  # dict, state of NumPy's generator
    ],
)


def share(sizes: np.ndarray, lanes: int) -> np.ndarray:
    """Shares units evenly by size: the number of each one's share, -1 for empty units."""
    sizes = np.asarray(sizes)
    shares = np.full(len(sizes), -1)
    filled = [(0.0, number) for number in range(lanes)]
    for unit in np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes)]:
        size, number = filled[0]
        shares[unit] = number
        heapq.heapreplace(filled, (size + sizes[unit], number))
    return shares


def choose_lanes(sizes: np.ndarray, batch_size: int) -> int:
    """The largest power of two that divides a batch and gives lanes of about one length.

    Args:
        sizes: floats `[units]`.
        batch_size: int.
    """
    sizes = np.asarray(sizes)
    lanes = MAX_LANES
    while lanes > 1:
        if batch_size % lanes == 0 and lanes <= np.count_nonzero(sizes):
            shares = share(sizes, lanes)
            filled = np.bincount(shares[shares >= 0], sizes[shares >= 0])
            if filled.max() <= _MOST_UNEVEN * filled.mean():
                break
        lanes //= 2
    return lanes


class Lane:
    """Shuffled blocks of a lane, `[rows, L]` each, from a state on.

    In each epoch of its own it reads one of the even shares of the units, by
    the seed and the epoch another one than the other lanes do, in an order
    drawn anew. With one lane this is the whole text.

    Args:
        number: int.
        shares: see `share`.
        read: function of an order of units, a number of parts to skip and the
            tokens left of the last of these, as `Corpus.parts_of_blocks`.
        seed: int.
        epochs: int, or `None`, without end.
        shuffle_blocks: int.
    """

    def __init__(self, number: int, shares, read, seed, epochs: int | None, shuffle_blocks: int):
        self.number = number
        self.shares = shares
        self.read = read
        self.seed = seed
        self.epochs = epochs
        self.shuffle_blocks = shuffle_blocks

    def order(self, epoch: int) -> tuple[np.ndarray, np.random.Generator]:
        """The units of an epoch in their order, and what the epoch's shuffling draws from."""
        generator = np.random.default_rng([self.seed, epoch])
        units = generator.permutation(len(self.shares))
        own = generator.permutation(self.shares.max() + 1)[self.number]
        if self.number:
            generator = np.random.default_rng([self.seed, epoch, self.number])
        return units[self.shares[units] == own], generator

    def rows(self, states: list[LaneState]) -> Iterator[np.ndarray]:
        """Yields from the last one of `states` on, to which it adds later ones."""
        start = states[-1]
        rows, epoch = start.rows, start.epoch
        while self.epochs is None or epoch < self.epochs:
            units, generator = self.order(epoch)
            if start.generator is not None:
                generator.bit_generator.state = start.generator
            shuffle = ShuffleBuffer(self.shuffle_blocks, generator, start.buffer)
            parts = self.read(units, start.parts, start.rest)
            for number, (blocks, rest) in enumerate(parts, start=start.parts + 1):
                for shuffled in shuffle.push(blocks):
                    rows += len(shuffled)
                    yield shuffled
                if rows - states[-1].rows >= _BUFFERS_BETWEEN_STATES * self.shuffle_blocks:
                    states.append(
                        LaneState(
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


class Rows:
    """Rows of arrays, by any number.

    Args:
        arrays: iterator of arrays.
    """

    def __init__(self, arrays: Iterator[np.ndarray]):
        self._arrays = arrays
        self._rest = None

    def skip(self, number: int) -> None:
        """Leaves out the next rows."""
        while number > 0 and (array := next(self._arrays, None)) is not None:
            self._rest = array[number:]
            number -= len(array)

    def take(self, number: int) -> np.ndarray:
        """The next rows, fewer at the end."""
        found = [] if self._rest is None else [self._rest]
        size = sum(map(len, found))
        while size < number and (array := next(self._arrays, None)) is not None:
            found.append(array)
            size += len(array)
        if not found:
            return np.zeros(0)
        rows = found[0] if len(found) == 1 else np.concatenate(found)
        self._rest = rows[number:]
        return rows[:number]
