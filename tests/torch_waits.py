"""Counts waits for the device on PyTorch."""

import warnings


def count_waits(function) -> int:
    """Returns how often a function reads a number from the device, which makes a GPU finish."""
    import torch

    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning: Profiler clears events")  # On GPUs.
        profile.start()
    function()
    profile.stop()
    return sum(event.name == "aten::item" for event in profile.events())
