"""What the replicas of a step exchange within it."""

import contextlib
from collections.abc import Callable, Iterator

import keras

from keras_spanbert.distribution.processes import num_torch_processes


def mean_over_replicas(x):
    """The mean of a tensor over the replicas of a step; JAX has but one by itself."""
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


def summed_over_replicas(tensors):
    """The sums of tensors over TensorFlow's replicas, and how many these are.

    On the other backends tensors are already those of all replicas, and it is 1. Those that
    TensorFlow keeps as rows of a table, one for each time that the row was gathered, become
    whole: the norm of the rows apart is not the gradient's.

    Args:
        tensors: list of tensors; `None` stays.
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


def with_exchanged_gradients(model: keras.Model, call: Callable):
    """A PyTorch module that calls `call`, whose gradients are the mean over all processes."""
    import torch

    class Forward(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *args, **kwargs):
            return call(*args, **kwargs)

    return torch.nn.parallel.DistributedDataParallel(Forward())


@contextlib.contextmanager
def summed_over_processes(metrics: list[keras.Metric]) -> Iterator[None]:
    """Within, PyTorch's metrics are those of all processes together."""
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
