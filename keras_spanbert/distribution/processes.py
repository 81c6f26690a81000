"""Communication between the processes that train together."""

import contextlib
from collections.abc import Iterator

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
