"""Clips gradients by their global norm."""

from collections.abc import Sequence

import keras
from keras import ops


def clip_factor(grads: Sequence, most: float):
    """Returns the factor that reduces the global norm of gradients to at most `most`.

    Args:
        grads: sequence of tensors or `None`.
        most: float. The largest global norm.
    """
    grads = [grad for grad in grads if grad is not None]
    if not grads:
        return 1.0
    if keras.backend.backend() == "torch":
        import torch

        # One kernel for many gradients.
        norm = torch.nn.utils.get_total_norm([grad.float() for grad in grads])
    else:
        grads = [ops.cast(grad, "float32") for grad in grads]
        norm = ops.sqrt(sum(ops.sum(ops.square(grad)) for grad in grads))
    # An infinite norm would give 0 and hide the error. It gives NaN instead, as in Keras.
    return most / ops.maximum(norm, most) + (norm - norm)


def multiply(grads: Sequence, factors: Sequence) -> list:
    """Returns each gradient times its factor. `None` is kept."""
    return [
        grad if grad is None else grad * ops.cast(factor, grad.dtype)
        for grad, factor in zip(grads, factors)
    ]
