"""The softmax of attention, and its gradient computed only from its result."""

import keras
from keras import ops


def wide_dtype(x) -> str:
    """Returns `"float64"` if `x` has that dtype, otherwise `"float32"`."""
    # PyTorch's compiler cannot trace `keras.backend.result_type`.
    return "float64" if keras.backend.standardize_dtype(x.dtype) == "float64" else "float32"


def softmax_forward(scores, bias=None):
    """Returns the softmax over the last axis of scores plus a bias, in the scores' dtype.

    With PyTorch, float32 scores are changed in place.
    """
    if scores.shape[-1] == 1:
        return scores * 0.0 + 1.0  # Keras would warn about a softmax over one value.
    # A 16-bit sum of hundreds of weights is off by several percent.
    wide = ops.cast(scores, wide_dtype(scores))
    if bias is not None:
        wide += bias
    return ops.cast(ops.softmax(wide, axis=-1), scores.dtype)


def softmax_backward(weights, upstream):
    """Returns the gradient of the scores from the 16-bit weights and the gradient of these."""
    wide = ops.cast(weights, "float32")
    upstream = ops.cast(upstream, "float32")
    mean = ops.sum(wide * upstream, axis=-1, keepdims=True)
    return ops.cast(wide * (upstream - mean), weights.dtype)
