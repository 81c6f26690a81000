"""Base class of the layers that change batches of token ids, eagerly and in `tf.data`."""

import random

import keras
import numpy as np

from keras_spanbert.checks import check_in, is_number, to_lists
from keras_spanbert.keras_private import accept_tensorflow_tensors, in_grain
from keras_spanbert.layers.array_functions import in_graph, int32
from keras_spanbert.layers.stateless_random import check_draws, tensorflow


class TokenLayer(keras.layers.Layer):
    """A layer that changes batches of token ids with NumPy, and in `tf.data` with TensorFlow.

    A class sets `ranks`, `least_rows` and `least_length`, the shapes that it accepts, and
    `shape_rule`, which describes them in messages. Calls without a `seed` use that of the
    constructor, by default a random one.
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
        tf = tensorflow()
        if tf is None:
            self._num_calls = (self._num_calls or 0) + 1
            return self.base_seed, self._num_calls
        if self._num_calls is None:
            # A variable, so that a traced graph counts each time that it runs.
            with tf.init_scope(), tf.device("cpu"):
                self._num_calls = tf.Variable(0, dtype=tf.int64, trainable=False)
        return tf.stack([self.base_seed, self._num_calls.assign_add(1)])

    def set_kinds(self, **kinds: int) -> None:
        """Sets `kinds`, int8 `[vocabulary_size]`: the kind of each token id, 0 by default.

        Each argument is an attribute that holds ids, with their kind. The last one counts.
        """
        self.kinds = np.zeros(self.vocabulary_size, np.int8)
        for name, kind in kinds.items():
            ids = np.atleast_1d(np.asarray(getattr(self, name), np.int64))
            if np.any((ids < 0) | (ids >= self.vocabulary_size)):
                raise ValueError(
                    f"`{name}` must be in [0, vocabulary_size). Received: "
                    f"{name}={getattr(self, name)}, vocabulary_size={self.vocabulary_size}"
                )
            self.kinds[ids] = kind

    def run(self, function, token_ids, seed, first_row, *args) -> dict:
        """Calls `function(xp, token_ids, seed, first_row, *args)`, which returns a dict of arrays.

        Token ids become int32 arrays of `xp`. Returns tensors of TensorFlow in `tf.data`,
        NumPy arrays in a Grain pipeline, otherwise tensors of the backend.
        """
        is_graph, xp = in_graph(), np
        if is_graph:
            import tensorflow as tf
            import tensorflow.experimental.numpy as xp

            function = tf.autograph.experimental.do_not_convert(function)
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
        check_draws(seed, first_row)
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
        import tensorflow as tf

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
