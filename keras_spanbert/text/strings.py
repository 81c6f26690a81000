"""Lists of examples, and strings in any container."""

import re
from collections.abc import Sequence

from keras_spanbert.checks import check_in, check_kind, to_python
from keras_spanbert.layers.array_functions import is_symbolic
from keras_spanbert.optional import tf

_SURROGATE = re.compile("[\ud800-\udfff]")


def replace_surrogates(text: str) -> str:
    """Replaces each lone surrogate in a text with U+FFFD, because UTF-8 cannot encode it."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text


def as_strings(name: str, value):
    """Returns strings `[B]` in any container as a list, or as a graph's tensor of valid UTF-8.

    Raises a `ValueError` if the argument `name` is something else.
    """
    if is_symbolic(value):
        if value.dtype != tf.string or value.shape.rank != 1:
            raise ValueError(f"`{name}` must be strings [B]. Received: {name}={value!r:.80}")
        return tf.strings.unicode_transcode(value, "UTF-8", "UTF-8")
    if hasattr(value, "__array__"):
        items = to_python(value)
        are_numbers = getattr(getattr(value, "dtype", None), "kind", "O") in "biufc"
        is_list = isinstance(items, list) and not are_numbers
        if is_list and all(isinstance(item, str) for item in items):
            return items
    check_kind(name, value, isinstance(value, (list, tuple)), "a list of strings")
    for i, item in enumerate(value):
        if not isinstance(item, str):
            check_kind(f"{name}[{i}]", item, False, "a string")
    return list(value)


def check_in_graph(x, is_right, *message):
    """Returns `x` if all of `is_right` is true. Otherwise the graph fails when it runs."""
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(is_right), message)]):
        return tf.identity(x)


def is_examples(x) -> bool:
    """Returns whether `x` is a list of examples, one dict per row, as readers return them."""
    return isinstance(x, (list, tuple)) and bool(x) and all(isinstance(row, dict) for row in x)


def check_examples(examples) -> None:
    """Raises a `ValueError` if examples to score are not a list of dicts."""
    rule = "a list of dicts, as the readers in `keras_spanbert.data` return them"
    check_in("examples", examples, is_examples(examples), rule)


def column(examples, name: str) -> list:
    """Returns the values of one key of all examples. Raises `ValueError` if one lacks the key."""
    for i, example in enumerate(examples):
        if name not in example:
            raise ValueError(f"An example must have a `{name}`. Received: x[{i}]={example!r:.80}")
    return [example[name] for example in examples]


def columns_of(examples, required: Sequence[str], optional: Sequence[str] = ()) -> dict:
    """Returns columns of examples by name. Those that are optional have `None` for missing values.

    An optional column that no example has is left out.
    """
    found = [name for name in optional if any(name in example for example in examples)]
    return {
        **{name: column(examples, name) for name in required},
        **{name: [example.get(name) for example in examples] for name in found},
    }
