"""Suppresses the log of TensorFlow's C++ code on stderr while it is loaded."""

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
# Lines of the log, and lines about the log. TensorFlow writes some of them before it has read
# its log level.
_LINE = re.compile(
    rb"[IWE]\d{4} |WARNING: All log messages before |To enable the following instructions: "
)


@contextlib.contextmanager
def suppress_startup_log() -> Iterator[None]:
    """Context manager that suppresses TensorFlow's log during its import, but no other output.

    Sets `TF_CPP_MIN_LOG_LEVEL` to 3 for the rest of the process, unless the user has set
    it. Does nothing if TensorFlow is already loaded or the level is 0.
    """
    if "tensorflow" in sys.modules or os.environ.setdefault(_LEVEL, "3") == "0":
        yield
        return
    try:
        stderr = os.dup(2)
    except OSError:  # The process has no stderr.
        yield
        return
    if sys.stderr is not None:
        sys.stderr.flush()
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), 2)
        try:
            yield
        finally:
            if sys.stderr is not None:
                sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            written.seek(0)
            for line in written:
                if not _LINE.match(line):
                    with contextlib.suppress(OSError):
                        os.write(2, line)
