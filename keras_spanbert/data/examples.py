"""Checks and writes examples: code that all readers share."""

import collections
import os

from keras_spanbert import files
from keras_spanbert.models.strings import replace_surrogates


def check_text(place: str, **texts) -> None:
    """Raises a `ValueError` if a string in one of the lists `texts` has a lone surrogate."""
    for name, values in texts.items():
        for value in values:
            clean = replace_surrogates(value)
            if clean is not value:
                at = next(i for i, (a, b) in enumerate(zip(value, clean)) if a != b)
                raise ValueError(
                    f"{place}: text must have no lone surrogates, which are halves of characters. "
                    f"Received: {value[at]!r} at character {at} of `{name}`"
                )


def check_not_empty(examples: list, paths, name: str = "examples") -> list:
    """Returns the examples. Raises an error if there are none."""
    if not examples:
        raise ValueError(f"{_format_paths(paths)} must contain {name}. Received: none")
    return examples


def _format_paths(paths):
    return ", ".join(map(str, as_list(paths)))


def check_ids(examples: list[dict], paths) -> list[dict]:
    """Returns the examples. Raises an error if there are none or an `id` is repeated."""
    check_not_empty(examples, paths)
    ids = collections.Counter(example["id"] for example in examples if "id" in example)
    twice = next((name for name, n in ids.items() if n > 1), None)
    if twice is not None:
        raise ValueError(
            f"{_format_paths(paths)}: an id must not be repeated. Received: {twice!r} again"
        )
    return examples


def write_lines(path: str | os.PathLike, examples, predictions, line, header=()) -> None:
    """Writes the header, and `line(example, prediction)` for each example, atomically.

    Raises:
        ValueError: if the numbers of examples and predictions differ.
        OSError: if the file cannot be written.
    """
    if len(examples) != len(predictions):
        raise ValueError(
            f"`predictions` must have one item per example. Received: {len(predictions)} for "
            f"{len(examples)} examples"
        )
    lines = [*header, *(line(*pair) for pair in zip(examples, predictions))]
    with files.atomic_write(os.fspath(path)) as file:
        file.writelines(f"{line}\n" for line in lines)


def as_list(paths) -> list:
    return [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)


def field(value, key, place: str, kind):
    """Returns the value of `key` in a JSON object. It must have the type `kind`."""
    item = value.get(key) if isinstance(value, dict) else None
    # In Python, JSON's true and false are integers too.
    if not isinstance(item, kind) or kind is int and isinstance(item, bool):
        raise ValueError(f"{place}: `{key}` must be a {kind.__name__}. Received: {item!r:.80}")
    return item
