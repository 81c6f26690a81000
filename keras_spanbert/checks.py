"""Checks arguments, and converts data of Hugging Face `datasets` to lists."""

import functools
import numbers
import operator
import os
from collections.abc import Callable, Iterable, Sequence

import numpy as np


def is_integer(value) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_in(name: str, value, is_in, rule: str):
    """Returns an argument. Raises a `ValueError` with `rule`, such as "above 0", unless `is_in`."""
    if not is_in:
        raise ValueError(f"`{name}` must be {rule}. Received: {name}={value!r:.200}")
    return value


def check_kind(name: str, value, is_right, rule: str):
    """Returns an argument like `check_in`, whose message also gives the type of the value."""
    if not is_right:
        shown, kind = " ".join(repr(value).split()), type(value).__name__
        raise ValueError(f"`{name}` must be {rule}. Received: {name}={shown:.80}, of type {kind}")
    return value


def check_none(reason: str, **arguments) -> None:
    """Raises a `ValueError` if an argument is not `None`."""
    for name, value in arguments.items():
        check_kind(name, value, value is None, f"None because {reason}")


def check_positive(name: str, value) -> int:
    """Returns an argument as an int. Raises a `ValueError` if it is not a positive integer."""
    is_positive = is_number(value) and value >= 1 and value % 1 == 0
    return int(check_in(name, value, is_positive, "a positive integer"))


def check_range(interval: str, **arguments) -> None:
    """Raises a `ValueError` if an argument is not a number in an interval, such as "(0, 1]"."""
    low, high = map(float, interval[1:-1].split(","))
    for name, value in arguments.items():
        is_in = is_number(value) and low <= value <= high
        is_in = is_in and (value > low or interval[0] == "[") and (value < high or "]" in interval)
        check_in(name, value, is_in, f"in {interval}")


def check_flags(**arguments) -> None:
    """Raises a `ValueError` if an argument is neither true nor false, such as "no"."""
    for name, value in arguments.items():
        check_in(name, value, np.ndim(value) == 0 and value in (True, False), "True or False")


def check_counts(least: int = 1, /, **arguments) -> None:
    """Raises a `ValueError` if an argument is not an integer of at least `least`."""
    for name, value in arguments.items():
        check_in(name, value, is_integer(value), "an integer")
        check_in(name, value, value >= least, f"at least {least}")


def check_id(name: str, value) -> int:
    """Returns an argument as an int. Raises a `ValueError` if it is not an integer."""
    return int(check_in(name, value, is_integer(value), "an integer"))


def check_ids(name: str, value) -> tuple[int, ...]:
    """Returns an argument, integers in any container. Raises a `ValueError` for anything else."""
    try:
        return tuple(operator.index(i) for i in value)
    except TypeError:
        return check_in(name, value, False, "a list of integers")


def check_path(name: str, value) -> str:
    """Returns a path with `~` expanded. Raises a `ValueError` if it is something else."""
    return expand_home(check_in(name, value, isinstance(value, (str, os.PathLike)), "a path"))


def expand_home(path: str | os.PathLike) -> str:
    """Returns a path with the home folder in place of `~` or `~user`."""
    path = os.path.expanduser(path)
    # Without such a user the path is not changed. It may be the name of a file.
    if path.startswith("~") and not os.path.lexists(path.partition("/")[0]):
        raise ValueError(
            "A path that starts with ~ must name the home folder of a user. For a file of this "
            f"name, write ./{path}. Received: {path}"
        )
    return path


def check_paths(name: str, value) -> list[str]:
    """Returns a path or several as a list: see `check_path`."""
    paths = [value] if isinstance(value, (str, os.PathLike)) else value
    is_list = isinstance(paths, Iterable) and not isinstance(paths, bytes)
    paths = list(paths) if is_list else [None]
    check_in(name, value, all(isinstance(path, (str, os.PathLike)) for path in paths), "paths")
    return [expand_home(path) for path in paths]


def check_rows(name: str, value) -> list:
    """Returns the values of rows as a list. Raises a `ValueError` if it is a single value."""
    is_list = isinstance(value, Iterable) and not isinstance(value, (str, bytes, dict))
    # Arrays of one number are iterable too.
    check_in(name, value, is_list and getattr(value, "shape", 1) != (), "a list of values")
    return to_python(value if hasattr(value, "__array__") else list(value))


def check_length(sequence_length, minimum: int = 3) -> int:
    """Returns the number of tokens in a row. Checks that it is an integer of at least `minimum`."""
    is_in = is_integer(sequence_length) and sequence_length >= minimum
    rule = f"an integer of at least {minimum}, for the special tokens and a token of each text"
    return int(check_in("sequence_length", sequence_length, is_in, rule))


def check_number_or_none(**arguments) -> None:
    """Raises a `ValueError` if an argument is neither a number nor `None`."""
    for name, value in arguments.items():
        is_in = value is None or is_number(value) and value == value
        check_in(name, value, is_in, "a number or None")


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

    The values of lists, tuples and dicts are converted too. Other values do not change.
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

    A table becomes the list of its rows, which are dicts. A column, like any other sequence that is
    not text, becomes the list of its values. Lists, tuples, arrays and other objects do not change.
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
    # The table's format may return arrays.
    return to_python(list(value)) if is_of_datasets or not is_list else value


def accepts_datasets(function: Callable) -> Callable:
    """Decorator that converts all arguments of a function with `to_lists`."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        named = {name: to_lists(value) for name, value in kwargs.items()}
        return function(*map(to_lists, args), **named)

    return call
