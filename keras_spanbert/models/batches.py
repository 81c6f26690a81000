"""Converts any data that `keras.Model.fit` takes, from strings to the model's arrays.

A batch is `x`, `(x, y)` or `(x, y, sample_weight)`, as in Keras. A model takes a
dict with `token_ids`. The preprocessor converts every other `x` to such a dict.
`start()` is called once per epoch. It returns a function of a batch's number, x,
y and sample weight, which returns the batch of arrays.
"""

import collections.abc
import sys
from collections.abc import Sequence

import keras
import numpy as np

from keras_spanbert.checks import to_lists

_RULE = (
    "`x` must be at least one row of strings (lists or arrays of strings, see the class), a dict "
    "of the model's arrays, or batches of either: a `tf.data.Dataset`, a "
    "`keras.utils.PyDataset`, a `torch.utils.data.DataLoader` or a generator"
)


def is_preprocessed(x) -> bool:
    """Returns whether `x`, or the first element of a batch, is a dict of the model's arrays."""
    return _are_arrays(x[0] if isinstance(x, tuple) and x else x)


def _are_arrays(x):
    return isinstance(x, dict) and "token_ids" in x


def is_stream(x) -> bool:
    """Returns whether `x` yields batches instead of containing all rows."""
    return (
        is_tensorflow(x)
        or isinstance(x, (keras.utils.PyDataset, collections.abc.Iterator))
        or _is_data_loader(x)
        or type(x).__module__.partition(".")[0] == "grain"
    )


def is_tensorflow(x) -> bool:
    """Returns whether `x` is a `tf.data.Dataset` or a distributed one."""
    return hasattr(x, "element_spec")


def unpack(batch) -> tuple:
    """Returns `(x, y, sample_weight)` of a batch.

    A list of examples, or a list or tuple of strings, is an `x` without labels. Any
    other tuple is `(x, y)`, even a tuple of two examples. A `DataLoader` without
    collation turns the tuple into a list. Two dicts in such a list are `x` and `y`
    if they share no key, and a single dict is an example.
    """
    if isinstance(batch, (list, tuple)) and not _are_rows(batch):
        return keras.utils.unpack_x_y_sample_weight(batch)
    return batch, None, None


def _are_rows(batch):
    if isinstance(batch, list) and is_examples(batch):
        return not _are_arrays(batch[0]) and bool(set.intersection(*map(set, batch)))
    return all(isinstance(row, str) for row in batch)


def is_examples(x) -> bool:
    """Returns whether `x` is a list of examples, one dict per row, as readers return them."""
    return isinstance(x, (list, tuple)) and bool(x) and all(isinstance(row, dict) for row in x)


def check_examples(examples, reader: str) -> None:
    """Raises a `ValueError` if examples to score are not a list of examples of a reader."""
    if not is_examples(examples):
        raise ValueError(
            f"`examples` must come from `keras_spanbert.data.{reader}.read`. Received: "
            f"{examples!r:.80}"
        )


def column(examples, name: str) -> list:
    """Returns the values of one key of all examples.

    Raises:
        ValueError: if an example lacks the key.
    """
    for i, example in enumerate(examples):
        if name not in example:
            raise ValueError(f"An example must have a `{name}`. Received: x[{i}]={example!r:.80}")
    return [example[name] for example in examples]


def columns_of(examples, required: Sequence[str], optional: Sequence[str] = ()) -> dict:
    """Returns columns of examples by name. An optional one may be missing in the first example.

    Raises:
        ValueError: see `column`.
    """
    names = [*required, *(name for name in optional if name in examples[0])]
    return {name: column(examples, name) for name in names}


def rows(value, part: slice):
    """Returns a slice of the rows of x, y or sample weight. In a dict, slices each column."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {name: column[part] for name, column in value.items()}
    if hasattr(value, "_fields"):  # A named tuple of examples, as a reader returns it.
        return type(value)(*(column[part] for column in value))
    return value[part]


def num_rows(x) -> int:
    """Returns the number of rows of an `x` that is not a stream."""
    column = next(iter(x.values()), ()) if isinstance(x, dict) else x
    column = x[0] if hasattr(x, "_fields") else column
    if hasattr(column, "nrows"):  # A ragged tensor.
        return int(column.nrows())
    try:
        return len(column)
    except TypeError:  # A number, or an array with no axes.
        return 0


def batch_spec(x, y=None, sample_weight=None) -> tuple | None:
    """Returns `(x, y, sample_weight)` with the shapes and dtypes of a batch for the model.

    Returns `None` for a generator or a `DataLoader`, where a batch could not be put back, and if
    parts of the batch are not arrays.
    """
    batch = x, y, sample_weight
    if is_tensorflow(x):
        batch = unpack(x.element_spec)
    elif isinstance(x, keras.utils.PyDataset):
        batch = unpack(x[0])
    # Streams of other types are leaves that are not arrays.
    leaves = keras.tree.flatten(batch)
    return batch if all(leaf is None or _is_array(leaf) for leaf in leaves) else None


def _is_array(leaf):
    # Keras converts pandas objects to arrays. TensorFlow's placeholder for `None` has no dtype.
    of_tensorflow = type(leaf).__module__.startswith("tensorflow.")
    return isinstance(leaf, np.ndarray) or (of_tensorflow and hasattr(leaf, "dtype"))


def check_rows(x) -> None:
    """Raises a `ValueError` if `x` cannot be rows of strings or other raw data."""
    if isinstance(x, (str, bytes)) or not num_rows(x):
        raise ValueError(f"{_RULE}. Received: x={x!r:.80}, of type {type(x).__name__}")


def check_arrays(x) -> None:
    """Raises a `ValueError` if `x` is not one batch of the model's arrays."""
    if not _are_arrays(x):
        raise ValueError(
            "`x` must be a dict of the model's arrays, which is the first result of "
            "`model.preprocess`. `fit`, `evaluate` and `predict` take strings. Received: "
            f"x={x!r:.80}, of type {type(x).__name__}"
        )


def preprocess_batches(stream, start, map_dataset):
    """Converts the batches of a stream to arrays. Batches of arrays do not change.

    Args:
        stream: see `is_stream`.
        start: function without arguments: see the module's docstring.
        map_dataset: function that maps a `tf.data.Dataset` of strings to one of
            arrays.

    Returns:
        A stream of the same kind.
    """
    if is_tensorflow(stream):
        if not hasattr(stream, "map"):
            if is_preprocessed(stream.element_spec):
                return stream
            raise ValueError(
                "A dataset must be preprocessed before it is distributed. Received: "
                f"{stream.element_spec}"
            )
        return map_dataset(stream)
    if isinstance(stream, keras.utils.PyDataset):
        if isinstance(stream, _PyDataset):
            return stream
        if not is_preprocessed(stream[0]):
            return _PyDataset(stream, start)
        if stream.use_multiprocessing:  # Its processes cannot check labels.
            return stream
        settings = {name: getattr(stream, name) for name in ["workers", "max_queue_size"]}
        return _PyDataset(stream, start, **settings)
    if _is_data_loader(stream):
        return _data_loader(stream, start)
    if isinstance(stream, collections.abc.Iterator):
        return _generate(stream, start)
    return stream


def _convert(preprocess, number, batch):
    """Converts a batch of any stream to a tuple of arrays, as Keras expects it."""
    x, y, sample_weight = map(to_lists, unpack(batch))
    is_done = is_preprocessed(x)
    arrays = preprocess(number, x, y, sample_weight)  # Only checks arrays.
    if not is_done:
        x, y, sample_weight = keras.tree.map_structure(
            lambda array: None if array is None else keras.ops.convert_to_numpy(array), arrays
        )
    given = [value for value in (x, y, sample_weight) if value is not None]
    return tuple(given) if sample_weight is None else (x, y, sample_weight)


def _generate(batches, start):
    preprocess = start()
    for number, batch in enumerate(batches):
        yield _convert(preprocess, number, batch)


class _PyDataset(keras.utils.PyDataset):
    """The batches of another `PyDataset`, preprocessed in the thread of the training loop.

    Keras's threads would fetch batches before `on_epoch_begin` and skip the batch
    that Keras used to build the model. Its processes do not work with libraries
    that have their own threads.
    """

    def __init__(self, source, start, **kwargs):
        super().__init__(**kwargs)
        self._source = source
        self._start = start
        self._preprocess = start()

    @property
    def num_batches(self):
        return self._source.num_batches

    def __getitem__(self, index):
        return _convert(self._preprocess, index, self._source[index])

    def on_epoch_begin(self):
        self._source.on_epoch_begin()
        self._preprocess = self._start()

    def on_epoch_end(self):
        self._source.on_epoch_end()


class Rows(keras.utils.PyDataset):
    """Batches of rows that are all in memory, in a new order in each epoch if `shuffle` is true."""

    def __init__(self, x: list, batch_size: int, shuffle: bool):
        super().__init__()
        self._rows = np.array(x, object)
        self._batch_size = batch_size
        self._shuffle = shuffle
        self.on_epoch_end()

    def on_epoch_end(self):
        if self._shuffle:
            np.random.shuffle(self._rows)  # Keras's `set_random_seed` determines the order.

    def __len__(self):
        return -(-len(self._rows) // self._batch_size)

    def __getitem__(self, index):
        return self._rows[index * self._batch_size :][: self._batch_size].tolist()


def _is_data_loader(x):
    torch = sys.modules.get("torch")  # A `DataLoader` exists only after PyTorch's import.
    return torch is not None and isinstance(x, torch.utils.data.DataLoader)


def _data_loader(loader, start):
    from torch.utils import data

    # The default collation returns tuples as lists.
    is_collated = loader.collate_fn is data.default_collate

    class Batches(data.IterableDataset):
        def __iter__(self):
            batches = (tuple(b) if is_collated and isinstance(b, list) else b for b in loader)
            return _generate(batches, start)

    if hasattr(loader.dataset, "__len__"):
        Batches.__len__ = lambda self: len(loader)
    # The loader's own workers load the data. This process preprocesses it.
    return data.DataLoader(Batches(), batch_size=None)
