"""Runs of train.py in processes of their own, and signals that are passed on to them."""

import contextlib
import os
import signal
import subprocess
import sys

from keras_spanbert.recipes.terminal import PROGRAM

_COMMAND = (
    "import sys; sys.argv[0] = {program!r}; import keras_spanbert_commands; "
    "keras_spanbert_commands.train()"
)


class PassedSignals:
    """Passes Ctrl-C, SIGTERM and a terminal's end on to the run that is going on.

    Attributes:
        number: int, the signal that came, or `None`.
    """

    def __init__(self):
        self.number = None
        self._process = None

    def __enter__(self):
        numbers = [signal.SIGINT, signal.SIGTERM]
        # `nohup` has the end of a terminal ignored.
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
            numbers.append(signal.SIGHUP)
        self._before = {number: signal.signal(number, self._receive) for number in numbers}
        return self

    def __exit__(self, *error):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def passed_to(self, process):
        """Within, signals go to a process; one that came before it was there, too."""
        self._process = process
        try:
            if self.number:
                self._send()
            yield
        finally:
            self._process = None

    def _receive(self, number, frame):
        self.number = number
        if self._process is not None:
            self._send()

    def _send(self):
        with contextlib.suppress(ProcessLookupError):
            is_interrupt = self.number == signal.SIGINT
            self._process.send_signal(signal.SIGINT if is_interrupt else signal.SIGTERM)


def start_run(arguments: list[str], signals: PassedSignals, variables: dict[str, str]) -> int:
    """Runs train.py in a process of its own; returns its exit code.

    Args:
        arguments: list of strings, its flags.
        signals: `PassedSignals`.
        variables: dict of strings, of its environment, beside this one's.
    """
    environment = {**os.environ, **variables}
    # What this process imports, whatever started it.
    environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    command = [sys.executable, "-P", "-c", _COMMAND.format(program=PROGRAM.name), *arguments]
    # In a session of its own a run gets each signal once: from here, not from the terminal too.
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:
        with signals.passed_to(process):
            return process.wait()
