"""Clipping of gradients by the norm of several together."""

from collections.abc import Sequence

from keras import ops


def clip_factor(grads: Sequence, most: float):
    """What gradients are to be multiplied by, so that their norm together is `most` at most.

    Args:
        grads: tensors, or `None` for none.
        most: float.
    """
    squares = [ops.sum(ops.square(ops.cast(grad, "float32"))) for grad in grads if grad is not None]
    return most / ops.maximum(ops.sqrt(sum(squares)), most) if squares else 1.0


def multiply(grads: Sequence, factors: Sequence) -> list:
    """Each gradient times its factor; `None` stays."""
    return [
        grad if grad is None else grad * ops.cast(factor, grad.dtype)
        for grad, factor in zip(grads, factors)
    ]
