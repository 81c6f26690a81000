"""Checks of method arguments, and conversion of those from Hugging Face `datasets`."""

import functools
import numbers
from collections.abc import Callable, Sequence

import numpy as np


def is_integer(value) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_in(is_in, rule: str, **argument):
    """Returns an argument. Raises a `ValueError` that states `rule` if `is_in` is false.

    A rule is, for example, "in (0, 1]".
    """
    ((name, value),) = argument.items()
    if not is_in:
        raise ValueError(f"`{name}` must be {rule}. Received: {name}={value!r}")
    return value


def check_positive(**argument) -> int:
    """Returns an argument as an int. Raises a `ValueError` if it is not a positive integer."""
    (value,) = argument.values()
    return int(check_in(int(value) == value and value >= 1, "a positive integer", **argument))


def check_counts(**arguments) -> None:
    """Raises a `ValueError` if an argument is not an integer of at least 1."""
    for name, value in arguments.items():
        if not is_integer(value):
            raise ValueError(f"`{name}` must be an integer. Received: {name}={value!r:.80}")
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1. Received: {name}={value}")


def check_length(sequence_length, minimum: int = 3) -> int:
    """Returns the number of tokens in a row. Checks that it is an integer of at least `minimum`."""
    if not is_integer(sequence_length) or sequence_length < minimum:
        raise ValueError(
            f"`sequence_length` must be an integer of at least {minimum}, for the special tokens "
            f"and a token of each text. Received: sequence_length={sequence_length!r:.80}"
        )
    return int(sequence_length)


def check_number_or_none(**arguments) -> None:
    """Raises a `ValueError` if an argument is neither a number nor `None`."""
    for name, value in arguments.items():
        if value is not None and (not is_number(value) or value != value):
            raise ValueError(f"`{name}` must be a number or None. Received: {name}={value!r:.80}")


def check_same_length(**columns) -> None:
    """Raises a `ValueError` if arguments, lists of values of the same rows, differ in length."""
    sizes = [len(column) for column in columns.values()]
    if len(set(sizes)) > 1:
        *names, last = (f"`{name}`" for name in columns)
        raise ValueError(
            f"{', '.join(names)} and {last} must have the same length. Received: "
            + ", ".join(map(str, sizes))
        )


def decode(text: bytes) -> str:
    """Decodes UTF-8. The replacement character U+FFFD replaces invalid bytes."""
    return text.decode("utf-8", errors="replace")


def to_python(values):
    """Converts arrays, tensors and ragged tensors of any library to lists, and bytes to strings.

    Other values do not change. Lists and tuples become lists of converted values, and the values
    of dicts are converted.
    """
    if type(values) in (str, int, float):  # Most values, and the loop below is slow.
        return values
    if isinstance(values, dict):
        return {name: to_python(value) for name, value in values.items()}
    if hasattr(values, "to_list"):  # A ragged tensor or a pandas object.
        values = values.to_list()
    elif hasattr(values, "tolist"):
        values = values.tolist()
    elif hasattr(values, "__array__"):
        values = np.asarray(values).tolist()
    if isinstance(values, (list, tuple)):
        return [to_python(value) for value in values]
    return decode(values) if isinstance(values, bytes) else values


def to_lists(value):
    """Converts columns and tables of `datasets`, alone or in a dict, to lists.

    A table becomes the list of its rows, which are dicts. A column, like any other sequence that
    is not text, becomes the list of its values. `to_python` converts the values, because a format
    may have made arrays of them. Lists, tuples, arrays and the rest do not change.

    Raises:
        ValueError: if it is a stream without a length, such as an `IterableDataset`.
    """
    if isinstance(value, dict):
        return {name: to_lists(column) for name, column in value.items()}
    # Recognized by their attributes, because `datasets` may not be installed.
    is_of_datasets = hasattr(value, "column_names") or hasattr(value, "column_name")
    if is_of_datasets and not hasattr(value, "__len__"):
        raise ValueError(
            "Data of `datasets` must have a length. Read a stream with `list(stream)`, or yield "
            f"batches from a generator. Received: a stream of type {type(value).__name__}"
        )
    is_list = isinstance(value, (str, bytes, list, tuple)) or not isinstance(value, Sequence)
    return to_python(list(value)) if is_of_datasets or not is_list else value


def accepts_datasets(function: Callable) -> Callable:
    """Decorator that converts all arguments of a function with `to_lists`."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        named = {name: to_lists(value) for name, value in kwargs.items()}
        return function(*map(to_lists, args), **named)

    return call
