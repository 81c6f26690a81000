"""Calls functions of arrays from TensorFlow graphs, as in `dataset.map`."""

from collections.abc import Callable

import numpy as np


def call_from_graph(function: Callable, arguments, signature):
    """Returns tensors for `function(*arguments)`. The function runs, eagerly, when the graph does.

    `arguments` are tensors or `None`, nested and ragged as they come. `signature` has the structure
    of the result, with a `tf.TensorSpec` for each array. A `ValueError` of the function becomes a
    `tf.errors.InvalidArgumentError`.
    """
    import tensorflow as tf

    leaves, specs = tf.nest.flatten(arguments), tf.nest.flatten(signature)

    def call(*tensors):
        tensors = iter(tensors)
        values = [None if leaf is None else next(tensors) for leaf in leaves]
        result = function(*tf.nest.pack_sequence_as(arguments, values))
        arrays = list(map(np.asarray, tf.nest.flatten(result)))
        for array, spec in zip(arrays, specs, strict=True):
            # `as_labels` returns large integers as floats, which would wrap around here.
            if array.dtype.kind == "f" and spec.dtype.is_integer and array.size:
                raise ValueError(
                    "Integers must fit in 32 bits in a graph. Use floats for others. Received: "
                    f"{array!r:.80}"
                )
        return arrays

    given = [leaf for leaf in leaves if leaf is not None]
    arrays = tf.py_function(call, given, [spec.dtype for spec in specs])
    arrays = [tf.ensure_shape(array, spec.shape) for array, spec in zip(arrays, specs)]
    return tf.nest.pack_sequence_as(signature, arrays)
