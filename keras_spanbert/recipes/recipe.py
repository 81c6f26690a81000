"""`Recipe`, which describes a value of `--task`, and `Format`, which describes its files."""

import dataclasses
import importlib
from collections.abc import Callable

from keras_spanbert.tasks import TASKS

# Values of `--task`: the tasks, and `prepare`, which prepares text for them.
NAMES = (*TASKS, "prepare")


@dataclasses.dataclass(frozen=True)
class Format:
    """A format of a task's files, and the functions that read it and write --predictions in it."""

    endings: tuple[str, ...]  # In lower case, without .gz.
    read: Callable
    write: Callable
    written: tuple[str, ...]  # The endings that --predictions may have.


def formats_of(formats: dict[str, Format], paths: list[str]) -> dict[str, str]:
    """Returns the names of the formats of files, each with its last file."""
    found = {}
    for path in paths:
        ends = path.lower().removesuffix(".gz").endswith
        name = next((n for n, f in formats.items() if ends(f.endings)), None)
        if name is None:
            known = ", ".join(ending for f in formats.values() for ending in f.endings)
            raise ValueError(f"Files must end in {known}, optionally with .gz. Received: {path}")
        found[name] = path
    return found


@dataclasses.dataclass(kw_only=True)
class Recipe:
    """A value of `--task`. It fine-tunes with the functions below, or has `run`.

    Its module defines its own flags, in a group named after the task.
    """

    # Checks flags before a backend is loaded. Raises `ValueError` if one is wrong.
    check: Callable
    defaults: dict  # Values of shared flags.
    groups: tuple[str, ...] = ()  # Groups of flags that it shares with other recipes.
    datasets: tuple[str, ...] = ()  # Values of --dataset.
    run: Callable | None = None  # A function of a `Run`, for a recipe that does not fine-tune.
    # Returns the endings that --predictions may have. `None`: the recipe does not predict.
    endings: Callable[[], tuple[str, ...]] | None = None

    # === Fine-tuning ===
    epochs: int = 3
    learning_rate: float = 2e-5
    # Returns the examples of paths, given the name of their flag and the model (`None` for
    # --train_data).
    read: Callable | None = None
    # Returns scores, among them those of the class's `scores`, for the model and examples.
    evaluate: Callable | None = None
    predict: Callable | None = None  # Writes --predictions for the model and examples.
    # Returns arguments of `build`, such as the labels, for the training examples.
    model_arguments: Callable[[list], dict] = lambda examples: {}
    build: Callable | None = None  # `None`: `fine_tuning.build_model`.
    preprocessor_flags: tuple[str, ...] = ("sequence_length",)  # Arguments of the preprocessor.
    # Returns batches of the model and examples. `None`: `fine_tuning.stream`.
    stream: Callable | None = None
    # Returns the number of sequences per row, for the model and the stream.
    sequences: Callable = lambda model, stream: 1
    # A function of the model and the number of steps. `None`: AdamW with the values of the flags.
    optimizer: Callable | None = None
    export_flags: tuple[str, ...] = ()  # Arguments of the model's `serving_function`.
    # Flags that `optimizer`, `evaluate` and `predict` read.
    optimizer_flags: tuple[str, ...] = ()
    evaluation_flags: tuple[str, ...] = ("batch_size",)
    prediction_flags: tuple[str, ...] = ("batch_size",)


def find_recipe(name: str) -> Recipe:
    """Imports the module of a recipe and returns its `RECIPE`."""
    return importlib.import_module(f"keras_spanbert.recipes.{name}").RECIPE


def groups(name: str) -> list[str]:
    """Returns the groups of flags of a recipe. The third one has only its own flags."""
    own = name.replace("_", " ").capitalize()
    return ["Task", "Data", own, *find_recipe(name).groups, "Model", "Training"]
