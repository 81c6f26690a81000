"""The output of the commands on a terminal, which never ends a run."""

import io
import logging
import sys


class _Console(io.FileIO):
    """A file descriptor for output. Drops what cannot be written, for example after `| head`."""

    def write(self, data):
        try:
            return super().write(data)
        except OSError:
            return len(data)


def protect_output() -> None:
    """Makes stdout and stderr escape what their encoding lacks, and go on without a reader."""
    for name in ["stdout", "stderr"]:
        stream = getattr(sys, name)
        try:
            console = _Console(stream.fileno(), "w", closefd=False)
        except (AttributeError, OSError):  # There is none, or it is not a file, as in notebooks.
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
