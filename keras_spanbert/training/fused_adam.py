"""Adam's update of all variables in one call, on PyTorch."""

from collections.abc import Sequence

from keras_spanbert.training.clipping import clip_factor, multiply


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
    """Updates variables by Adam without correction of the moments' bias.

    Args:
        variables: `keras.Variable`s.
        grads: their gradients, which are clipped in place.
        momentums: `keras.Variable`s, the first moments.
        velocities: `keras.Variable`s, the second moments.
        velocity_hats: `keras.Variable`s, the largest second moments so far, of
            AMSGrad. Defaults to `()`.
        learning_rate: float32 tensor of no axes, with the correction in it.
        beta_1: float.
        beta_2: float.
        epsilon: float.
        weight_decay: float. Decoupled, times the rate. Defaults to `0.0`.
        global_clipnorm: float. Largest norm of all gradients together. Defaults
            to `None`, none.
    """
    import torch
    from torch.optim.adamw import adamw

    values = [variable.value for variable in variables]
    grads = [grad.to(value.dtype).contiguous() for grad, value in zip(grads, values)]
    # The fused kernels go through memory from its beginning to its end.
    is_fused = all(value.is_contiguous() for value in values)
    scale = None
    with torch.no_grad():
        if global_clipnorm and global_clipnorm > 0.0:
            factor = clip_factor(grads, global_clipnorm)
            if is_fused:
                scale = 1.0 / factor
            else:
                grads = multiply(grads, [factor] * len(grads))
        # After so many steps PyTorch corrects nothing.
        step = torch.full((), float("inf"), device=values[0].device)
        adamw(
            values,
            grads,
            *([variable.value for variable in kept] for kept in (momentums, velocities)),
            [variable.value for variable in velocity_hats],
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
