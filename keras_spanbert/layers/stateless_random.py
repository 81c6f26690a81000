"""Random numbers that depend only on a seed, inside and outside `tf.data`."""

import keras
import numpy as np

from keras_spanbert.checks import check_in
from keras_spanbert.layers.array_functions import is_symbolic

# Number of float64 draws per value of Philox's counter: 4 x 64 bits in NumPy, 4 x 32 in TensorFlow.
_NUMPY_DRAWS, _TENSORFLOW_DRAWS = 4, 2


def check_draws(seed, first_row) -> None:
    """Raises `ValueError` unless `seed` is an int or two ints, and `first_row` an int."""
    try:
        given = seed if hasattr(seed, "dtype") else np.asarray(seed)
        is_right = tuple(given.shape) in [(), (2,)] and np.issubdtype(
            keras.backend.standardize_dtype(given.dtype), np.integer
        )
    except (TypeError, ValueError):
        is_right = False
    if not is_right:
        raise ValueError(f"`seed` must be an int or two ints, below 2^63. Received: seed={seed!r}")
    if not is_symbolic(first_row):
        is_integer = hasattr(first_row, "__index__") and not isinstance(first_row, bool)
        check_in("first_row", first_row, is_integer and np.ndim(first_row) == 0, "an integer")


def uniform(seed, num_rows, num_columns, stream: int = 0, first_row=0):
    """Returns uniform draws in [0, 1), float64 `[num_rows, num_columns]`.

    The draws of a row depend only on the seed, the `stream` and the row's number. Rows are
    numbered from `first_row`. To use one seed for several purposes, give each its own `stream`.
    """
    tf = tensorflow()
    if tf is None:
        seed = np.resize(np.append(np.asarray(seed, np.int64), 0), 2)
        seed[0] ^= stream
        counter, skipped = divmod(int(first_row) * num_columns, _NUMPY_DRAWS)
        bits = np.random.Philox(key=seed.astype(np.uint64), counter=counter)
        draws = np.random.Generator(bits).random(skipped + num_rows * num_columns)
        return draws[skipped:].reshape(num_rows, num_columns)
    with tf.device("cpu"):
        seed = tf.cast(seed if tf.is_tensor(seed) else keras.ops.convert_to_numpy(seed), tf.int64)
        if seed.shape.rank == 0:
            seed = tf.stack([seed, 0])
        if stream:
            seed = tf.bitwise.bitwise_xor(seed, tf.constant([stream, 0], tf.int64))
        # The draws of `tf.random.stateless_uniform`, but starting at another value of the counter.
        key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)
        position = tf.cast(first_row, tf.int64) * num_columns
        skipped = position % _TENSORFLOW_DRAWS
        counter += tf.cast(tf.stack([position // _TENSORFLOW_DRAWS, 0]), tf.uint64)
        size = num_rows * num_columns
        draws = tf.raw_ops.StatelessRandomUniformV2(
            shape=[size + _TENSORFLOW_DRAWS - 1],
            key=key,
            counter=counter,
            alg=tf.random.Algorithm.PHILOX.value,
            dtype=tf.float64,
        )
        draws = tf.reshape(tf.slice(draws, [skipped], [size]), (num_rows, num_columns))
        return draws.numpy() if tf.executing_eagerly() else draws


def row_uniform(xp, token_ids, number, seed: int, num_columns: int):
    """Returns uniform draws float64 `[B, num_columns]` that do not depend on the rest of the batch.

    Draw j is a hash of the row of `token_ids` `[B, L]`, of `number` `[B, 1]`, of the seed and of j,
    as in splitmix64 (Steele et al. 2014), the same with NumPy and TensorFlow.
    """
    counters = _STEP * np.arange(1, max(token_ids.shape[1], num_columns) + 1, dtype=np.uint64)
    seed = _mix_bits(np, np.array([seed % 2**64], np.uint64))
    ids = xp.asarray(token_ids, dtype=np.uint64)
    rows = _mix_bits(xp, ids + counters[: token_ids.shape[1]])
    rows = xp.sum(rows, axis=1, keepdims=True, dtype=np.uint64)
    number = _mix_bits(xp, xp.asarray(number, dtype=np.uint64) + seed)
    bits = _mix_bits(xp, _mix_bits(xp, rows ^ number) + counters[:num_columns])
    return xp.asarray(_shift_right(xp, bits, 11), dtype=np.float64) * 2.0**-53


_STEP = np.uint64(0x9E3779B97F4A7C15)


def _mix_bits(xp, x):
    x = (x ^ _shift_right(xp, x, 30)) * np.array([0xBF58476D1CE4E5B9], np.uint64)
    x = (x ^ _shift_right(xp, x, 27)) * np.array([0x94D049BB133111EB], np.uint64)
    return x ^ _shift_right(xp, x, 31)


def _shift_right(xp, x, bits):
    if xp is np:
        return x >> np.uint64(bits)
    import tensorflow as tf

    return tf.bitwise.right_shift(x, np.uint64(bits))


def tensorflow():
    """Returns the module `tensorflow`, or `None` if it is not installed."""
    # Draws come from TensorFlow whenever it is installed, so that they are the same inside and
    # outside `tf.data`.
    try:
        import tensorflow as tf
    except ImportError:
        return None
    return tf
