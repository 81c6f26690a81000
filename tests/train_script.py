"""Runs of train.py, for tests."""

import contextlib
import io
import logging as python_logging
import os
import pathlib
import subprocess
import sys

import keras
from absl import logging
from absl.testing import flagsaver
from forked import Forked

from keras_spanbert.recipes.names import NAMES, recipe
from keras_spanbert.recipes.run import check_flags, parse_flags, run_recipe

for name in NAMES:
    recipe(name)  # Defines its flags, which flagsaver would take away again.

ROOT = pathlib.Path(__file__).parent.parent
TIMEOUT = 180  # Seconds; a run takes some 15.


def start(*arguments, popen=Forked):
    """Starts train.py; `subprocess.Popen` for `popen` imports all anew."""
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    environment["PYTHONPATH"] = str(ROOT)
    return popen(
        [sys.executable, "train.py", *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*arguments, popen=Forked):
    with start(*arguments, popen=popen) as process:
        out, err = process.communicate(timeout=TIMEOUT)
    return process.returncode, out, err


def in_process(*arguments):
    """Runs train.py as a script would, in this process."""
    policy = keras.config.dtype_policy()
    try:
        with flagsaver.flagsaver():
            run_recipe(parse_flags(["train.py", *arguments]))
    finally:
        keras.config.set_dtype_policy(policy)


def printed(*arguments):
    """What such a run writes to stdout and to stderr."""
    out, err = io.StringIO(), io.StringIO()
    # A script has absl's handler from `absl.app.run`.
    handler = logging.get_absl_handler()
    stream = handler.python_handler.setStream(err)
    python_logging.getLogger().addHandler(handler)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            in_process(*arguments)
    finally:
        python_logging.getLogger().removeHandler(handler)
        handler.python_handler.setStream(stream)
    return out.getvalue(), err.getvalue()


def check_alone(*arguments):
    """What train.py does before it loads a backend or reads."""
    with flagsaver.flagsaver():
        check_flags(parse_flags(["train.py", *arguments]))


def check_mistake(code, err, *values):
    assert code == 2
    assert len(err.splitlines()) == 1 and "Traceback" not in err, err
    assert err.startswith("train.py: ")
    for value in values:
        assert str(value) in err
