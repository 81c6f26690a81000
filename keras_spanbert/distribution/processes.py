"""The processes that train together, and what they tell one another."""

import contextlib
from collections.abc import Iterator

import keras
import numpy as np


def to_numpy(variable: keras.Variable) -> np.ndarray:
    """The whole value of a variable, whose parts may be in other processes: all must ask."""
    if keras.backend.backend() == "jax" and not variable.value.is_fully_addressable:
        if not variable.value.is_fully_replicated:
            from jax.experimental import multihost_utils

            return np.asarray(multihost_utils.process_allgather(variable.value, tiled=True))
    return keras.ops.convert_to_numpy(variable)


def process_index() -> int:
    """Number of this process among those that train together."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.process_index()
    if num_torch_processes() > 1:
        import torch

        return torch.distributed.get_rank()
    return 0


def all_gather(number: int) -> list[int]:
    """The integers that the processes give, as a list: all must ask."""
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


def all_gather_bytes(data: bytes) -> list[bytes]:
    """What the processes give, as a list: all must ask."""
    sizes = all_gather(len(data))
    if len(sizes) == 1:
        return [data]
    padded = np.zeros(max(sizes), np.uint8)
    padded[: len(data)] = np.frombuffer(data, np.uint8)
    if keras.backend.backend() == "jax":
        from jax.experimental import multihost_utils

        rows = multihost_utils.process_allgather(padded)
    else:
        import torch

        rows = [torch.empty(len(padded), dtype=torch.uint8) for _ in sizes]
        torch.distributed.all_gather(rows, torch.from_numpy(padded))
        rows = [row.numpy() for row in rows]
    return [row[:size].tobytes() for row, size in zip(rows, sizes)]


def barrier() -> None:
    """Waits for all processes."""
    all_gather(0)


def num_torch_processes() -> int:
    """Number of PyTorch processes that train together, 1 on other backends."""
    if keras.backend.backend() != "torch":
        return 1
    import torch

    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return 1
    return torch.distributed.get_world_size()


@contextlib.contextmanager
def without_distribution() -> Iterator[None]:
    """Within, what is computed is this process's own."""
    distribution = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        yield
    finally:
        keras.distribution.set_distribution(distribution)
