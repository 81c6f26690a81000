"""What ends a training early."""

import builtins
import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from keras_spanbert import stores
from keras_spanbert.recipes.terminal import exit_on_user_error
from keras_spanbert.runs.interruption import Interruption
from keras_spanbert.runs.training_checkpoint import CheckpointError

# The end of what Python tells of an exception.
_LAST_LINE = re.compile(r"^(?:[\w.]+\.)?(\w+): (.*)$", re.MULTILINE)


@contextlib.contextmanager
def told_in_a_line(distribution, checkpoint, report) -> Iterator[Interruption]:
    """Within, signals end `fit`, and what the user can mend gives one line."""
    try:
        with Interruption(distribution) as interruption, contextlib.closing(report):
            yield interruption
    except (CheckpointError, FloatingPointError, OSError) as error:
        _exit(error, checkpoint)
    except tf.errors.OpError as error:
        # What reads the data raised it, within `tf.data`.
        name, text = [("", ""), *_LAST_LINE.findall(str(error))][-1]
        kind = getattr(builtins, name, getattr(stores, name, None))
        if not (isinstance(kind, type) and issubclass(kind, OSError)):
            raise
        _exit(text, checkpoint)


def _exit(error, checkpoint):
    if checkpoint.newest and checkpoint.newest not in str(error):
        error = f"{error}; the last good checkpoint is {checkpoint.newest}"
    exit_on_user_error(error)
