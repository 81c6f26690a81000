"""How far long work is, on one line of a terminal."""

import os
import sys
import time

# Least seconds between two refreshes, and between two lines where there is no terminal.
TERMINAL_SECONDS, LOG_SECONDS = 0.2, 30.0
_DEFAULT_COLUMNS = 80
_LEAST_BAR = 10


class ProgressLine:
    """A line of figures that is drawn again in place, and makes room for other lines.

    It is never wider than the terminal: what does not fit is left out, and what
    is left of the width becomes a bar. Where stdout is no terminal, lines stand
    below one another, far apart in time.

    Example:
    ```python
    line = ProgressLine()
    for step in range(1, 1001):
        ...
        if line.is_due():
            line.show(step, 1000, ["0:12 left", f"loss {loss:.3f}"])
    line.clear()
    ```
    """

    def __init__(self):
        self._is_terminal = sys.stdout.isatty()
        self._seconds = TERMINAL_SECONDS if self._is_terminal else LOG_SECONDS
        self._last = time.monotonic() - (self._seconds if self._is_terminal else 0.0)
        self._drawn = 0  # Characters that stand on the terminal's line.

    def is_due(self) -> bool:
        """Whether it is time to show the next figures."""
        return time.monotonic() - self._last >= self._seconds

    def show(self, done: int, total: int, figures: list[str]) -> None:
        """Shows how much is done, and figures, the most important ones first."""
        self._last = time.monotonic()
        count = f"{done:,}/{total:,}"
        if not self._is_terminal:
            print("  ".join([count, *figures]), flush=True)
            return
        text = _fitting(count, figures, done / max(total, 1), _columns() - 1)
        # In one piece, so that nothing else comes between; blanks cover the line before.
        print(f"\r{text.ljust(self._drawn)}", end="", flush=True)
        self._drawn = len(text)

    def clear(self) -> None:
        """Leaves the terminal's line empty, for others to write on."""
        if self._drawn:
            print(f"\r{' ' * min(self._drawn, _columns() - 1)}\r", end="", flush=True)
            self._drawn = 0

    def log(self, text: str) -> None:
        """Prints a line of its own, which stays.

        Where a terminal is too narrow, it goes on in the next line between two
        figures, at two blanks.
        """
        self.clear()
        self._last = time.monotonic() - (self._seconds if self._is_terminal else 0.0)
        print("\n".join(_wrapped(text)) if self._is_terminal else text, flush=True)


def _wrapped(text):
    lines = [""]
    for part in text.split("  "):
        if lines[-1].strip() and len(f"{lines[-1]}  {part}") >= _columns():
            lines.append("")
        lines[-1] += f"  {part}"
    return [lines[0][2:], *lines[1:]]  # Those behind the first one are indented.


def _fitting(count, figures, share, columns):
    """The line of at most so many columns."""
    size, parts = len(count), []
    for figure in figures:
        if size + 2 + len(figure) <= columns:
            parts.append(figure)
            size += 2 + len(figure)
    room = columns - size - len(" []")
    if room >= _LEAST_BAR:
        # The last column of a wide terminal is far to read.
        width = min(room, 3 * _LEAST_BAR)
        full = round(width * min(share, 1.0))
        count += f" [{'=' * full}{' ' * (width - full)}]"
    return "  ".join([count, *parts])[:columns]


def _columns():
    """The terminal's width now, as windows are resized."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _DEFAULT_COLUMNS
    except (OSError, ValueError):
        return _DEFAULT_COLUMNS
