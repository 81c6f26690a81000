"""Terminal output, exit codes and signals."""

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from logging import Formatter
from types import SimpleNamespace

from absl import logging
from absl.flags import FLAGS

from keras_spanbert.recipes.run_folder import clean_up_folders

SIGNALS = [signal.SIGINT, signal.SIGTERM]
# The name of this program in messages: `train.py` or the installed command.
PROGRAM = SimpleNamespace(name="train.py")


def command() -> str:
    """Returns this program as typed on a command line."""
    return "python train.py" if PROGRAM.name == "train.py" else PROGRAM.name


def log(text: str = "") -> None:
    """Prints a line and flushes it."""
    print(text, flush=True)


@contextlib.contextmanager
def exit_on_user_error(errors=(ValueError, OSError)) -> Iterator[None]:
    """Context manager that reports mistakes of the user and disk errors with exit code 2."""
    try:
        yield
    except errors as error:
        exit_with_error(error)


def exit_with_error(error: Exception | str) -> None:
    """Prints one line on stderr and ends the program with exit code 2."""
    print(f"{PROGRAM.name}: {' '.join(str(error).split())}", file=sys.stderr)
    sys.exit(2)


def configure_logging() -> None:
    """Shows warnings in one line each: libraries' on stderr, our own on stdout."""
    if not FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)
    handler = logging.get_absl_handler()
    handler.setFormatter(Formatter(f"{PROGRAM.name}: %(message)s"))
    handler.addFilter(_redirect_own)


def _redirect_own(record):
    """Moves our own warnings to stdout. On stderr there is only the line about a mistake."""
    is_note = record.name == "keras_spanbert"
    if is_note:
        log(record.getMessage())
    return not is_note


def stop_on_signals(when: str, clean_up: bool = False) -> None:
    """Makes Ctrl-C and SIGTERM end the program with the line "interrupted `when`" on stderr.

    `clean_up` removes partial files first. Otherwise the program ends at once, because libraries
    swallow exceptions while they are imported.
    """
    stderr = os.dup(2)  # stderr itself is held back while TensorFlow loads.

    def stop(number, frame):
        os.write(stderr, f"{PROGRAM.name}: interrupted {when}\n".encode())
        if clean_up:
            sys.exit(128 + number)
        exit_process(128 + number)

    for number in SIGNALS:
        signal.signal(number, stop)


# === Ending one of several processes ===
def exit_process(code: int) -> None:
    """Ends this process at once, without waiting for its threads and for other processes."""
    clean_up_folders()
    # TensorFlow's threads may still be reading, and Python's shutdown would crash.
    os._exit(code)


def exit_on_error(error: BaseException) -> None:
    """Ends one of several processes after an error, at once: JAX would wait for the others."""
    code = error.code if isinstance(error, SystemExit) else 1
    if not isinstance(error, SystemExit):
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    exit_process(code or 0)
