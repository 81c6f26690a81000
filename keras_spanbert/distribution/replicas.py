"""Communication between the replicas of a step."""

import contextlib
from collections.abc import Callable, Iterator

import keras

from keras_spanbert.distribution.processes import num_torch_processes


def mean_over_replicas(x):
    """Returns the mean of a tensor over the replicas of a step.

    On JAX the tensor is returned unchanged, because it is computed from the whole batch.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        context = tf.distribute.get_replica_context()
        if context is None or context.num_replicas_in_sync == 1:
            return x
        return context.all_reduce(tf.distribute.ReduceOp.MEAN, x)
    if num_torch_processes() == 1 or x.device.type == "meta":
        return x
    import torch

    mean = x.detach() / num_torch_processes()
    torch.distributed.all_reduce(mean)
    return mean


def sum_over_replicas(tensors):
    """Returns the sums of tensors, or `None`, over TensorFlow's replicas, and their number.

    On the other backends, gradients are already combined, and the number is 1. `IndexedSlices`
    become dense tensors, because the norm of separate rows is not the norm of the gradient.
    """
    if keras.backend.backend() != "tensorflow":
        return tensors, 1
    import tensorflow as tf

    tensors = [tensor if tensor is None else tf.convert_to_tensor(tensor) for tensor in tensors]
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return tensors, 1
    given = [tensor for tensor in tensors if tensor is not None]
    sums = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, given))
    sums = [tensor if tensor is None else next(sums) for tensor in tensors]
    return sums, context.num_replicas_in_sync


def wrap_in_ddp(model: keras.Model, call: Callable):
    """Returns a PyTorch module that calls `call` and averages gradients over all processes."""
    import torch

    class Forward(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *args, **kwargs):
            return call(*args, **kwargs)

    return torch.nn.parallel.DistributedDataParallel(Forward())


@contextlib.contextmanager
def sync_metrics(metrics: list[keras.Metric]) -> Iterator[None]:
    """Context manager in which metrics have the results of all PyTorch processes together.

    It adds up their variables, and restores this process's own values at the end.
    """
    variables = [variable for metric in metrics for variable in metric.variables]
    if num_torch_processes() == 1 or not variables:
        yield
        return
    import torch

    own = [variable.value.detach().clone() for variable in variables]
    sums = torch.cat([value.reshape(-1).to(torch.float64) for value in own])
    torch.distributed.all_reduce(sums)
    for variable, part in zip(variables, sums.split([value.numel() for value in own])):
        variable.assign(part.reshape(variable.shape))
    try:
        yield
    finally:
        for variable, value in zip(variables, own):
            variable.assign(value)
