"""What TensorFlow's C++ code tells on stderr while it is loaded, held back."""

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
# The log's own lines, and what is told about them. TensorFlow writes some before it has read its
# level.
_LINE = re.compile(
    rb"[IWE]\d{4} |WARNING: All log messages before |To enable the following instructions: "
)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Imports TensorFlow without its chatter, and nothing of anybody else's lost.

    Sets `TF_CPP_MIN_LOG_LEVEL` to 3 where the user has not set it, for
    TensorFlow's log from here on. Where TensorFlow is loaded already, or the
    level is 0, does nothing.

    Example:
    ```python
    with tensorflow_log.held_back():
        import tensorflow as tf
    ```
    """
    if "tensorflow" in sys.modules or os.environ.setdefault(_LEVEL, "3") == "0":
        yield
        return
    try:
        stderr = os.dup(2)
    except OSError:  # A process without any.
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
