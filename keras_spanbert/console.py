"""The output of the commands on a terminal, which never ends a run."""

import io
import logging
import os
import sys


class _Console(io.FileIO):
    """A file descriptor for output. Drops what cannot be written, for example after `| head`."""

    def write(self, data):
        try:
            return super().write(data)
        except OSError:
            return len(data)


def protect_output() -> None:
    """Makes stdout and stderr escape what they cannot encode, and ignore that a reader has left."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # It is closed: `>&-`.
            # A file of the run would get this number, and with it the output of C++ code.
            os.open(os.devnull, os.O_RDWR)
    for name in ["stdout", "stderr"]:
        stream = getattr(sys, name)
        if stream is None:  # Some libraries write to it without asking.
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))
            continue
        try:
            console = _Console(stream.fileno(), "w", closefd=False)
        except (AttributeError, OSError):  # It is not a file, as in notebooks.
            continue
        stream.flush()
        text = io.TextIOWrapper(
            io.BufferedWriter(console),
            stream.encoding,
            errors="backslashreplace",
            line_buffering=stream.line_buffering,
        )
        text.replaced = stream  # If it is not kept, Python closes the file descriptor.
        setattr(sys, name, text)
    # It warns in several lines if it cannot write its cache.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
