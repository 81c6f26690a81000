"""The names of the recipes, and a function that imports one.

A recipe is a module with `DEFAULTS`, its default values of shared flags; `check()`,
which checks flags before a backend is loaded and raises a `ValueError` if one is
wrong; and `run(run)`. It may have:

- `GROUPS`: groups of flags that it shares with other recipes.
- `conditions()`: the `checks.Condition`s of flags that have no effect in some of its runs.
- `prediction_extensions()`: the file extensions that `--predictions` may have with the given
  flags. Required of recipes that predict.

A recipe of fine-tuning has these members instead of `run`, which `fine_tuning.fine_tune` uses:

- `EPOCHS`, `LEARNING_RATE`: defaults of training.
- `read(paths, flag, model)`: returns the examples of files. `flag` is the name of their flag.
  `model` is `None` for --train_data.
- `evaluate(model, examples)`: returns scores, among them those of the class's `scores`.
- `predict(model, examples)`: writes --predictions.

It may also have:

- `model_arguments(examples)`: returns arguments of `build` that depend on the training examples,
  such as the labels.
- `build(**arguments)`: returns the model. Default: `fine_tuning.build_model`.
- `PREPROCESSOR_FLAGS`: flags that are arguments of the preprocessor. Default: sequence_length.
- `stream(model, examples)`: returns the `Batches` to train on. Default:
  `fine_tuning.length_grouped_stream`.
- `sequences(model, stream)`: returns the number of sequences per row. Default: 1.
- `optimizer(model, steps)`: returns the optimizer. Default: AdamW with the values of the flags.
- `EXPORT_FLAGS`: flags that are arguments of the model's `serving_function`.
"""

import importlib
from types import ModuleType

from keras_spanbert.tasks import TASKS

# Values of `--task`: the tasks, and `prepare`, which prepares text for them.
NAMES = (*TASKS, "prepare")


def recipe(name: str) -> ModuleType:
    """Imports and returns the module of a recipe."""
    return importlib.import_module(f"keras_spanbert.recipes.{name}")
