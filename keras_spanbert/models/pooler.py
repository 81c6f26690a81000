"""BERT's pooler: a dense layer and tanh over `[CLS]`."""

import keras

from keras_spanbert.layers.initializers import kernel_initializer
from keras_spanbert.models.checkpoint_entries import TensorGroup, dense

POOLER = TensorGroup(
    "pooler.", lambda x: dense("pooler.dense", "pooler", x["hidden_size"], x["hidden_size"])
)


def pooler(hidden_dim: int, initializer_range: float, dtype) -> keras.layers.Layer:
    """Returns the pooler layer, from float `[B, hidden_dim]` to the same shape."""
    return keras.layers.Dense(
        hidden_dim,
        activation="tanh",
        kernel_initializer=kernel_initializer(initializer_range),
        dtype=dtype,
        name="pooler",
    )
