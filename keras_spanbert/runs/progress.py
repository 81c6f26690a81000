"""Progress of long work on one line of a terminal."""

import shutil
import sys
import time

# Smallest number of seconds between two refreshes, and between two lines without a terminal.
TERMINAL_SECONDS, LOG_SECONDS = 0.2, 30.0
_MIN_BAR = 10


class ProgressLine:
    """A progress line that is redrawn in place and makes room for other lines.

    The line is never wider than the terminal. Figures that do not fit are left out, and the
    remaining width becomes a bar. If stdout is not a terminal, a new line is printed once in a
    while.
    """

    def __init__(self):
        self._is_terminal = sys.stdout.isatty()
        self._seconds = TERMINAL_SECONDS if self._is_terminal else LOG_SECONDS
        self._last = time.monotonic() - (self._seconds if self._is_terminal else 0.0)
        self._drawn = 0  # Number of characters on the terminal's line.

    def is_due(self) -> bool:
        """Returns whether it is time to show the next figures."""
        return time.monotonic() - self._last >= self._seconds

    def show(self, done: int, total: int, figures: list[str]) -> None:
        """Shows the progress, and figures, the most important ones first."""
        self._last = time.monotonic()
        count = f"{done:,}/{total:,}"
        if not self._is_terminal:
            print("  ".join([count, *figures]), flush=True)
            return
        text = _fitting(count, figures, done / max(total, 1), _columns() - 1)
        # One write, so that no other output comes between. Blanks cover the previous line.
        print(f"\r{text.ljust(self._drawn)}", end="", flush=True)
        self._drawn = len(text)

    def clear(self) -> None:
        """Clears the terminal's line, so that others can write on it."""
        if self._drawn:
            print(f"\r{' ' * min(self._drawn, _columns() - 1)}\r", end="", flush=True)
            self._drawn = 0

    def log(self, text: str) -> None:
        """Prints a line that stays. A narrow terminal wraps it between figures, at two blanks."""
        self.clear()
        self._last = time.monotonic() - (self._seconds if self._is_terminal else 0.0)
        lines = [""]
        for part in text.split("  ") if self._is_terminal else [text]:
            if lines[-1].strip() and len(f"{lines[-1]}  {part}") >= _columns():
                lines.append("")
            lines[-1] += f"  {part}"
        print("\n".join(lines)[2:], flush=True)  # All lines except the first one are indented.


def _fitting(count, figures, share, columns):
    """Returns a line of at most `columns` characters."""
    size, parts = len(count), []
    for figure in figures:
        if size + 2 + len(figure) <= columns:
            parts.append(figure)
            size += 2 + len(figure)
    room = columns - size - len(" []")
    if room >= _MIN_BAR:
        # A bar over the full width of a wide terminal is hard to read.
        width = min(room, 3 * _MIN_BAR)
        full = round(width * min(share, 1.0))
        count += f" [{'=' * full}{' ' * (width - full)}]"
    return "  ".join([count, *parts])[:columns]


def _columns():
    """Returns the width of the terminal, which may be resized."""
    return shutil.get_terminal_size().columns
