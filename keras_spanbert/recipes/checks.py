"""What the flags alone show to be wrong, before a backend is loaded or anything is read."""

import importlib.util
import math
import os

from keras_spanbert import stores
from keras_spanbert.recipes.flags import FLAGS, NEW_MODEL_FLAGS, own_flags, resolve
from keras_spanbert.recipes.names import BENCHMARKS, TASKS

# Flags that name files to read.
INPUTS = ["train_data", "eval_data", "predict_data"]
# What the bounds of absl, which are closed, do not say.
_RULES = {
    "dropout": ("in [0, 1)", lambda x: x < 1.0),
    "attention_dropout": ("in [0, 1)", lambda x: x < 1.0),
    "beta_2": ("in [0, 1)", lambda x: x < 1.0),
    "epsilon": ("above 0", lambda x: x > 0.0),
    "initializer_range": ("above 0", lambda x: x > 0.0),
    "sequence_length": ("at least 3: [CLS], a token, [SEP]", lambda x: x >= 3),
}
# Keras takes no seed beyond; of everything else, so many would not fit a machine.
_LARGEST = 2**32


def check() -> None:
    """Raises a ValueError for what any recipe's flags show to be wrong by themselves."""
    for flag in own_flags():
        if isinstance(flag.value, float):
            check_value(flag.name, math.isfinite(flag.value), "a finite number")
        elif isinstance(flag.value, int):
            check_value(flag.name, flag.value < _LARGEST, f"below {_LARGEST}")
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
    """Raises a ValueError where a flag is given that is of another task alone."""
    tasks = {task.replace("_", " ").capitalize(): (task,) for task in TASKS}
    tasks.update({"Labelled data": tuple(BENCHMARKS), "Masking": ("pretrain", "prepare")})
    for group, of_tasks in tasks.items():
        for flag in FLAGS.get_flags_for_module(group) if FLAGS.task not in of_tasks else []:
            if flag.present:
                raise ValueError(
                    f"`--{flag.name}` is of --task={' or '.join(of_tasks)}. Received: "
                    f"{shown(flag.name)} with --task={FLAGS.task}"
                )


def check_value(name: str, is_right: bool, rule: str) -> None:
    """Raises a ValueError that names a flag, its rule and its value, where it is not right."""
    if not is_right:
        raise ValueError(f"`--{name}` must be {rule}. Received: {shown(name)}")


def shown(*names: str) -> str:
    """Flags as a command line has them, for messages."""
    return ", ".join(FLAGS[name].serialize() or f"no --{name}" for name in names)


def refuse(*names: str) -> None:
    """Raises a ValueError where a flag is given that the task does nothing with."""
    for name in names:
        if FLAGS[name].value:
            raise ValueError(f"--task={FLAGS.task} takes no --{name}. Received: {shown(name)}")


def steps_of(num_examples: int, steps: int | None) -> int:
    """The steps of a run: of --epochs where it is given, else --steps, else `steps`."""
    if FLAGS.epochs:
        return max(1, FLAGS.epochs * num_examples // FLAGS.batch_size)
    return FLAGS.steps or steps


def check_steps(steps: int, eval_every: int | None = None) -> None:
    """Raises a ValueError where flags do not fit the steps of the run.

    Args:
        steps: int.
        eval_every: int. Steps between evaluations. Defaults to `None`: not
            known, unless by the flag.
    """
    eval_every = min(steps, eval_every or FLAGS.eval_every or steps)
    for name in ["warmup_steps", "gradient_accumulation"]:
        if FLAGS[name].value is not None:
            check_value(name, FLAGS[name].value <= steps, f"at most the {steps:,} steps of the run")
    if steps % FLAGS.steps_per_execution or eval_every % FLAGS.steps_per_execution:
        raise ValueError(
            f"`--steps_per_execution` must divide {steps} steps and --eval_every={eval_every}. "
            f"Received: --steps_per_execution={FLAGS.steps_per_execution}"
        )


def _check_training():
    if FLAGS["steps"].present and FLAGS["epochs"].present:
        raise ValueError(
            "`--steps` and `--epochs` exclude each other. Received: "
            f"--steps={FLAGS.steps} --epochs={FLAGS.epochs}"
        )
    if FLAGS.tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise ValueError(
            "`--tensorboard` takes TensorBoard (pip install keras-spanbert[train]). Received: no "
            "package tensorboard"
        )
    if FLAGS.steps_per_execution > 1 and os.environ.get("KERAS_BACKEND") == "torch":
        raise ValueError(
            "`--steps_per_execution` takes TensorFlow or JAX. Received: "
            f"--steps_per_execution={FLAGS.steps_per_execution} with KERAS_BACKEND=torch"
        )
    if FLAGS.steps and not FLAGS.epochs:
        check_steps(FLAGS.steps)


def _check_model():
    for name in NEW_MODEL_FLAGS if FLAGS.preset else []:
        if FLAGS[name].present:
            raise ValueError(
                f"`--{name}` is for new models. Received: {shown(name)} with {shown('preset')}"
            )
        resolve(**{name: None})
    is_handle = "://" in (FLAGS.preset or "") and not stores.is_store(FLAGS.preset)
    if FLAGS.preset and not is_handle and not stores.exists(FLAGS.preset):
        raise ValueError(
            "`--preset` must be a preset or a checkpoint. Received: "
            f"--preset={FLAGS.preset}, nothing there"
        )
