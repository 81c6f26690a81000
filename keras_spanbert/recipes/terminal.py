"""What the user sees and does: lines, mistakes, Ctrl-C."""

import contextlib
import math
import os
import signal
import sys
from collections.abc import Iterator
from logging import Formatter
from types import SimpleNamespace

from absl import logging
from absl.flags import FLAGS

SIGNALS = [signal.SIGINT, signal.SIGTERM]
# How messages name this program: `train.py` or the installed command.
PROGRAM = SimpleNamespace(name="train.py")


def log(text: str = "") -> None:
    """Tells the user, at once."""
    print(text, flush=True)


def shown_duration(seconds: float) -> str:
    """How long something takes at least, in the unit that fits: `90 s`, `12 min`, `2 h 5 min`."""
    if seconds < 120:
        return f"{math.ceil(seconds)} s"
    hours, minutes = divmod(int(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


@contextlib.contextmanager
def user_input(errors=(ValueError, OSError)) -> Iterator[None]:
    """Turns what is wrong with the user's input, or disk, into one line and exit code 2."""
    try:
        yield
    except errors as error:
        exit_on_user_error(error)


def exit_on_user_error(error: Exception | str) -> None:
    """Ends the program with one line and exit code 2."""
    print(f"{PROGRAM.name}: {' '.join(str(error).split())}", file=sys.stderr)
    sys.exit(2)


def plain_log() -> None:
    """Has libraries' warnings, and ours, told in a line each, and nothing below a warning."""
    if not FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)
    logging.get_absl_handler().setFormatter(Formatter(f"{PROGRAM.name}: %(message)s"))


def stop_on_signals(when: str, clean_up: bool = False) -> None:
    """Has Ctrl-C and SIGTERM end the program from now on.

    Args:
        when: string. How the line on stderr goes on behind "interrupted".
        clean_up: bool. Whether what is half-written is removed first. Defaults
            to `False`: at once, as libraries swallow exceptions while they are
            imported.
    """
    stderr = os.dup(2)  # What is told while TensorFlow loads is held back.

    def stop(number, frame):
        os.write(stderr, f"{PROGRAM.name}: interrupted {when}\n".encode())
        if clean_up:
            sys.exit(128 + number)
        os._exit(128 + number)

    for number in SIGNALS:
        signal.signal(number, stop)
