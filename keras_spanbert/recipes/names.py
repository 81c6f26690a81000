"""The recipes' names, and how to get at one.

A recipe is a module with `DEFAULTS`, values of flags that are its own; `check()`,
which raises a ValueError for what the flags alone show to be wrong, before a
backend is loaded; and `run(run)`.
"""

import importlib
from types import ModuleType

from keras_spanbert.tasks import TASKS

# Values of `--task`: the tasks, and preparing text for them.
NAMES = (*TASKS, "prepare")

# The names of released data sets, by the task that reads them.
BENCHMARKS = {
    "classification": (
        "cola",
        "sst-2",
        "mrpc",
        "sts-b",
        "qqp",
        "mnli",
        "qnli",
        "rte",
        "wnli",
        "ax",
    ),
    "relation_extraction": ("tacred", "semeval2010"),
    "multiple_choice": ("swag", "codah", "cosmos_qa", "commonsense_qa", "race"),
    "token_classification": (),
}


def recipe(name: str) -> ModuleType:
    """The module of a recipe."""
    return importlib.import_module(f"keras_spanbert.recipes.{name}")
