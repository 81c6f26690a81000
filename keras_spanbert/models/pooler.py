"""BERT's pooler: a dense layer and tanh over `[CLS]`."""

from collections.abc import Iterator

import keras

from keras_spanbert.layers.initializers import kernel_initializer
from keras_spanbert.models.checkpoint_entries import Entry, TensorGroup, dense


def _entries(settings: dict) -> Iterator[Entry]:
    yield from dense("pooler.dense", "pooler", settings["hidden_size"], settings["hidden_size"])


POOLER = TensorGroup("pooler.", _entries)


def pooler(hidden_dim: int, initializer_range: float, dtype) -> keras.layers.Layer:
    """Returns the pooler layer, from float `[B, hidden_dim]` to the same shape."""
    return keras.layers.Dense(
        hidden_dim,
        activation="tanh",
        kernel_initializer=kernel_initializer(initializer_range),
        dtype=dtype,
        name="pooler",
    )
