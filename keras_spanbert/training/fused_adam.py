"""Adam's update of all variables in a single call, on PyTorch."""

from collections.abc import Sequence

from keras import ops

from keras_spanbert.keras_private import current_values
from keras_spanbert.training.clipping import clip_factor, multiply


def bias_correction(optimizer, dtype):
    """Returns the factor for the learning rate that corrects both moments in the next update."""
    step = ops.cast(optimizer.iterations + 1, dtype)
    correction = ops.sqrt(1.0 - ops.power(ops.cast(optimizer.beta_2, dtype), step))
    return correction / (1.0 - ops.power(ops.cast(optimizer.beta_1, dtype), step))


def fused_adam(
    variables: Sequence,
    grads: Sequence,
    momentums: Sequence,
    velocities: Sequence,
    velocity_hats: Sequence = (),
    *,
    learning_rate,
    beta_1: float,
    beta_2: float,
    epsilon: float,
    weight_decay: float = 0.0,
    global_clipnorm: float | None = None,
) -> None:
    """Updates variables with Adam, without bias correction of the moments.

    Args:
        variables: `keras.Variable`s.
        grads: list of gradients of the variables. Clipping may change them in place.
        momentums: `keras.Variable`s, the first moments.
        velocities: `keras.Variable`s, the second moments.
        velocity_hats: `keras.Variable`s, the largest second moments so far, for
            AMSGrad. Defaults to `()`.
        learning_rate: scalar float32 tensor. Include the bias correction, if any.
        beta_1: float.
        beta_2: float.
        epsilon: float.
        weight_decay: float. Decoupled decay, multiplied by `learning_rate`.
            Defaults to `0.0`.
        global_clipnorm: float. Largest global norm of the gradients. Defaults to
            `None`: no clipping.
    """
    import torch
    from torch.optim.adamw import adamw

    values = current_values(variables)
    grads = [grad.to(value.dtype).contiguous() for grad, value in zip(grads, values)]
    # The fused kernels expect memory without gaps.
    is_fused = all(value.is_contiguous() for value in values)
    scale = None
    with torch.no_grad():
        if global_clipnorm and global_clipnorm > 0.0:
            factor = clip_factor(grads, global_clipnorm)
            if is_fused:
                scale = 1.0 / factor
            else:
                grads = multiply(grads, [factor] * len(grads))
        # With this number of steps, PyTorch's bias correction has no effect.
        step = torch.full((), float("inf"), device=values[0].device)
        adamw(
            values,
            grads,
            current_values(momentums),
            current_values(velocities),
            current_values(velocity_hats),
            [step] * len(values),
            foreach=False,
            fused=is_fused,
            grad_scale=scale,
            amsgrad=len(velocity_hats) > 0,
            beta1=beta_1,
            beta2=beta_2,
            lr=learning_rate,
            weight_decay=weight_decay,
            eps=epsilon,
            maximize=False,
        )
