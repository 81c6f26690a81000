"""The softmax of attention, and its gradient from nothing but its result."""

import keras
from keras import ops


def wide_dtype(x) -> str:
    """float32, or float64 where `x` has that."""
    # PyTorch's compiler cannot trace `keras.backend.result_type`.
    return "float64" if keras.backend.standardize_dtype(x.dtype) == "float64" else "float32"


def softmax_forward(scores, bias=None):
    """The softmax over the last axis, in the scores' dtype, computed in float32 at least.

    Args:
        scores: float `[..., S]`; in float32 PyTorch adds the bias in place.
        bias: float, what is added to the scores. Defaults to `None`.
    """
    if scores.shape[-1] == 1:
        return scores * 0.0 + 1.0  # Keras would warn of a softmax over a text's only token.
    # A 16-bit sum of hundreds of weights is off by several percent.
    wide = ops.cast(scores, wide_dtype(scores))
    if bias is not None:
        wide += bias
    return ops.cast(ops.softmax(wide, axis=-1), scores.dtype)


def softmax_backward(weights, upstream):
    """The gradient of the scores, in the weights' dtype.

    Args:
        weights: float `[..., S]`, the result of `softmax_forward`, of 16 bits.
        upstream: float `[..., S]`, the gradient of the weights.
    """
    wide = ops.cast(weights, "float32")
    upstream = ops.cast(upstream, "float32")
    mean = ops.sum(wide * upstream, axis=-1, keepdims=True)
    return ops.cast(wide * (upstream - mean), weights.dtype)
