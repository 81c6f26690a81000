"""Converts labels: names or numbers, in any container, eagerly and in graph code."""

from collections.abc import Callable, Sequence

import numpy as np

from keras_spanbert.arguments import is_integer
from keras_spanbert.layers.array_functions import is_symbolic
from keras_spanbert.models.strings import check_in_graph, decode


def check_names(**argument) -> list[str]:
    """Returns an argument as a list of label names. Checks that each is a string and unique."""
    ((name, values),) = argument.items()
    is_list = isinstance(values, Sequence) and not isinstance(values, str)
    if not is_list or not values or not all(isinstance(v, str) and v for v in values):
        raise ValueError(f"`{name}` must be a list of strings. Received: {name}={values!r:.80}")
    twice = next((v for i, v in enumerate(values) if v in values[:i]), None)
    if twice is not None:
        raise ValueError(f"`{name}` must not contain a name twice. Received: {twice!r} twice")
    return list(values)


def as_labels(labels, names: list[str] | None, place: Callable = str):
    """Converts labels to the numbers that the model trains on.

    Args:
        labels: list, array or tensor `[N]` of names or numbers. Without `names`
            also numbers `[N, C]`.
        names: list of strings, the name of each number, or `None` if labels are
            numbers.
        place: function that maps a label's index to its description in messages.
            Defaults to `str`.

    Returns:
        int32 `[N]` for names and integers, float32 for other numbers.

    Raises:
        ValueError: if a label is none of these. A graph raises
            `tf.errors.InvalidArgumentError` when it runs.
    """
    if is_symbolic(labels):
        return _in_graph(labels, names)
    rows = np.asarray(labels) if hasattr(labels, "__array__") else labels
    values = [as_scalar(value) for value in rows]
    if names is not None:
        numbers_of = {name: i for i, name in enumerate(names)}
        return np.array(
            [label_id(value, numbers_of, place(i)) for i, value in enumerate(values)], np.int32
        )
    for i, value in enumerate(values):
        if not _is_number(value):
            raise ValueError(
                "A label must be a finite number, or a name if `label_names` are set. Received: "
                f"{value!r:.80} at {place(i)}"
            )
    array = np.array(values)
    return array.astype("float32" if array.dtype.kind in "fUS" else "int32")


def _is_number(value):
    try:
        return bool(np.isfinite(np.asarray(value, "float64")).all())
    except (TypeError, ValueError):
        return False


def _in_graph(labels, names):
    import tensorflow as tf

    if labels.dtype == tf.string:
        if names is None:
            raise ValueError(
                "`label_names` must be set if labels are names. Received: label_names=None, "
                f"labels={labels!r:.80}"
            )
        is_name = labels[..., None] == tf.constant(names)
        found = tf.argmax(is_name, axis=-1, output_type=tf.int32)
        return check_labels_in_graph(found, tf.reduce_any(is_name, axis=-1), labels, names)
    if labels.shape.rank == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if names is None:
        return tf.cast(labels, tf.float32 if labels.dtype.is_floating else tf.int32)
    if labels.dtype.is_floating or labels.shape.rank != 1:
        raise ValueError(f"A label must be {_known(names)}. Received: {labels!r:.80}")
    labels = tf.cast(labels, tf.int32)
    is_right = (labels >= 0) & (labels < len(names))
    return check_labels_in_graph(labels, is_right, labels, names)


def check_labels_in_graph(found, is_right, labels, names):
    """Returns `found` if all of `is_right` is true. Otherwise the graph fails when it runs."""
    return check_in_graph(found, is_right, f"A label must be {_known(names)}. Received:", labels)


def label_id(value, numbers_of: dict[str, int], place) -> int:
    """Returns the number of a label.

    Args:
        value: the label's name or number.
        numbers_of: dict that maps names to numbers.
        place: string. Description of the label's position, for the message.
    """
    value = as_scalar(value)
    value = decode(value) if isinstance(value, bytes) else value
    if isinstance(value, str) and value in numbers_of:
        return numbers_of[value]
    if is_integer(value) and 0 <= value < len(numbers_of):
        return int(value)
    raise ValueError(
        f"A label must be {_known(list(numbers_of))}. Received: {value!r:.80} at {place}"
    )


def _known(names):
    known = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f"one of the model's {len(names)}: {known}, or its number"


def as_scalar(value):
    """Returns the Python value of an array or tensor of one. Other values do not change."""
    if not hasattr(value, "__array__") or np.prod(np.shape(value)) != 1:
        return value
    # `np.asarray` does not work on tensors on a GPU.
    return value.item() if hasattr(value, "item") else np.asarray(value).item()
