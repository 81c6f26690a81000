"""Converts labels: names or numbers, in any container."""

import re
from collections.abc import Callable, Sequence

import keras
import numpy as np

from keras_spanbert.checks import check_in, decode, is_integer, to_python
from keras_spanbert.layers.array_functions import namespace
from keras_spanbert.text.strings import check_in_graph


def check_names(name: str, values) -> list[str]:
    """Returns an argument as a list of label names. Checks that each is a string and unique."""
    is_list = isinstance(values, Sequence) and not isinstance(values, str)
    are_names = is_list and values and all(isinstance(v, str) and v for v in values)
    check_in(name, values, are_names, "a list of strings")
    twice = next((v for i, v in enumerate(values) if v in values[:i]), None)
    if twice is not None:
        raise ValueError(f"`{name}` must not contain a name twice. Received: {twice!r} twice")
    return list(values)


def as_labels(labels, names: list[str] | None, place: Callable = str):
    """Converts labels `[N]`, names or numbers, to the numbers that the model trains on.

    Without `names` they are numbers, also `[N, C]`. `place` describes a label's index in messages.
    Returns int32 for names and integers, float32 for other numbers. Raises `ValueError` for others.
    """
    rows = np.asarray(labels) if hasattr(labels, "__array__") else labels
    values = [as_scalar(value) for value in rows]
    if names is not None:
        numbers_of = label_numbers(names)
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
    # Larger integers are values of a regression.
    are_small = array.dtype.kind in "biu" and np.all(array < 2**31) and np.all(array >= -(2**31))
    return array.astype("int32" if are_small else "float32")


def _is_number(value):
    try:
        with np.errstate(over="ignore"):
            return bool(np.isfinite(np.asarray(value, "float64").astype("float32")).all())
    except (TypeError, ValueError, OverflowError):
        return False


# Losses whose labels are numbers of classes, or 0 and 1.
_LOSSES = (keras.losses.SparseCategoricalCrossentropy, keras.losses.BinaryCrossentropy)
_LOSS_FUNCTIONS = (keras.losses.sparse_categorical_crossentropy, keras.losses.binary_crossentropy)


def check_label_arrays(task, x, y, sample_weight):
    """Checks and returns labels that are already arrays, as `as_labels` checks other labels.

    `label_limits` of the task define the labels. Those of losses that do not compare numbers of
    classes are not checked, nor those with weight 0. Raises as `as_labels` does.
    """
    # JAX would train on a number that is not a class as if its loss were 0. Errors of the other
    # backends do not name the label or its row.
    limits = {} if y is None or not task.compiled else task.label_limits(x)
    for name, (limit, rule) in limits.items():
        labels, weights, loss = (
            part.get(name) if isinstance(part, dict) else part
            for part in (y, sample_weight, task.loss)
        )
        loss = keras.losses.get(loss) if isinstance(loss, str) else loss
        is_known = isinstance(loss, _LOSSES) or loss in _LOSS_FUNCTIONS
        # Several outputs have labels by name.
        if not is_known or labels is None or limit is None or bool(name) != isinstance(y, dict):
            continue
        ignored = getattr(loss, "ignore_class", None)
        labels = _check_numbers(labels, weights, limit, ignored, rule)
        y = {**y, name: labels} if name else labels
    return y


def _check_numbers(labels, weights, limit, ignored, rule):
    """Checks that labels are in 0, 1, ... below `limit`, or `ignored`, or have no weight."""
    xp = namespace(labels)
    if xp is np and not getattr(labels, "is_fully_addressable", True):
        return labels  # A part of the array is in another process.

    def as_array(x):
        is_eager = xp is np and keras.ops.is_tensor(x)
        return keras.ops.convert_to_numpy(x) if is_eager else xp.asarray(x)

    values = as_array(labels)
    if xp is np and values.size and values.dtype.kind in "USO":
        raise ValueError(f"{rule}. Received: {to_python(values.flat[0])!r:.80}")
    if xp is np and values.dtype.kind not in "biuf":
        return labels  # Keras refuses it.
    values = xp.asarray(values, dtype=np.float64)

    def align(x):
        """Adds axes until `x`, a value for each row, has as many as the labels."""
        x = as_array(x)
        while len(x.shape) > len(values.shape) and x.shape[-1] == 1:  # As Keras does.
            x = x[..., 0]
        return x[(..., *[None] * (len(values.shape) - len(x.shape)))]

    is_right = (values >= 0) & (values < xp.asarray(align(limit), dtype=np.float64))
    is_right &= values == xp.floor(values)
    if ignored is not None:
        is_right |= values == ignored
    if weights is not None:
        is_right |= align(weights) == 0
    if xp is not np:
        return check_in_graph(labels, is_right, f"{rule}. Received:", labels)
    if not is_right.all():
        place = tuple(np.argwhere(~is_right)[0].tolist())
        raise ValueError(f"{rule}. Received: {values[place]:g} at {', '.join(map(str, place))}")
    return labels


def label_numbers(names: list[str]) -> dict:
    """Returns the numbers of labels: by name, and by the integers that may stand for a name.

    If all names are integers, an integer is a name. Otherwise it is the label's number, unless an
    integer among the names has another number: then it could be either, and none is returned.
    """
    integers = {int(n): i for i, n in enumerate(names) if re.fullmatch("0|-?[1-9][0-9]*", n)}
    if len(integers) < len(names):
        is_clear = all(number == i for number, i in integers.items())
        integers = {i: i for i in range(len(names))} if is_clear else {}
    return {**{name: i for i, name in enumerate(names)}, **integers}


def label_id(value, numbers_of: dict, place) -> int:
    """Returns the number of a label. `numbers_of` are `label_numbers`, `place` is for messages."""
    value = as_scalar(value)
    value = decode(value) if isinstance(value, bytes) else value
    if (isinstance(value, str) or is_integer(value)) and value in numbers_of:
        return numbers_of[value]
    names = [key for key in numbers_of if isinstance(key, str)]
    integers = [key for key in numbers_of if is_integer(key)]
    known = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    more = ", or its number"
    if not integers:
        more = ", as a string, because an integer could be a name or a number"
    elif list(map(str, integers)) == names:
        more = ", as a string or an integer"
    raise ValueError(
        f"A label must be one of the model's {len(names)}: {known}{more}. Received: "
        f"{value!r:.80} at {place}"
    )


def as_scalar(value):
    """Returns the Python value of an array or tensor of one. Other values do not change."""
    if not hasattr(value, "__array__") or np.prod(np.shape(value)) != 1:
        return value
    # `np.asarray` does not work on tensors on a GPU.
    return value.item() if hasattr(value, "item") else np.asarray(value).item()
