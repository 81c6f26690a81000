"""Handles signals and errors that end training early."""

import builtins
import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from keras_spanbert import stores
from keras_spanbert.recipes.terminal import exit_with_error
from keras_spanbert.runs.interruption import Interruption
from keras_spanbert.runs.training_checkpoint import CheckpointError

# The last line of a Python traceback.
_LAST_LINE = re.compile(r"^(?:[\w.]+\.)?(\w+): (.*)$", re.MULTILINE)


@contextlib.contextmanager
def exit_on_training_error(distribution, checkpoint, report) -> Iterator[Interruption]:
    """Context manager for training. Handles signals and reports expected errors in one line."""
    try:
        with Interruption(distribution) as interruption, contextlib.closing(report):
            yield interruption
    except (CheckpointError, FloatingPointError, OSError) as error:
        _exit(error, checkpoint)
    except tf.errors.OpError as error:
        # An error of our Python code inside `tf.data`: its text ends with a Python traceback.
        name, text = [("", ""), *_LAST_LINE.findall(str(error))][-1]
        kind = getattr(builtins, name, getattr(stores, name, None))
        if not (isinstance(kind, type) and issubclass(kind, OSError)):
            raise
        _exit(text, checkpoint)


def _exit(error, checkpoint):
    if checkpoint.newest and checkpoint.newest not in str(error):
        error = f"{error}; the last good checkpoint is {checkpoint.newest}"
    exit_with_error(error)
