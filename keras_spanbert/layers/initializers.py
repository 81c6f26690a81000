"""BERT's initializer, and a way to skip it when weights are loaded next."""

import contextlib
import contextvars
from collections.abc import Iterator

import keras

_IS_SKIPPED = contextvars.ContextVar("is_initialization_skipped", default=False)


def kernel_initializer(stddev: float = 0.02) -> keras.initializers.Initializer:
    """Returns BERT's initializer for embeddings and kernels, or zeros in `skip_initialization`."""
    if _IS_SKIPPED.get():
        return keras.initializers.Zeros()
    return keras.initializers.TruncatedNormal(stddev=stddev)


@contextlib.contextmanager
def skip_initialization(is_skipped: bool = True) -> Iterator[None]:
    """Skips random initialization of models whose weights are all loaded next.

    `is_skipped=False` changes nothing.
    """
    token = _IS_SKIPPED.set(is_skipped or _IS_SKIPPED.get())
    try:
        yield
    finally:
        _IS_SKIPPED.reset(token)
