"""The names of the recipes, and a function that imports one.

A recipe is a module with `DEFAULTS`, its default values of shared flags; `check()`,
which checks flags before a backend is loaded and raises a `ValueError` if one is
wrong; and `run(run)`. It may have:

- `GROUPS`: groups of flags that it shares with other recipes.
- `PAPER_GRID`: its value of `--grid=paper`.
- `prediction_extensions()`: the file extensions that `--predictions` may have with the given
  flags. Required of recipes that predict.
"""

import importlib
from types import ModuleType

from keras_spanbert.tasks import TASKS

# Values of `--task`: the tasks, and `prepare`, which prepares text for them.
NAMES = (*TASKS, "prepare")


def recipe(name: str) -> ModuleType:
    """Imports and returns the module of a recipe."""
    return importlib.import_module(f"keras_spanbert.recipes.{name}")
