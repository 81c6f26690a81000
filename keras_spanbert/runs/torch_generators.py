"""PyTorch's own generators of random numbers, which a run that goes on takes up."""

import keras
import numpy as np


def states() -> dict[str, np.ndarray]:
    """States of PyTorch's own generators, from which dropout draws there."""
    if keras.backend.backend() != "torch":
        return {}
    import torch

    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()  # Of this process's device.
    return {f"generator/{device}": state.numpy().copy() for device, state in states.items()}


def restore(arrays: dict[str, np.ndarray]) -> None:
    """Sets them to those of a checkpoint, where PyTorch is the backend."""
    if keras.backend.backend() != "torch":
        return
    import torch

    if "generator/cuda" in arrays and torch.cuda.is_available():
        torch.cuda.set_rng_state(torch.from_numpy(arrays["generator/cuda"]))
    if "generator/cpu" in arrays:  # None in a run that began on another backend.
        torch.set_rng_state(torch.from_numpy(arrays["generator/cpu"]))
