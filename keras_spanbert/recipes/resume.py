"""--resume: a run goes on with its own flags."""

import shlex

from keras_spanbert import files, stores
from keras_spanbert.recipes.flags import FLAGS, own_flags, resolve

# Flags that a run that is resumed may change.
FREE_FLAGS = [
    "checkpoint_every",
    "distribution",
    "export",
    "keep_checkpoints",
    "output",
    "predict_data",
    "predictions",
    "profile",
    "resume",
    "seeds",
    "tensorboard",
]
# What a run has that began before there was the flag.
_EARLIER_VALUES = {"predictions_multiple": 1}


def identity() -> dict:
    """The values that a run that is resumed must have."""
    return {f"--{flag.name}": flag.value for flag in own_flags() if flag.name not in FREE_FLAGS}


def recorded_run() -> dict:
    """What `run.json` in --output says, an empty dict where there is none."""
    path = stores.join(FLAGS.output or "", "run.json")
    return files.read_json(path) if FLAGS.resume and stores.is_file(path) else {}


def new_run_hint(output: str) -> str:
    """What works where a run cannot go on as it is asked to."""
    if stores.is_file(stores.join(output, "config.json")):
        return f"a new run with --preset={shlex.quote(output)} trains its model on"
    return "a new run in another --output can have others"


def take_up_flags() -> None:
    """With --resume, flags that are not given are those of the run.

    Raises:
        ValueError: where a flag is given that a run may not change.
    """
    if not FLAGS.resume:
        return
    if not FLAGS.output:
        raise ValueError("`--resume` takes --output, where the run is. Received: none")
    run = recorded_run()
    if run and not ("given" in run and set(run["given"]) <= set(FLAGS)):
        raise ValueError(
            f"A run must be of this version to --resume. Received: {FLAGS.output}, of version "
            f"{run.get('versions', {}).get('keras-spanbert', 'unknown')}"
        )
    recorded = {**_EARLIER_VALUES, **run["flags"]} if run else {}
    for name, value in recorded.items():
        if name not in FLAGS:
            continue
        if FLAGS[name].present:
            # As it was given, or as it was used: a run may lower a number that is too large.
            if FLAGS[name].value not in [run["given"].get(name, value), value]:
                _check_free(name, value)
            continue
        if name in run["given"]:
            resolve(**{name: run["given"][name]})
            FLAGS[name].present = 1
        elif name not in FREE_FLAGS:
            resolve(**{name: value})


def _check_free(name, value):
    if name not in FREE_FLAGS:
        raise ValueError(
            f"A run goes on with its own flags; {new_run_hint(FLAGS.output)}. Received: "
            f"--resume --output={FLAGS.output}, where --{name} is {value!r}, here "
            f"{FLAGS[name].value!r}"
        )
