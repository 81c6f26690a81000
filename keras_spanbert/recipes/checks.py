"""Checks that need only the flags. They run before a backend is loaded or data is read."""

import collections
import math
import os
import shlex
from fractions import Fraction

from keras_spanbert import stores
from keras_spanbert.optional import check_backend, check_installed
from keras_spanbert.recipes.flags import FLAGS, own_flags, set_flags
from keras_spanbert.recipes.names import NAMES, recipe
from keras_spanbert.recipes.resume import recorded_run
from keras_spanbert.recipes.shared_flags import NEW_MODEL_FLAGS

# Flags that name files to read.
INPUTS = ["train_data", "eval_data", "predict_data"]
# Rules that absl cannot express: its bounds are inclusive.
_RULES = {
    "dropout": ("in [0, 1)", lambda x: x < 1.0),
    "attention_dropout": ("in [0, 1)", lambda x: x < 1.0),
    "beta_2": ("in [0, 1)", lambda x: x < 1.0),
    "epsilon": ("above 0", lambda x: x > 0.0),
    "initializer_range": ("above 0", lambda x: x > 0.0),
    "sequence_length": ("at least 3: [CLS], a token, [SEP]", lambda x: x >= 3),
}
# Keras accepts seeds below this. No other flag needs a number as large.
_INT_LIMIT = 2**32


def check() -> None:
    """Checks the flags that all recipes share. Raises `ValueError` if one is wrong."""
    check_backend()
    for flag in own_flags():
        if isinstance(flag.value, float):
            check_value(flag.name, math.isfinite(flag.value), "a finite number")
        elif isinstance(flag.value, int):
            check_value(flag.name, flag.value < _INT_LIMIT, f"below {_INT_LIMIT}")
    for name, (rule, holds) in _RULES.items():
        if FLAGS[name].value is not None:
            check_value(name, holds(FLAGS[name].value), rule)
    _check_flags_of_tasks()
    for name in INPUTS:
        for pattern in FLAGS[name].value or []:
            if next(stores.find(pattern), None) is None:
                raise ValueError(
                    f"`--{name}` must name files that exist. Received: --{name}={pattern}, which "
                    "no file matches"
                )
    _check_training()
    _check_model()


def _check_flags_of_tasks():
    """Raises `ValueError` if a flag is given that belongs to other tasks."""
    tasks = collections.defaultdict(list)
    for task in NAMES:
        for group in [task.replace("_", " ").capitalize(), *getattr(recipe(task), "GROUPS", ())]:
            tasks[group].append(task)
    for group, of_tasks in tasks.items():
        for flag in FLAGS.get_flags_for_module(group) if FLAGS.task not in of_tasks else []:
            if flag.present:
                raise ValueError(
                    f"`--{flag.name}` belongs to --task={' or '.join(of_tasks)}. Received: "
                    f"{format_flags(flag.name)} with --task={FLAGS.task}"
                )


def matching_files(name: str) -> list[str]:
    """Returns the files that match the globs of a flag."""
    return [path for pattern in FLAGS[name].value or [] for path in stores.find(pattern)]


def check_value(name: str, is_right: bool, rule: str) -> None:
    """Raises `ValueError` with the flag, the rule and the value if `is_right` is false."""
    if not is_right:
        refuse(f"`--{name}` must be {rule}", name)


def refuse(mistake: str, *names: str) -> None:
    """Raises `ValueError` with a text about a mistake and the flags of these names."""
    raise ValueError(f"{mistake}. Received: {format_flags(*names)}")


def format_flags(*names: str) -> str:
    """Returns flags as they are typed on a command line, for messages."""
    return ", ".join(_format_flag(FLAGS[name]) or f"no --{name}" for name in names)


def _format_flag(flag):
    name, equals, value = flag.serialize().partition("=")
    return name + equals + (value if value.split() == [value] else value and shlex.quote(value))


def reject_flags(*names: str) -> None:
    """Raises `ValueError` if one of these flags is given: the task does not use them."""
    for name in names:
        if FLAGS[name].value:
            refuse(f"--task={FLAGS.task} does not use --{name}", name)


def num_steps(steps_per_epoch: int | Fraction, steps: int | None = None) -> int:
    """Returns the number of steps of a run: from --epochs, else --steps, else `steps`.

    A resumed run keeps the number of steps that it started with.
    """
    if FLAGS.epochs and not recorded_run():
        return max(1, int(FLAGS.epochs * steps_per_epoch))
    return FLAGS.steps or steps


def check_steps(steps: int, eval_every: int | None = None) -> None:
    """Checks the flags that depend on the number of steps. Raises `ValueError` if one is wrong."""
    eval_every = min(steps, eval_every or FLAGS.eval_every or steps)
    for name in ["warmup_steps", "gradient_accumulation"]:
        if FLAGS[name].value is not None:
            check_value(name, FLAGS[name].value <= steps, f"at most the {steps:,} steps of the run")
    if steps % FLAGS.steps_per_execution or eval_every % FLAGS.steps_per_execution:
        rule = f"must divide {steps} steps and --eval_every={eval_every}"
        refuse(f"`--steps_per_execution` {rule}", "steps_per_execution")


def _check_training():
    if FLAGS["steps"].present and FLAGS["epochs"].present:
        refuse("`--steps` and `--epochs` cannot both be given", "steps", "epochs")
    if FLAGS.tensorboard:
        check_installed("tensorboard", "`--tensorboard`")
    if FLAGS.steps_per_execution > 1 and os.environ.get("KERAS_BACKEND") == "torch":
        raise ValueError(
            "`--steps_per_execution` needs the TensorFlow or JAX backend. Received: "
            f"--steps_per_execution={FLAGS.steps_per_execution} with KERAS_BACKEND=torch"
        )
    if FLAGS.steps and not FLAGS.epochs:
        check_steps(FLAGS.steps)


def _check_model():
    for name in NEW_MODEL_FLAGS if FLAGS.preset else []:
        if FLAGS[name].present:
            refuse(f"`--{name}` applies only to new models", name, "preset")
        set_flags(**{name: None})
    is_handle = "://" in (FLAGS.preset or "") and not stores.is_store(FLAGS.preset)
    is_there = FLAGS.preset and (stores.is_file(FLAGS.preset) or stores.is_folder(FLAGS.preset))
    if FLAGS.preset and not is_handle and not is_there:
        raise ValueError(
            "`--preset` must be a preset or a checkpoint. Received: "
            f"{format_flags('preset')}, which does not exist"
        )
