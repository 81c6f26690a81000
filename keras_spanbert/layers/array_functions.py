"""Array functions of NumPy and TensorFlow alike, for code that runs in and out of `tf.data`.

`xp` is `numpy` or `tensorflow.experimental.numpy`.
"""

import numpy as np


def int32(xp, x):
    return xp.asarray(x, dtype=np.int32)


def size(xp, x):
    return int32(xp, xp.size(x))


def append_end(xp, x, end):
    return xp.concatenate([x, xp.reshape(end, (1,))], axis=0)


def cumsum(xp, x, axis=None):
    # NumPy would widen to 64 bits.
    return xp.cumsum(int32(xp, x), axis=axis, dtype=np.int32)


def true_indices(xp, x):
    return int32(xp, xp.nonzero(xp.reshape(x, (-1,)))[0])


def draw_below(xp, draws, stop):
    """Uniform integers in [0, stop) from uniform draws in [0, 1)."""
    return int32(xp, draws * xp.asarray(stop, dtype=np.float64))


# What the two namespaces do not share, or TensorFlow's does in a dear way.


def take(xp, x, indices):
    if xp is np:
        return x[indices]
    import tensorflow as tf

    return tf.gather(x, indices)


def num_at_most(xp, ascending, x):
    """How many of `ascending` `[n]` are at most `x`, int32 of its shape `[B, C]`."""
    if xp is np:
        return np.searchsorted(ascending, x, side="right").astype(np.int32)
    import tensorflow as tf

    found = tf.searchsorted(ascending, tf.reshape(x, (-1,)), side="right")
    return tf.reshape(found, (-1, x.shape[1]))


def scatter_add(xp, x, indices, values):
    """`x` `[B, C]` with `values` added at `indices` into its flat view."""
    if xp is np:
        x = x.copy()
        np.add.at(x.reshape(-1), indices, values)
        return x
    import tensorflow as tf

    flat = tf.tensor_scatter_nd_add(
        tf.reshape(x, (-1,)), tf.reshape(indices, (-1, 1)), tf.reshape(values, (-1,))
    )
    return tf.reshape(flat, (-1, x.shape[1]))


def scatter_min(xp, x, indices, values):
    """`x` `[n]` with the least of itself and of the `values` at its `indices`."""
    if xp is np:
        x = x.copy()
        np.minimum.at(x, indices, values)
        return x
    import tensorflow as tf

    indices, values = tf.reshape(indices, (-1, 1)), tf.reshape(values, (-1,))
    return tf.tensor_scatter_nd_min(x, indices, values)


def until_unchanged(xp, function, arrays: list) -> list:
    """What `function` of arrays comes to when it is applied to its results again and again."""
    if xp is np:
        while True:
            before, arrays = arrays, function(*arrays)
            if all((a == b).all() for a, b in zip(before, arrays)):
                return arrays
    import tensorflow as tf

    def step(_, before):
        after = function(*before)
        changes = [tf.reduce_any(a != b) for a, b in zip(before, after)]
        return tf.reduce_any(changes), after

    return tf.while_loop(lambda is_new, _: is_new, step, [True, arrays])[1]
