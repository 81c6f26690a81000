"""Batches of rows of similar length, cut to one of a few lengths to reduce padding.

Legend: N = rows, L = tokens per row.
"""

from collections.abc import Iterator

import keras
import numpy as np

# Inputs whose last axis is L.
SEQUENCES = ("token_ids", "segment_ids", "padding_mask")
# Rows are sorted by length only within this many batches, so that batches remain random.
BATCHES_AT_ONCE = 50
_MIN_LENGTH = 8


def round_up(size: int, per_octave: int = 4) -> int:
    """Rounds a size up, so that only a few different sizes occur.

    Args:
        size: int.
        per_octave: int, a power of 2. Number of sizes between consecutive powers
            of 2. With 4, the sizes are 1 to 8, 10, 12, 14, 16, 20, ... Defaults
            to `4`.
    """
    if size <= 2 * per_octave:
        return max(size, 1)
    step = (1 << ((size - 1).bit_length() - 1)) // per_octave
    return -(-size // step) * step


def row_lengths(inputs: dict) -> np.ndarray:
    """Returns the number of tokens in the longest sequence of each row, int `[N]`."""
    mask = np.asarray(inputs["padding_mask"])
    last = mask.shape[-1] - np.argmax(mask[..., ::-1] > 0, axis=-1)
    sizes = np.where(mask.any(axis=-1), last, 0)
    return sizes.max(axis=tuple(range(1, sizes.ndim)), initial=0)


def trim_length(size: int, length: int, per_octave: int = 2) -> int:
    """Returns the length to which rows are cut if the longest of them has `size` tokens."""
    return min(max(round_up(int(size), per_octave), _MIN_LENGTH), length)


def trim(batch: tuple, length: int) -> tuple:
    """Returns `(x, y, sample_weight)` with the first `length` tokens of each row.

    Labels and weights `[N, L]` are cut too. Other labels do not change.
    """
    x, *rest = batch
    x = {name: array[..., :length] if name in SEQUENCES else array for name, array in x.items()}
    is_of_tokens = len(rest) == 2 and rest[1] is not None and len(rest[1].shape) > 1
    return x, *(y[:, :length] if is_of_tokens else y for y in rest)


def epoch_batches(sizes: np.ndarray, batch_size: int, seed: int, epoch: int) -> list[np.ndarray]:
    """Returns the rows of each batch of an epoch: rows of similar length, batches in random order.

    The epoch is split into equal parts of at most 50 batches. In each part the
    rows are sorted by length and the batches are shuffled.

    Args:
        sizes: int `[N]`, number of tokens of each row.
        batch_size: int. The last batch of the last part may have fewer rows.
        seed, epoch: ints. The order depends only on them and on the sizes.
    """
    order = np.random.default_rng([seed, epoch]).permutation(len(sizes))
    num_batches = -(-len(sizes) // batch_size)
    num_parts = -(-num_batches // BATCHES_AT_ONCE)
    size = -(-num_batches // num_parts) * batch_size
    batches = []
    for number, first in enumerate(range(0, len(order), size)):
        rows = order[first : first + size]
        rows = rows[np.argsort(sizes[rows], kind="stable")]
        part = [rows[i : i + batch_size] for i in range(0, len(rows), batch_size)]
        generator = np.random.default_rng([seed, epoch, number])
        batches += [part[i] for i in generator.permutation(len(part))]
    return batches


class LengthBatches(keras.utils.PyDataset):
    """Batches of rows of similar length, for `fit` and `evaluate`.

    Args:
        arrays: `(x, y, sample_weight)`. `x` is a dict of the model's arrays. Labels
            are `[N]` or `[N, C]` with weights `[N]`, or both are `[N, L]`. Labels
            and weights can be `None`.
        batch_size: int. The last batch may have fewer rows.
        shuffle: bool. Whether to draw a new order of the rows in each epoch.
        seed: int.
    """

    def __init__(self, arrays: tuple, batch_size: int, shuffle: bool, seed: int):
        super().__init__()
        self.arrays = arrays
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.sizes = row_lengths(arrays[0])
        self.epoch = 0
        self._batches = self._order()

    def _length(self, rows):
        return trim_length(self.sizes[rows].max(), self.arrays[0]["token_ids"].shape[-1])

    def _order(self):
        """Returns the rows of each batch. Two batches of different lengths come first.

        If the first batch, the longest, does not fit into memory, training fails at
        once. If the first two batches had the same length, Keras on TensorFlow would
        assume that all batches have this length.
        """
        size = self.batch_size
        if self.shuffle:
            batches = epoch_batches(self.sizes, size, self.seed, self.epoch)
        else:
            rows = np.argsort(self.sizes, kind="stable")
            batches = [rows[i : i + size] for i in range(0, len(rows), size)]
        lengths = [self._length(rows) for rows in batches]
        longest = int(np.argmax(lengths))
        other = [i for i, length in enumerate(lengths) if length != lengths[longest]][:1]
        front = [longest, *other]
        return [batches[i] for i in front + [i for i in range(len(batches)) if i not in front]]

    def __len__(self):
        return len(self._batches)

    def __getitem__(self, index):
        rows = self._batches[index]
        batch = keras.tree.map_structure(lambda x: None if x is None else x[rows], self.arrays)
        x, y, weight = trim(batch, self._length(rows))
        return (x, y) if weight is None else (x, y, weight)

    def on_epoch_end(self):
        self.epoch += 1
        self._batches = self._order()


def predict_by_length(model, inputs: dict, batch_size: int) -> Iterator[tuple]:
    """Yields the model's outputs for batches of rows of similar length.

    Args:
        model: a task.
        inputs: dict of the model's arrays, with N rows.
        batch_size: int. Number of rows per batch.

    Yields:
        The indices of the rows, int `[n]`, and the model's outputs for them.
        Outputs per token have the length that the batch was cut to.
    """
    sizes = row_lengths(inputs)
    longest = inputs["token_ids"].shape[-1]
    order = np.argsort(sizes, kind="stable")
    for begin in range(0, len(order), batch_size):
        rows = order[begin : begin + batch_size]
        length = trim_length(sizes[rows[-1]], longest, per_octave=4)
        missing = batch_size - len(rows)
        chosen = rows
        if missing and len(order) > batch_size:  # Fills the last batch, to avoid a new shape.
            chosen = np.concatenate([rows, np.repeat(rows[-1:], missing)])
        (batch,) = trim(({name: array[chosen] for name, array in inputs.items()},), length)
        outputs = model.predict_on_batch(batch)
        first = slice(0, len(rows))
        yield rows, keras.tree.map_structure(lambda x, part=first: np.asarray(x)[part], outputs)
