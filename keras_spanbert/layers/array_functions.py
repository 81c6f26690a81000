"""Array functions that work with NumPy and with TensorFlow, inside and outside `tf.data`.

`xp` is `numpy` or `tensorflow.experimental.numpy`.
"""

import sys

import numpy as np

from keras_spanbert.optional import tf, tnp


def in_graph() -> bool:
    """Returns whether the code runs in a TensorFlow graph, as in `tf.data`."""
    tf = sys.modules.get("tensorflow")  # A graph exists only after TensorFlow's import.
    return tf is not None and not tf.executing_eagerly()


def is_symbolic(x) -> bool:
    """Returns whether `x`, or a part of it, is a tensor of a TensorFlow graph."""
    if not in_graph():
        return False
    return any(map(tf.is_symbolic_tensor, tf.nest.flatten(x, expand_composites=True)))


def namespace(x):
    """Returns the `xp` for `x`: TensorFlow's for graph tensors, otherwise NumPy."""
    return tnp if is_symbolic(x) else np


def int32(xp, x):
    return xp.asarray(x, dtype=np.int32)


def size(xp, x):
    return int32(xp, xp.size(x))


def append_end(xp, x, end):
    return xp.concatenate([x, xp.reshape(end, (1,))], axis=0)


def cumsum(xp, x, axis=None):
    # NumPy would widen to 64 bits.
    return xp.cumsum(int32(xp, x), axis=axis, dtype=np.int32)


def range_like(xp, x, dtype=np.int32):
    """Returns `0, 1, ...`, one number for each value of `x`."""
    return xp.cumsum(xp.ones_like(x, dtype=dtype), dtype=dtype) - 1


def true_indices(xp, x, *end):
    """Returns the indices of true values of the flat view, int32, and after them `end` if given."""
    indices = int32(xp, xp.nonzero(xp.reshape(x, (-1,)))[0])
    return xp.concatenate([indices, *(xp.reshape(i, (1,)) for i in end)], axis=0)


def draw_below(xp, draws, stop):
    """Returns uniform integers in [0, stop), computed from uniform draws in [0, 1)."""
    return int32(xp, draws * xp.asarray(stop, dtype=np.float64))


# Functions that TensorFlow's NumPy API lacks or computes slowly.


def take(xp, x, indices):
    if xp is np:
        return x[indices]
    return tf.gather(x, indices)


def repeat(xp, x, counts):
    """Returns an array with each `x[i]` repeated `counts[i]` times."""
    if xp is np:
        return np.repeat(x, counts)
    return tf.repeat(x, counts)


def count_at_most(xp, ascending, x):
    """Counts the values of `ascending` `[n]` that are at most `x` `[B, C]`: int32 `[B, C]`."""
    if xp is np:
        return np.searchsorted(ascending, x, "right").astype(np.int32)
    found = tf.searchsorted(ascending, tf.reshape(x, (-1,)), "right")
    return tf.reshape(found, (-1, x.shape[1]))


def distinct_numbers(xp, x):
    """Returns int32 numbers `[n]` from 0 that are the same for equal values of `x` `[n]`."""
    if xp is np:
        return np.unique(x, return_inverse=True)[1].astype(np.int32)
    return tf.unique(x)[1]


def scatter_add(xp, x, indices, values):
    """Returns `x` `[B, C]` with `values` added at `indices` of its flat view."""
    if xp is np:
        x = x.copy()
        np.add.at(x.reshape(-1), indices, values)
        return x
    # `tensor_scatter_nd_add` takes several times as long.
    added = tf.math.unsorted_segment_sum(
        tf.reshape(values, (-1,)), tf.reshape(indices, (-1,)), tf.size(x)
    )
    return x + tf.reshape(added, tf.shape(x))


def scatter_min(xp, x, indices, values):
    """Returns the minimum of `x` `[n]` and the `values` at its `indices`."""
    if xp is np:
        x = x.copy()
        np.minimum.at(x, indices, values)
        return x
    values, indices = tf.reshape(values, (-1,)), tf.reshape(indices, (-1,))
    return tf.minimum(x, tf.math.unsorted_segment_min(values, indices, tf.size(x)))


def repeat_while(xp, condition, function, arrays) -> list:
    """Applies `function` to arrays and then to its results, as long as the condition is true."""
    if xp is np:
        while condition(*arrays):
            arrays = function(*arrays)
        return arrays
    shapes = tf.nest.map_structure(lambda x: tf.TensorShape([None] * len(x.shape)), arrays)
    return tf.while_loop(
        condition, function, arrays, shape_invariants=shapes, parallel_iterations=1
    )


def fixed_point(xp, function, arrays: list) -> list:
    """Applies `function` to its own results until they no longer change."""
    if xp is np:
        while True:
            before, arrays = arrays, function(*arrays)
            if all((a == b).all() for a, b in zip(before, arrays)):
                return arrays

    def step(_, before):
        after = function(*before)
        changes = [tf.reduce_any(a != b) for a, b in zip(before, after)]
        return tf.reduce_any(changes), after

    return tf.while_loop(lambda is_new, _: is_new, step, [True, arrays])[1]
