"""--resume: continues a run with the flags that it was started with."""

import contextlib
import shlex

from keras_spanbert import files, stores
from keras_spanbert.recipes.flags import FLAGS, given, own_flags, set_flags

# Flags that may change when a run is resumed.
CHANGEABLE_FLAGS = [
    "checkpoint_every",
    "distribution",
    "export",
    "keep_checkpoints",
    "output",
    "predict_data",
    "predictions",
    "profile_steps",
    "resume",
    "tensorboard",
]


def identity() -> dict:
    """Returns the values that must not change when a run is resumed."""
    fixed = [flag for flag in own_flags() if flag.name not in CHANGEABLE_FLAGS]
    return {f"--{flag.name}": flag.value for flag in fixed}


def recorded_run() -> dict:
    """Returns the contents of `run.json` in --output, or {} without --resume or the file."""
    path = stores.join(FLAGS.output or "", "run.json")
    return files.read_json(path) if FLAGS.resume and files.is_file(path) else {}


def preset_warnings() -> contextlib.AbstractContextManager:
    """Context manager for loading --preset. It suppresses warnings if a checkpoint follows.

    The checkpoint replaces the weights, and the run has logged the warnings at its start.
    """
    from keras_spanbert.checkpoints.convert import suppress_warnings

    return suppress_warnings() if has_checkpoint() else contextlib.nullcontext()


def has_checkpoint() -> bool:
    """Returns whether --resume continues from a checkpoint."""
    if not FLAGS.resume:
        return False
    names = files.entries(stores.join(FLAGS.output, "checkpoints"))
    return any(name.startswith("step-") for name in names)


def new_run_hint(output: str) -> str:
    """Returns advice for a run that cannot be resumed in the requested way."""
    if files.is_file(stores.join(output, "config.json")):
        return f"to train its model further, start a new run with --preset={shlex.quote(output)}"
    return "to change it, start a new run in another --output"


def restore_flags() -> None:
    """With --resume, sets the flags that are not given to the values of the resumed run.

    Raises:
        ValueError: if --output has no run to resume and no flags describe a new
            one, or if a flag is given that must not change.
    """
    if not FLAGS.resume:
        return
    if not FLAGS.output:
        raise ValueError("`--resume` needs --output, the folder of the run. Received: no --output")
    run = recorded_run()
    if not run and set(given()) <= {"output"}:
        raise ValueError(
            "`--resume` needs a run in --output, or flags to start one with, such as "
            f"--train_data. Received: --resume --output={FLAGS.output}, which has no run"
        )
    if run and not ("given" in run and set(run["given"]) <= set(FLAGS)):
        raise ValueError(
            f"`--resume` needs a run of this version. Received: {FLAGS.output}, of version "
            f"{run.get('versions', {}).get('keras-spanbert', 'unknown')}"
        )
    for name, value in run.get("flags", {}).items():
        if name not in FLAGS:
            continue
        if FLAGS[name].present:
            # Compare the given value and the used one: a run may lower a number that is too large.
            is_same = FLAGS[name].value in [run["given"].get(name, value), value]
            if not is_same and name not in CHANGEABLE_FLAGS:
                raise ValueError(
                    f"A resumed run keeps its flags; {new_run_hint(FLAGS.output)}. Received: "
                    f"--{name}={FLAGS[name].value!r} with --resume --output={FLAGS.output}, where "
                    f"it is {value!r}"
                )
            continue
        if name in run["given"]:
            set_flags(**{name: run["given"][name]})
            FLAGS[name].present = 1
        elif name not in CHANGEABLE_FLAGS:
            set_flags(**{name: value})
