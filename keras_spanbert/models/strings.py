"""Strings as users pass them in: in any container, with or without what is no character."""

import re

import numpy as np

_SURROGATE = re.compile("[\ud800-\udfff]")


def well_formed(text: str) -> str:
    """A text with the replacement character U+FFFD for each lone surrogate.

    A surrogate, as JSON's `"\\ud800"` gives it, is half of a character: UTF-8 has
    none, and what takes UTF-8 fails. Places in the text stay as they are.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text


def decode(text: bytes) -> str:
    """The text of UTF-8, with the replacement character U+FFFD for what is none."""
    return text.decode("utf-8", errors="replace")


def _string_array(value) -> np.ndarray | None:
    """The NumPy array of an array or tensor of strings of any library, else `None`."""
    if not hasattr(value, "__array__"):
        return None
    try:
        array = np.asarray(value)
    except (TypeError, RuntimeError):  # A tensor on a device, or with gradients: of numbers.
        return None
    is_text = array.dtype.kind in "UST" or (
        array.dtype.kind == "O" and all(isinstance(x, (str, bytes)) for x in array.ravel())
    )
    return array if is_text else None


def as_strings(**argument) -> list[str]:
    """A list of strings, of an argument that holds such in any container.

    Args:
        **argument: one, a list or tuple of strings, or an array, tensor or
            series `[B]` of strings, of any library.

    Raises:
        ValueError: where it is something else.
    """
    ((name, value),) = argument.items()
    array = _string_array(value)
    if array is not None and array.ndim == 1:
        return [decode(item) if isinstance(item, bytes) else item for item in array.tolist()]
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
