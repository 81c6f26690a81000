"""Whatever `keras.Model.fit` takes, with strings where the model takes arrays.

A batch is what Keras has: `x`, `(x, y)` or `(x, y, sample_weight)`. What a model
takes is a dict that has `token_ids`; every other `x` is the preprocessor's to turn
into one. A "start" below is a function that a pass over the data begins with: it
returns the function of a batch's number, x, y and sample weight that gives the
batch of arrays.
"""

import collections.abc
import sys

import keras
import numpy as np

_RULE = (
    "`x` must be one row or more of strings (lists or arrays of them, as the class names them), a "
    "dict of the model's arrays, or batches of either: a `tf.data.Dataset`, a "
    "`keras.utils.PyDataset`, a `torch.utils.data.DataLoader` or a generator"
)
# What examples alone have, and no dict of columns.
_KEYS_OF_EXAMPLES = ("sentences", "token", "words")


def is_preprocessed(x) -> bool:
    """Whether `x`, or the first of a batch, is what the model takes."""
    return _are_arrays(x[0] if isinstance(x, tuple) and x else x)


def _are_arrays(x):
    return isinstance(x, dict) and "token_ids" in x


def is_stream(x) -> bool:
    """Whether `x` gives batches, and not all of the data at once."""
    return (
        is_tensorflow(x)
        or isinstance(x, (keras.utils.PyDataset, collections.abc.Iterator))
        or _is_data_loader(x)
        or type(x).__module__.partition(".")[0] == "grain"
    )


def is_tensorflow(x) -> bool:
    """Whether `x` is a `tf.data.Dataset`, or one that is spread over devices."""
    return hasattr(x, "element_spec")


def unpack(batch) -> tuple:
    """`(x, y, sample_weight)` of a batch. Strings or examples alone, in a list, are an `x`."""
    if isinstance(batch, (list, tuple)) and not all(map(_is_row, batch)):
        return keras.utils.unpack_x_y_sample_weight(batch)
    return batch, None, None


def _is_row(x):
    return isinstance(x, str) or is_example(x)


def is_example(x) -> bool:
    """Whether `x` is one row as a reader gives it, and not the columns of many."""
    if not isinstance(x, dict):
        return False
    choices = x.get("choices")
    has_choices = isinstance(choices, (list, tuple)) and all(isinstance(c, str) for c in choices)
    is_text = isinstance(x.get("text"), str)
    return is_text or has_choices or any(name in x for name in _KEYS_OF_EXAMPLES)


def rows(value, part: slice):
    """A part of the rows of x, y or sample weight: of each of its columns, where it is a dict."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {name: column[part] for name, column in value.items()}
    if hasattr(value, "_fields"):  # Examples as a reader gives them, a named tuple.
        return type(value)(*(column[part] for column in value))
    return value[part]


def num_rows(x) -> int:
    """The number of rows of an `x` that is no stream."""
    column = next(iter(x.values()), ()) if isinstance(x, dict) else x
    column = x[0] if hasattr(x, "_fields") else column
    if hasattr(column, "nrows"):  # Of a ragged tensor.
        return int(column.nrows())
    try:
        return len(column)
    except TypeError:  # Of a number, and of an array of one alone.
        return 0


def like_a_batch(x, y=None, sample_weight=None) -> tuple | None:
    """`(x, y, sample_weight)` that have shapes and dtypes of a batch of what a model takes.

    `None` where a batch could not be given back, of a generator and a `DataLoader`, and where parts
    of it are no arrays.
    """
    if is_tensorflow(x):
        batch = unpack(x.element_spec)
    elif isinstance(x, keras.utils.PyDataset):
        batch = unpack(x[0])
    elif is_stream(x):
        return None
    else:
        batch = x, y, sample_weight
    leaves = keras.tree.flatten(batch)
    return batch if all(leaf is None or _is_array(leaf) for leaf in leaves) else None


def _is_array(leaf):
    # Of pandas Keras makes arrays itself, and what TensorFlow has for `None` has no dtype.
    of_tensorflow = type(leaf).__module__.startswith("tensorflow.")
    return isinstance(leaf, np.ndarray) or (of_tensorflow and hasattr(leaf, "dtype"))


def check_rows(x) -> None:
    """Raises a ValueError where `x` cannot be rows of strings or other raw data."""
    if isinstance(x, (str, bytes)) or not num_rows(x):
        raise ValueError(f"{_RULE}. Received: x={x!r:.80}, of type {type(x).__name__}")


def check_arrays(x) -> None:
    """Raises a ValueError where `x` is not one batch of the model's arrays."""
    if not _are_arrays(x):
        raise ValueError(
            "`x` must be a dict of the model's arrays, as `model.preprocess` gives first: `fit`, "
            f"`evaluate` and `predict` take strings. Received: x={x!r:.80}, of type "
            f"{type(x).__name__}"
        )


def preprocessed(stream, start, map_dataset):
    """The batches of a stream as arrays; those that are arrays stay as they are.

    Args:
        stream: see `is_stream`.
        start: function without arguments: see the module.
        map_dataset: function of a `tf.data.Dataset` of strings, which returns
            one of arrays: `map_dataset` below, or the task's own.

    Returns:
        A stream of the same kind.
    """
    if is_tensorflow(stream):
        if is_preprocessed(stream.element_spec):
            return stream
        if not hasattr(stream, "map"):
            raise ValueError(
                "A dataset must be preprocessed before it is spread over devices. Received: "
                f"{stream.element_spec}"
            )
        return map_dataset(stream)
    if isinstance(stream, keras.utils.PyDataset):
        is_done = isinstance(stream, _PyDataset) or is_preprocessed(stream[0])
        return stream if is_done else _PyDataset(stream, start)
    if _is_data_loader(stream):
        return _data_loader(stream, start)
    if isinstance(stream, collections.abc.Iterator):
        return _generate(stream, start)
    return stream


def _convert(preprocess, number, batch):
    """A batch as Keras has it in any stream: a tuple, without what is not there."""
    x, y, sample_weight = unpack(batch)
    if not is_preprocessed(x):
        arrays = preprocess(number, x, y, sample_weight)
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
    """Another one's batches, preprocessed in the loop's own thread.

    Keras's threads would begin to fetch before an epoch is said to begin, and
    leave out a batch that Keras took to build a model by; its processes do not go
    with libraries that have threads of their own.
    """

    def __init__(self, source, start):
        super().__init__()
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
    """Batches of rows that are all there."""

    def __init__(self, x, batch_size: int):
        super().__init__()
        self._x = x
        self._batch_size = batch_size

    @property
    def num_batches(self):
        return -(-num_rows(self._x) // self._batch_size)

    def __getitem__(self, index):
        first = index * self._batch_size
        return rows(self._x, slice(first, first + self._batch_size))


def _is_data_loader(x):
    torch = sys.modules.get("torch")  # Whoever has made one has imported it.
    return torch is not None and isinstance(x, torch.utils.data.DataLoader)


def _data_loader(loader, start):
    from torch.utils import data

    class Batches(data.IterableDataset):
        def __iter__(self):
            return _generate(loader, start)

    class CountedBatches(Batches):
        def __len__(self):
            return len(loader)

    # The loader's own processes load; this one preprocesses.
    kind = CountedBatches if hasattr(loader.dataset, "__len__") else Batches
    return data.DataLoader(kind(), batch_size=None)


def map_dataset(dataset, preprocess):
    """Batches of a `tf.data.Dataset`, preprocessed in Python within it.

    Args:
        dataset: `tf.data.Dataset` of batches.
        preprocess: function of a batch's number, x, y and sample weight, which
            returns `(x, y, sample_weight)` of arrays.
    """
    import tensorflow as tf

    # What comes out is known from what does; of its sizes, the next batch's may differ.
    first = next(iter(dataset.take(1)), None)
    if first is None:
        raise ValueError(f"A dataset must give a batch or more. Received: none, of {dataset}")
    example = _convert(preprocess, 0, first)
    flat_example = tf.nest.flatten(example)

    def convert(number, batch):
        def run(number, *tensors):
            batch_of = tf.nest.pack_sequence_as(batch, tensors)
            return tf.nest.flatten(_convert(preprocess, int(number), batch_of))

        dtypes = [array.dtype for array in flat_example]
        arrays = tf.py_function(run, [number, *tf.nest.flatten(batch)], dtypes)
        for array, like in zip(arrays, flat_example):
            array.set_shape([None] * like.ndim)
        return tf.nest.pack_sequence_as(example, arrays)

    mapped = dataset.enumerate().map(convert, num_parallel_calls=tf.data.AUTOTUNE)
    return mapped.prefetch(tf.data.AUTOTUNE)
