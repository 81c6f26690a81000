"""Converts strings in any container, and replaces invalid characters."""

import contextlib
import re

import numpy as np

from keras_spanbert.checks import decode
from keras_spanbert.layers.array_functions import is_symbolic

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

    Raises `ValueError` if the argument `name` is something else.
    """
    if is_symbolic(value):
        import tensorflow as tf

        if value.dtype != tf.string or value.shape.rank != 1:
            raise ValueError(f"`{name}` must be strings [B]. Received: {name}={value!r:.80}")
        return tf.strings.unicode_transcode(value, "UTF-8", "UTF-8")
    if hasattr(value, "__array__"):
        items = [None]
        # Both errors come from tensors on a device or with gradients, which contain numbers.
        with contextlib.suppress(TypeError, RuntimeError):
            array = np.asarray(value)
            if array.ndim == 1 and array.dtype.kind in "USTO":
                items = array.tolist()
        if all(isinstance(item, (str, bytes)) for item in items):
            return [decode(item) if isinstance(item, bytes) else item for item in items]
    if not isinstance(value, (list, tuple)):
        shown = " ".join(repr(value).split())
        raise ValueError(
            f"`{name}` must be a list of strings. Received: {name}={shown:.80}, of type "
            f"{type(value).__name__}"
        )
    for i, item in enumerate(value):
        if not isinstance(item, str):
            raise ValueError(
                f"`{name}` must be a list of strings. Received: {name}[{i}]={item!r:.80}, of type "
                f"{type(item).__name__}"
            )
    return list(value)


def check_in_graph(x, is_right, *message):
    """Returns `x` if all of `is_right` is true. Otherwise the graph fails when it runs."""
    import tensorflow as tf

    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(is_right), message)]):
        return tf.identity(x)
