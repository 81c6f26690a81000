"""Communication between the processes, and the replicas of a step, that train together."""

import contextlib
from collections.abc import Callable, Iterator

import keras
import numpy as np


def to_numpy(variable: keras.Variable) -> np.ndarray:
    """Returns the whole value of a variable. All processes must call it: each may have a part."""
    if is_sharded(variable):
        from jax.experimental import multihost_utils

        return np.asarray(multihost_utils.process_allgather(variable.value, tiled=True))
    return keras.ops.convert_to_numpy(variable)


def assign(variable: keras.Variable, array) -> None:
    """Sets a variable to an array with the same value in all processes.

    If the variable is split over processes, only slices of this process's parts are read.
    """
    if not is_sharded(variable):
        variable.assign(np.asarray(array))
        return
    import jax

    now = variable.value
    variable.assign(
        jax.make_array_from_callback(
            now.shape, now.sharding, lambda index: array[index].astype(now.dtype)
        )
    )


def is_sharded(variable: keras.Variable) -> bool:
    """Returns whether this process may have only parts of a variable, which happens on JAX only."""
    if keras.backend.backend() != "jax":
        return False
    value = variable.value
    return not (value.is_fully_addressable or value.is_fully_replicated)


def process_index() -> int:
    """Returns the index of this process among those that train together."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.process_index()
    if num_torch_processes() > 1:
        import torch

        return torch.distributed.get_rank()
    return 0


def all_gather(number: int) -> list[int]:
    """Returns the integers of all processes, as a list. All processes must call it."""
    if keras.backend.backend() == "jax":
        import jax
        from jax.experimental import multihost_utils

        if jax.process_count() == 1:
            return [number]
        return multihost_utils.process_allgather(np.array(number)).tolist()
    if num_torch_processes() == 1:
        return [number]
    import torch

    numbers = [torch.tensor(number) for _ in range(num_torch_processes())]
    torch.distributed.all_gather(numbers, torch.tensor(number))
    return [int(number) for number in numbers]


def barrier() -> None:
    """Waits for all processes."""
    all_gather(0)


def num_torch_processes() -> int:
    """Returns the number of PyTorch processes that train together, 1 on other backends."""
    if keras.backend.backend() != "torch":
        return 1
    import torch

    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return 1
    return torch.distributed.get_world_size()


@contextlib.contextmanager
def without_distribution() -> Iterator[None]:
    """Context manager in which computations stay in this process."""
    distribution = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        yield
    finally:
        keras.distribution.set_distribution(distribution)


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
