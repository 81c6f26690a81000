"""Checks and writes examples: code that all readers share."""

import math
import os

from keras_spanbert import files
from keras_spanbert.checks import check_path, check_paths
from keras_spanbert.wording import LOG, format_count


def check(is_right, place: str, rule: str, value, name: str = "") -> None:
    """Raises a `ValueError` with the place, the rule and the value, unless `is_right`.

    `name` is the name of the value, such as `"words[3]="`. Defaults to `""`: none.
    """
    if not is_right:
        raise ValueError(f"{place}: {rule}. Received: {name}{value!r:.80}")


def check_known(place: str, what: str, value, known) -> None:
    """Raises a `ValueError` if a value is not one of the strings `known`. `None` allows all."""
    if known is not None:
        check(value in known, place, f"{what} must be one of {', '.join(known)}", value)


def check_label(place: str, label, needs_label: bool, name: str = "a label") -> None:
    """Raises a `ValueError` if a label is `None` and needed."""
    rule = f"an example for training or scoring must have {name}"
    check(label is not None or not needs_label, place, rule, label)


def check_not_empty(examples: list, paths, name: str = "examples") -> list:
    """Returns the examples. Raises an error if there are none."""
    if not examples:
        shown = ", ".join(map(str, check_paths("paths", paths)))
        raise ValueError(f"{shown} must contain {name}. Received: none")
    return examples


def add_id(ids: set, name: str, place: str) -> None:
    """Adds an id to those of the other examples. Raises a `ValueError` if it is one of them."""
    check(name not in ids, place, "an id must not be repeated", name)
    ids.add(name)


def warn_left_out(places: list[str], noun: str, which: str) -> None:
    """Logs how many rows were left out, if any, and where the first is. `noun` names a row."""
    if places:
        count = format_count(len(places), noun)
        LOG.warning("Left out %s %s. The first is %s", count, which, places[0])


def write_lines(path: str | os.PathLike, examples, predictions, line, header=()) -> None:
    """Writes the header, and `line(example, prediction, place)` for each example, atomically."""
    if len(examples) != len(predictions):
        raise ValueError(
            f"`predictions` must have one item per example. Received: {len(predictions)} for "
            f"{len(examples)} examples"
        )
    rows = enumerate(zip(examples, predictions))
    lines = [*header, *(line(*row, f"predictions[{i}]") for i, row in rows)]
    with files.atomic_write(check_path("path", path)) as file:
        file.writelines(f"{line}\n" for line in lines)


def as_number(value) -> float:
    """Returns the number in a cell, nan if it is none."""
    try:
        # Python would read "1_0" as 10.
        is_number = not isinstance(value, bool) and "_" not in str(value)
        return float(value) if is_number else math.nan
    except (TypeError, ValueError, OverflowError):
        return math.nan


def field(value, key, place: str, kind):
    """Returns the value of `key` in a JSON object. It must have the type `kind`."""
    item = value.get(key) if isinstance(value, dict) else None
    # In Python, JSON's true and false are integers too.
    is_right = isinstance(item, kind) and not (kind is int and isinstance(item, bool))
    check(is_right, place, f"`{key}` must be a {kind.__name__}", item)
    return item
