"""States of PyTorch's random number generators, for runs that are resumed."""

import keras
import numpy as np


def states() -> dict[str, np.ndarray]:
    """Returns the states of PyTorch's generators, which dropout uses on that backend."""
    if keras.backend.backend() != "torch":
        return {}
    import torch

    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()  # The generator of this process's device.
    return {f"generator/{device}": state.numpy().copy() for device, state in states.items()}


def restore(arrays: dict[str, np.ndarray]) -> None:
    """Restores the states of a checkpoint, if PyTorch is the backend."""
    if keras.backend.backend() != "torch":
        return
    import torch

    if "generator/cuda" in arrays and torch.cuda.is_available():
        torch.cuda.set_rng_state(torch.from_numpy(arrays["generator/cuda"]))
    if "generator/cpu" in arrays:  # Absent if the run started on another backend.
        torch.set_rng_state(torch.from_numpy(arrays["generator/cpu"]))
