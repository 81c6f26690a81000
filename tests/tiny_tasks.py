"""The tasks with labelled rows and their data, for tests of what all of them do.

The list `TASKS` of a file `tiny_*.py` has functions that return a `task_rows.Task`, with ten rows
each. Questions and lists of words have one row with several windows.
"""

import importlib
import pathlib

import numpy as np

_FILES = sorted(pathlib.Path(__file__).parent.glob("tiny_*.py"))
_MODULES = [importlib.import_module(path.stem) for path in _FILES if path.stem != __name__]
TASKS = {make.__name__: make() for module in _MODULES for make in getattr(module, "TASKS", ())}


def with_large_weights(model):
    """Replaces the weights of kernels and heads, so that answers differ clearly."""
    generator = np.random.default_rng(0)
    weights = [weight for weight in model.backbone.weights if weight.name == "kernel"]
    for layer in model.head_layers().values():
        weights += layer.weights
    for weight in weights:
        weight.assign(generator.normal(scale=0.4, size=weight.shape))
    return model
