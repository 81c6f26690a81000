"""Batches of rows of like length, cut to few lengths: little of a batch is padding.

Legend: N = rows, L = tokens a row.
"""

import itertools
from collections.abc import Iterator

import keras
import numpy as np

# What has L as its last axis; labels and weights have it where they have more axes than one.
SEQUENCES = ("token_ids", "segment_ids", "padding_mask")
# Rows of so many batches are sorted at once: of the others, each batch has any.
BATCHES_AT_ONCE = 50
_SHORTEST = 8


def round_up(size: int, per_octave: int = 4) -> int:
    """The least of the few sizes that holds `size`.

    Args:
        size: int.
        per_octave: int, a power of 2. How many there are from one power of 2 to
            the next: with 4 of them 1 to 8, 10, 12, 14, 16, 20, ... Defaults to `4`.
    """
    if size <= 2 * per_octave:
        return max(size, 1)
    step = (1 << ((size - 1).bit_length() - 1)) // per_octave
    return -(-size // step) * step


def sizes_of(inputs: dict) -> np.ndarray:
    """Tokens of each row of inputs, the most of its sequences where it has several: int `[N]`."""
    mask = np.asarray(inputs["padding_mask"])
    last = mask.shape[-1] - np.argmax(mask[..., ::-1] > 0, axis=-1)
    sizes = np.where(mask.any(axis=-1), last, 0)
    return sizes.max(axis=tuple(range(1, sizes.ndim)), initial=0)


def trimmed_length(size: int, length: int, per_octave: int = 2) -> int:
    """Tokens to cut rows to, of which the longest has `size`."""
    return min(max(round_up(int(size), per_octave), _SHORTEST), length)


def trim(batch: tuple, length: int) -> tuple:
    """`(x, y, sample_weight)` with the first `length` tokens of each row."""
    x, *rest = batch
    x = {name: array[..., :length] if name in SEQUENCES else array for name, array in x.items()}
    return x, *(y if y is None or len(y.shape) < 2 else y[:, :length] for y in rest)


def order_by_length(rows: np.ndarray, sizes: np.ndarray, batch_size: int, seed) -> list[np.ndarray]:
    """Rows as batches of like length, in random order.

    Args:
        rows: int `[n]`, in random order.
        sizes: int `[N]`, tokens of all rows.
        batch_size: int.
        seed: int, or list of ints.
    """
    rows = rows[np.argsort(sizes[rows], kind="stable")]
    batches = [rows[i : i + batch_size] for i in range(0, len(rows), batch_size)]
    return [batches[i] for i in np.random.default_rng(seed).permutation(len(batches))]


class LengthBatches(keras.utils.PyDataset):
    """Rows of arrays as batches of like length, for `fit` and `evaluate`.

    Args:
        arrays: `(x, y, sample_weight)`, x a dict of arrays of the model, `y` and
            `sample_weight` an array `[N]` or `[N, L]`, or `None`.
        batch_size: int. The last batch may have fewer rows.
        shuffle: bool. Whether rows come in an order drawn anew in each epoch.
        seed: int.
    """

    def __init__(self, arrays: tuple, batch_size: int, shuffle: bool, seed: int):
        super().__init__()
        self.arrays = arrays
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.sizes = sizes_of(arrays[0])
        self.epoch = 0
        self._batches = self._longest_first(self._order())

    def _longest_first(self, batches):
        """The batches with two of different lengths at the front.

        A machine that has no memory for the longest one says so at once; and Keras
        on TensorFlow takes the length of the first two, where it is the same, for
        that of all.
        """
        lengths = [self._length(rows) for rows in batches]
        longest = int(np.argmax(lengths))
        other = [i for i, length in enumerate(lengths) if length != lengths[longest]][:1]
        front = [longest, *other]
        return [batches[i] for i in front + [i for i in range(len(batches)) if i not in front]]

    def _length(self, rows):
        return trimmed_length(self.sizes[rows].max(), self.arrays[0]["token_ids"].shape[-1])

    def _order(self):
        num_rows, size = len(self.sizes), self.batch_size
        if not self.shuffle:
            rows = np.argsort(self.sizes, kind="stable")
            return [rows[i : i + size] for i in range(0, num_rows, size)]
        rows = np.random.default_rng([self.seed, self.epoch]).permutation(num_rows)
        parts = np.split(rows, range(BATCHES_AT_ONCE * size, num_rows, BATCHES_AT_ONCE * size))
        batches = [
            order_by_length(part, self.sizes, size, [self.seed, self.epoch, i])
            for i, part in enumerate(parts)
        ]
        return list(itertools.chain.from_iterable(batches))

    @property
    def num_batches(self):
        return len(self._batches)

    def __getitem__(self, index):
        rows = self._batches[index]
        batch = keras.tree.map_structure(lambda x: None if x is None else x[rows], self.arrays)
        x, y, weight = trim(batch, self._length(rows))
        return (x, y) if weight is None else (x, y, weight)

    def on_epoch_end(self):
        self.epoch += 1
        self._batches = self._longest_first(self._order())


def predict_by_length(model, inputs: dict, batch_size: int) -> Iterator[tuple]:
    """The model's outputs for batches of like length.

    Args:
        model: a task.
        inputs: dict of its arrays, of N rows.
        batch_size: int, rows at once.

    Yields:
        The rows' numbers, int `[n]`, and the model's outputs for them, of which
        those for each token have as many tokens as the batch was cut to.
    """
    sizes = sizes_of(inputs)
    longest = inputs["token_ids"].shape[-1]
    order = np.argsort(sizes, kind="stable")
    for begin in range(0, len(order), batch_size):
        rows = order[begin : begin + batch_size]
        length = trimmed_length(sizes[rows[-1]], longest, per_octave=4)
        missing = batch_size - len(rows)
        chosen = rows
        if missing and len(order) > batch_size:  # One shape a length.
            chosen = np.concatenate([rows, np.repeat(rows[-1:], missing)])
        (batch,) = trim(({name: array[chosen] for name, array in inputs.items()},), length)
        outputs = model.predict_on_batch(batch)
        first = slice(0, len(rows))
        yield rows, keras.tree.map_structure(lambda x, part=first: np.asarray(x)[part], outputs)
