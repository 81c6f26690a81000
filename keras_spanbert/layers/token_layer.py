"""Base class of the layers that change batches of token ids, and their random numbers."""

import random

import keras
import numpy as np

from keras_spanbert.checks import check_in, is_number, to_lists
from keras_spanbert.keras_private import accept_tensorflow_tensors, in_grain
from keras_spanbert.layers.array_functions import in_graph, int32, is_symbolic
from keras_spanbert.optional import tf, tnp

# Number of float64 draws per value of Philox's counter: 4 x 64 bits in NumPy, 4 x 32 in TensorFlow.
_NUMPY_DRAWS, _TENSORFLOW_DRAWS = 4, 2


class TokenLayer(keras.layers.Layer):
    """A layer that changes batches of token ids with NumPy, and in `tf.data` with TensorFlow.

    A class sets `ranks`, `least_rows` and `least_length`, the shapes that it accepts, and
    `shape_rule`, which describes them in messages. A call without a `seed` draws new numbers, from
    the constructor's seed (by default a random one) and the number of the call.
    """

    ranks: tuple[int, ...] = (2,)
    least_rows, least_length = 0, 1
    shape_rule: str

    def __init__(self, vocabulary_size: int, seed=None, **kwargs):
        super().__init__(**kwargs)
        accept_tensorflow_tensors(self)
        self.built = True
        if seed is not None:
            check_in("seed", seed, is_number(seed) and seed % 1 == 0, "an integer")
        self.vocabulary_size = int(vocabulary_size)
        self.seed = seed
        # Drawn as in Keras, so that `keras.utils.set_random_seed` sets it.
        self.base_seed = random.randint(1, 10**9) if seed is None else int(seed)
        self._num_calls = None

    def next_seed(self):
        """Returns a new seed, as used by a call without one: base seed and number of the call."""
        try:
            import tensorflow as tf
        except ImportError:
            self._num_calls = (self._num_calls or 0) + 1
            return self.base_seed, self._num_calls
        if self._num_calls is None:
            # A variable, so that a traced graph counts each time that it runs.
            with tf.init_scope(), tf.device("cpu"):
                self._num_calls = tf.Variable(0, dtype=tf.int64, trainable=False)
        return tf.stack([self.base_seed, self._num_calls.assign_add(1)])

    def set_kinds(self, **kinds: int) -> None:
        """Sets `kinds`, int8 `[vocabulary_size]`: the kind of each token id, 0 by default.

        The name of an argument is that of an attribute with ids, and its value is their kind. If an
        id has several kinds, the last one counts.
        """
        self.kinds = np.zeros(self.vocabulary_size, np.int8)
        for name, kind in kinds.items():
            ids = np.atleast_1d(np.asarray(getattr(self, name), np.int64))
            are_known = np.all((ids >= 0) & (ids < self.vocabulary_size))
            rule = f"in the vocabulary, [0, {self.vocabulary_size})"
            check_in(name, getattr(self, name), are_known, rule)
            self.kinds[ids] = kind

    def run(self, function, token_ids, seed, first_row, *args) -> dict:
        """Calls `function(xp, token_ids, seed, first_row, *args)`, which returns a dict of arrays.

        Token ids become int32 arrays of `xp`. Returns tensors of TensorFlow in `tf.data`, NumPy
        arrays in a Grain pipeline, otherwise tensors of the backend.
        """
        is_graph, xp = in_graph(), np
        if is_graph:
            xp, function = tnp, tf.autograph.experimental.do_not_convert(function)
        token_ids = as_array(xp, "token_ids", token_ids)
        shape = tuple(token_ids.shape)
        fits = len(shape) in self.ranks and (shape[-1] or 0) >= self.least_length
        # An empty batch has no row to change. The size of a graph's batch may be unknown.
        if not has_integers(token_ids) or not fits or 0 < (shape[0] or 0) < self.least_rows:
            raise ValueError(
                f"`token_ids` must be integers {self.shape_rule}. Received: "
                f"dtype={token_ids.dtype}, shape={shape}"
            )
        if not is_graph and token_ids.size:
            least, most = token_ids.min(), token_ids.max()
            if not 0 <= least <= most < self.vocabulary_size:
                raise ValueError(
                    f"`token_ids` must be in [0, {self.vocabulary_size}). Received: ids from "
                    f"{least} to {most}"
                )
        seed = self.next_seed() if seed is None else seed
        results = function(xp, int32(xp, token_ids), seed, first_row, *args)
        if is_graph or in_grain():
            return results
        return {name: keras.ops.convert_to_tensor(x) for name, x in results.items()}

    def compute_output_spec(self, token_ids, **kwargs):
        backend = keras.backend.backend()
        if backend != "tensorflow":
            raise ValueError(
                f"`{type(self).__name__}` must be called eagerly or in `tf.data`. Only with "
                "TensorFlow can it be part of a functional model. Received: a symbolic tensor on "
                f"{backend}"
            )
        return super().compute_output_spec(token_ids, **kwargs)


def has_integers(x) -> bool:
    """Returns whether an array of NumPy or a tensor of TensorFlow has integers."""
    dtype = getattr(x.dtype, "as_numpy_dtype", x.dtype)  # TensorFlow's dtypes.
    return np.issubdtype(dtype, np.integer)


def as_array(xp, name: str, value):
    """Returns an argument as an array of `xp`. Raises `ValueError` if its rows differ in length."""
    if hasattr(value, "nested_row_splits"):
        raise ValueError(
            f"The rows of `{name}` must have the same length: pad them. Received: a ragged tensor"
        )
    if xp is not np:
        return tf.convert_to_tensor(value)
    try:
        return keras.ops.convert_to_numpy(to_lists(value))
    except (TypeError, ValueError):
        rows = value if isinstance(value, (list, tuple)) else []
        lengths = sorted({len(row) for row in rows if hasattr(row, "__len__")})
        if len(lengths) > 1:
            raise ValueError(
                f"The rows of `{name}` must have the same length: pad them. Received: rows of "
                f"lengths {', '.join(map(str, lengths)):.80}"
            ) from None
        return check_in(name, value, False, "an array of numbers")


# === Random numbers that depend only on a seed, inside and outside `tf.data` ===
def uniform(seed, num_rows, num_columns, stream: int = 0, first_row=0):
    """Returns uniform draws in [0, 1), float64 `[num_rows, num_columns]`.

    The draws of a row depend only on the seed, the `stream` and the row's number. Rows are
    numbered from `first_row`. To use one seed for several purposes, give each its own `stream`.
    Raises `ValueError` unless `seed` is an int or two ints, and `first_row` an int.
    """
    try:
        given = seed if hasattr(seed, "dtype") else np.asarray(seed)
        is_right = tuple(given.shape) in [(), (2,)] and np.issubdtype(
            keras.backend.standardize_dtype(given.dtype), np.integer
        )
    except (TypeError, ValueError):
        is_right = False
    check_in("seed", seed, is_right, "an int or two ints, below 2^63")
    if not is_symbolic(first_row):
        is_integer = hasattr(first_row, "__index__") and not isinstance(first_row, bool)
        check_in("first_row", first_row, is_integer and np.ndim(first_row) == 0, "an integer")
    try:  # Also outside of `tf.data`, so that the draws are the same.
        import tensorflow as tf
    except ImportError:
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
    return tf.bitwise.right_shift(x, np.uint64(bits))
