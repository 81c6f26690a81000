"""`Recipe`, which describes a value of `--task`, and `Format`, which describes its files."""

import dataclasses
import importlib
from collections.abc import Callable, Iterable

from keras_spanbert.tasks import TASKS

# Values of `--task`: the tasks, and `prepare`, which prepares text for them.
NAMES = (*TASKS, "prepare")
# Groups of flags that all recipes share.
SHARED_GROUPS = ["Task", "Data", "Model", "Training"]


@dataclasses.dataclass(frozen=True)
class Format:
    """A format of a task's files.

    Attributes:
        endings: the endings of its files, in lower case. `()`: any other ending.
        read: function that reads files of this format.
        write: function that writes --predictions in this format.
        written: the endings that --predictions may have.
    """

    endings: tuple[str, ...]
    read: Callable
    write: Callable
    written: tuple[str, ...]


def formats_of(formats: dict[str, Format], paths: list[str]) -> dict[str, str]:
    """Returns the names of the formats of files, each with its last file.

    Raises:
        ValueError: if the ending of a file is unknown.
    """
    found = {}
    for path in paths:
        ends = path.lower().endswith
        name = next((n for n, f in formats.items() if not f.endings or ends(f.endings)), None)
        if name is None:
            known = ", ".join(ending for f in formats.values() for ending in f.endings)
            raise ValueError(f"Files must end in {known}. Received: {path}")
        found[name] = path
    return found


@dataclasses.dataclass(kw_only=True)
class Recipe:
    """A value of `--task`. It fine-tunes with the functions below, or has `run`.

    Attributes:
        check: function that checks flags before a backend is loaded. It raises `ValueError` if
            one is wrong.
        defaults: dict. The recipe's default values of shared flags.
        define_flags: function that defines the recipe's own flags, in a group named after the task.
        groups: names of groups of flags that it shares with other recipes.
        unused: function that returns names of flags of its groups that it does not use.
        conditions: function that returns the `checks.Condition`s of flags that have no effect in
            some of its runs.
        run: function of a `Run`, for a recipe that does not fine-tune.
        endings: function that returns the endings that --predictions may have with the given
            flags. `None` if the recipe does not predict.

        epochs, learning_rate: defaults of training.
        read: function of paths, the name of their flag, and the model (`None` for --train_data).
            It returns the examples.
        evaluate: function of the model and examples. It returns scores, among them those of the
            class's `scores`.
        predict: function of the model and examples that writes --predictions.
        model_arguments: function of the training examples that returns arguments of `build`, such
            as the labels.
        build: function that returns the model. Defaults to `fine_tuning.build_model`.
        preprocessor_flags: names of flags that are arguments of the preprocessor.
        stream: function of the model and examples that returns the batches to train on. Defaults
            to `fine_tuning.length_grouped_stream`.
        sequences: function of the model and the stream that returns the number of sequences per
            row.
        optimizer: function of the model and the number of steps. Defaults to AdamW with the values
            of the flags.
        export_flags: names of flags that are arguments of the model's `serving_function`.
    """

    check: Callable
    defaults: dict
    define_flags: Callable = lambda: None
    groups: tuple[str, ...] = ()
    unused: Callable[[], Iterable[str]] = tuple
    conditions: Callable[[], list] = list
    run: Callable | None = None
    endings: Callable[[], tuple[str, ...]] | None = None

    # === Fine-tuning ===
    epochs: int = 3
    learning_rate: float = 2e-5
    read: Callable | None = None
    evaluate: Callable | None = None
    predict: Callable | None = None
    model_arguments: Callable[[list], dict] = lambda examples: {}
    build: Callable | None = None
    preprocessor_flags: tuple[str, ...] = ("sequence_length",)
    stream: Callable | None = None
    sequences: Callable = lambda model, stream: 1
    optimizer: Callable | None = None
    export_flags: tuple[str, ...] = ()


def find_recipe(name: str) -> Recipe:
    """Imports the module of a recipe and returns its `RECIPE`."""
    return importlib.import_module(f"keras_spanbert.recipes.{name}").RECIPE


def own_group(name: str) -> str:
    """Returns the name of a recipe's own group of flags."""
    return name.replace("_", " ").capitalize()


def groups(name: str) -> list[str]:
    """Returns the groups of flags of a recipe."""
    task, data, *others = SHARED_GROUPS
    return [task, data, own_group(name), *find_recipe(name).groups, *others]
