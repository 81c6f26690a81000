"""The class of the entries of `tiny_tasks.TASKS`: a task with labelled rows, and its data."""

import dataclasses
from collections.abc import Callable

import numpy as np

try:
    import tensorflow as tf
except ImportError:  # As in `python -m tests --gpu`.
    tf = None

QUIET = {"batch_size": 64, "verbose": 0}


@dataclasses.dataclass
class Task:
    """A task: its model and data.

    Attributes:
        build: function that returns an untrained model.
        ask: name of the model's method that returns answers.
        columns: the arguments of that method, ten rows each.
        evaluate: name of the model's method that scores examples.
        forms: the same ten rows as `(x, y)` in different containers, by name.
            "columns" are NumPy arrays that can be sliced.
        labels: the argument of the class that names its labels, or `None`.
        noun: the word for a row in messages.
    """

    build: Callable
    ask: str
    columns: list
    evaluate: str
    forms: dict
    labels: str | None = None
    noun: str = "row"


def padded(rows, padding=""):
    """Converts lists of different lengths to a padded array."""
    longest = max(map(len, rows))
    return np.array([[*row, *[padding] * (longest - len(row))] for row in rows])


def as_arrays(columns):
    return {name: np.array(column) for name, column in columns.items()}


def by_name(rows, names):
    return {name: [row[name] for row in rows] for name in names}


def evaluate(model, *args, **kwargs):
    return model.evaluate(*args, **{**QUIET, **kwargs}, return_dict=True)["loss"]
