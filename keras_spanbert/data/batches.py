"""Batches of rows, each computed from a seed and a step: see `Batches`.

Legend: N = rows, B = rows of a batch, L = tokens per row.
"""

import itertools
from collections.abc import Iterator

import keras
import numpy as np

from keras_spanbert.checks import check_counts, check_flags, check_id, is_integer
from keras_spanbert.optional import require

# Inputs whose last axis is L.
SEQUENCES = ("token_ids", "segment_ids", "padding_mask")
# Rows are sorted by length only within this many batches, so that batches remain random.
_BATCHES_AT_ONCE = 50
_MIN_LENGTH = 8


def round_up(size: int, per_octave: int = 4) -> int:
    """Rounds up to one of `per_octave` sizes per power of 2: with 4, 1 to 8, 10, 12, 14, 16, ..."""
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
    """Returns `(x, y, sample_weight)` with the first `length` tokens of all arrays `[N, L]`."""
    x, *rest = batch
    x = {name: array[..., :length] if name in SEQUENCES else array for name, array in x.items()}
    is_of_tokens = len(rest) == 2 and rest[1] is not None and len(rest[1].shape) > 1
    return x, *(y[:, :length] if is_of_tokens else y for y in rest)


class Batches(keras.utils.PyDataset):
    """Endless batches of rows, each computed from the seed and the step.

    `dataset` returns them as a `tf.data.Dataset` that starts at any step, to resume a run or
    to share batches between processes. `fit`, `evaluate` and `predict` take the object
    itself too, without TensorFlow.

    Args:
        arrays: nested tuples and dicts of arrays with N rows. With `whole_epochs`,
            `(x, y)` or `(x, y, sample_weight)`. Or an object with a length and a
            method `batch(rows, epoch)`, which returns the arrays of some rows.
        batch_size: int, at most the number of rows.
        seed: int. The order of an epoch's rows depends on `seed` and the epoch.
        whole_epochs: bool. Whether each epoch contains every row exactly once, so
            that its last batch may not be full: see `pad`. Defaults to `False`: a
            batch can contain rows of two epochs.
        shuffle: bool. Whether each epoch has a new random order. Defaults to `True`.
        by_length: bool. Whether to batch rows of similar length, and to cut the batches
            as with `cut`. This is faster, but less random. Defaults to `False`.
        pad: bool. Whether to fill the last batch of a whole epoch with rows of weight 0.
            If `x` has `token_ids`, it then has `row_mask` `[B]`, 0 for these rows, which
            the losses of the tasks leave out. Otherwise the last batch has fewer rows, and
            `batch_size` may be larger than the number of rows. Defaults to `True`.
        cut: bool. Whether to cut each batch to the smallest of a few lengths that holds its
            longest row. `x` is then a dict of a model's arrays, `[N, L]` or with more axes
            between N and L. Labels are `[N]` or `[N, C]` with weights `[N]`, or both are
            `[N, L]`. Epochs are whole. Defaults to `False`.

    Raises:
        ValueError: if there are no rows, or fewer than `batch_size`, or the arrays
            differ in their number of rows.

    Example:
    ```python
    batches = Batches((inputs, labels), batch_size=32, seed=1)
    model.fit(batches.dataset(), steps_per_epoch=1000)
    batches.start_at(1000)  # Here or in another process.
    model.fit(batches.dataset(), steps_per_epoch=1000)
    ```
    """

    def __init__(
        self,
        arrays,
        batch_size: int,
        seed,
        whole_epochs: bool = False,
        shuffle: bool = True,
        by_length: bool = False,
        pad: bool = True,
        cut: bool = False,
    ):
        super().__init__()
        check_counts(0, seed=seed)
        check_flags(whole_epochs=whole_epochs, shuffle=shuffle, pad=pad)
        check_flags(cut=cut, by_length=by_length)
        cut = cut or by_length
        whole_epochs = whole_epochs or cut
        if whole_epochs and isinstance(arrays, tuple):
            arrays = tuple(array for array in arrays if array is not None)
        self.arrays = keras.tree.map_structure(
            lambda array: np.asarray(array) if hasattr(array, "__array__") else array, arrays
        )
        sizes = [len(array) for array in keras.tree.flatten(self.arrays) if array is not None]
        self.num_rows = sizes[0]
        if min(sizes) < max(sizes):
            raise ValueError(f"All arrays must have the same number of rows. Received: {sizes}")
        if not self.num_rows:
            raise ValueError("Batches must have at least one row. Received: num_rows=0")
        if not pad:
            check_counts(batch_size=batch_size)
            batch_size = min(batch_size, self.num_rows)
        if not is_integer(batch_size) or not 1 <= batch_size <= self.num_rows:
            raise ValueError(
                "`batch_size` (--batch_size) must be from 1 to the number of rows, "
                f"{self.num_rows:,}. Received: batch_size={batch_size!r}"
            )
        self.batch_size = batch_size
        self.seed = seed
        self.whole_epochs = whole_epochs
        self.shuffle = shuffle
        self.pad = pad
        # Whether batches have weights, because the last one of each epoch is filled.
        self.has_weights = whole_epochs and pad and self.num_rows % batch_size > 0
        self.by_length = by_length
        self.sizes = row_lengths(self.arrays[0]) if cut else None
        self.first_step = 0
        self._min_length = 0  # Batches are not cut below this length: see `__getitem__`.
        self._has_begun = False
        self._asked_for = set()  # Batches of the epoch that Keras has asked for.
        self._last_epoch = None, None  # The epoch that was used last, and its rows.

    # === Rows of a step ===
    @property
    def num_batches(self) -> int:
        """Number of batches per epoch, including a last one that is not full."""
        return -(-self.num_rows // self.batch_size)

    def rows(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the numbers and the weights of a batch's rows, `[B]` each."""
        size = self.batch_size
        if self.whole_epochs:
            epoch, number = divmod(step, self.num_batches)
            rows = self._epoch_rows(epoch)[number]
        else:
            epoch, first = divmod(step * size, self.num_rows)
            rows = self._epoch_rows(epoch)[first : first + size]
            if len(rows) < size:
                following = self._epoch_rows(epoch + 1)[: size - len(rows)]
                rows = np.concatenate([rows, following])
        weights = np.ones(len(rows), "float32")
        if self.pad:
            weights = np.pad(weights, (0, size - len(rows)))
            rows = np.resize(rows, size)
        return rows, weights

    def _epoch_rows(self, epoch):
        """Returns the rows of an epoch in their order. If epochs are whole, a list of batches."""
        known, batches = self._last_epoch
        if known == epoch:
            return batches
        size = self.batch_size
        order = batches = np.arange(self.num_rows)
        if self.shuffle:
            order = batches = np.random.default_rng([self.seed, epoch]).permutation(self.num_rows)
        if self.by_length:
            num_parts = -(-self.num_batches // _BATCHES_AT_ONCE) if self.shuffle else 1
            batches = []
            for number, rows in enumerate(_split(order, -(-self.num_batches // num_parts) * size)):
                part = _split(rows[np.argsort(self.sizes[rows], kind="stable")], size)
                if self.shuffle:
                    generator = np.random.default_rng([self.seed, epoch, number])
                    part = [part[i] for i in generator.permutation(len(part))]
                batches += part
        elif self.whole_epochs:
            batches = _split(order, size)
        if self.sizes is not None:
            # The longest batch comes first: if it does not fit into memory, training fails at
            # once. A batch of another length comes next, for `__getitem__`.
            lengths = [self._length(rows) for rows in batches]
            longest = int(np.argmax(lengths))
            front = [longest, *[i for i, n in enumerate(lengths) if n != lengths[longest]][:1]]
            others = [i for i in range(len(batches)) if i not in front]
            batches = [batches[i] for i in front + others]
        self._last_epoch = epoch, batches  # One assignment, because Keras's threads read it.
        return batches

    def _length(self, rows=slice(None)):
        """Returns the length to which a batch of these rows is cut."""
        return trim_length(self.sizes[rows].max(), self.arrays[0]["token_ids"].shape[-1])

    # === Arrays of a step ===
    def batch(self, step: int, part: int = 0, num_parts: int = 1):
        """Returns the batch of a step as NumPy arrays, or one process's rows of it.

        Args:
            step: int.
            part, num_parts: ints. The index of the process's part, from 0, and the number of equal
                parts of consecutive rows. Default to `0`, `1`: all rows.

        Raises:
            ValueError: if the rows cannot be split evenly.
        """
        own = self.part_of(part, num_parts)
        rows, weights = self.rows(step)
        if hasattr(self.arrays, "batch"):
            batch = self.arrays.batch(rows[own], step // self.num_batches)
        else:
            batch = keras.tree.map_structure(lambda array: array[rows[own]], self.arrays)
        if self.sizes is not None:
            # The same length in all processes.
            batch = trim(batch, max(self._length(rows), self._min_length))
        if not self.has_weights:
            return batch
        x, y, *given = batch
        weights = weights[own]
        if isinstance(x, dict) and "token_ids" in x:
            x = {**x, "row_mask": weights.astype("int32")}

        def times_weights(array):
            return array * weights.reshape(-1, *[1] * (array.ndim - 1)).astype(array.dtype)

        return x, y, keras.tree.map_structure(times_weights, given[0]) if given else weights

    def part_of(self, part: int, num_parts: int) -> slice:
        """Returns the slice of a batch with one process's rows: see `batch`."""
        check_counts(num_parts=num_parts)
        check_id("part", part)
        if not 0 <= part < num_parts or self.batch_size % num_parts:
            raise ValueError(
                "`part` must be in [0, num_parts), and `batch_size` a multiple of `num_parts`. "
                f"Received: batch_size={self.batch_size}, part={part}, num_parts={num_parts}"
            )
        size = self.batch_size // num_parts
        return slice(part * size, (part + 1) * size)

    def dataset(self, part: int = 0, num_parts: int = 1):
        """Returns an endless `tf.data.Dataset` of batches, or of one process's rows of each batch.

        Args:
            part, num_parts: see `batch`. Default to `0`, `1`: all rows.
        """
        tf = require("tensorflow", "A stream")

        def batches():
            for step in itertools.count(self.first_step):
                yield self.batch(step, part, num_parts)

        batch = self.batch(0, part, num_parts)
        # Axes that are cut have no fixed size.
        cut = batch if self.sizes is None else trim(batch, 1)
        signature = keras.tree.map_structure(
            lambda a, b: tf.TensorSpec(
                [n if n == m else None for n, m in zip(a.shape, b.shape)], a.dtype
            ),
            *(batch, cut),
        )
        return tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(
            tf.data.AUTOTUNE
        )

    # === Keras ===
    def __len__(self):
        return self.num_batches

    def __getitem__(self, index):
        self._asked_for.add(index)
        infers_shapes = keras.config.backend() == "tensorflow" and not self._has_begun
        if self.sizes is not None and infers_shapes:
            # Before an epoch, Keras asks for two batches. If their lengths are equal, it expects
            # that length always, so no batch may be shorter.
            first, second = (self._length(self.rows(self.first_step + i)[0]) for i in range(2))
            if first == second:
                self._min_length = self._length()
        return self.batch(self.first_step + index)

    def on_epoch_begin(self):
        self._has_begun = True

    def on_epoch_end(self):
        # Keras calls this once more than there are epochs, before or after it asks for a batch to
        # build the model. With `steps_per_epoch`, an epoch of `fit` may not have all batches.
        if self._has_begun and len(self._asked_for) == self.num_batches:
            self.first_step += self.num_batches
            self._asked_for = set()
        self._has_begun = False

    # === Resuming ===
    def start_at(self, step: int, state: dict | None = None) -> None:
        """Makes new datasets, and `fit`, start at batch `step`.

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
        self.first_step, self._min_length = step, 0
        self._has_begun, self._asked_for = False, set()  # An epoch that was stopped ends here.

    def state(self) -> dict:
        """Returns a description of the data that `start_at` compares: the number of rows."""
        return {"num_rows": self.num_rows}


def _split(rows, size):
    return [rows[i : i + size] for i in range(0, len(rows), size)]


def predict_by_length(model, inputs: dict, batch_size: int) -> Iterator[tuple]:
    """Yields the indices of rows of similar length, int `[n]`, and the model's outputs for them.

    Outputs per token have the length that the batch was cut to.
    """
    sizes = row_lengths(inputs)
    longest = inputs["token_ids"].shape[-1]
    order = np.argsort(sizes, kind="stable")
    for rows in _split(order, batch_size):
        length = trim_length(sizes[rows[-1]], longest, per_octave=4)
        # The last batch is filled, to avoid a new shape.
        chosen = np.resize(rows, min(batch_size, len(order)))
        (batch,) = trim(({name: array[chosen] for name, array in inputs.items()},), length)
        outputs = model.predict_on_batch(batch)
        size = len(rows)
        yield rows, keras.tree.map_structure(lambda x, n=size: np.asarray(x)[:n], outputs)
