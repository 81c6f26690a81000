"""Clipping of gradients by the norm of several together."""

from collections.abc import Sequence

import keras
from keras import ops


def clip_factor(grads: Sequence, most: float):
    """What gradients are to be multiplied by, so that their norm together is `most` at most.

    Args:
        grads: tensors, or `None` for none.
        most: float.
    """
    grads = [ops.cast(grad, "float32") for grad in grads if grad is not None]
    if not grads:
        return 1.0
    if keras.backend.backend() == "torch":
        import torch

        norm = torch.nn.utils.get_total_norm(grads)  # One kernel for many gradients.
    else:
        norm = ops.sqrt(sum(ops.sum(ops.square(grad)) for grad in grads))
    # An infinite norm would give 0, and hide what went wrong: it gives NaN, as by Keras's clipping.
    return most / ops.maximum(norm, most) + (norm - norm)


def multiply(grads: Sequence, factors: Sequence) -> list:
    """Each gradient times its factor; `None` stays."""
    return [
        grad if grad is None else grad * ops.cast(factor, grad.dtype)
        for grad, factor in zip(grads, factors)
    ]
