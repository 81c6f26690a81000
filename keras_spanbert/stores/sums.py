"""SHA-256 sums of the files of a folder, as `sha256sum -c SHA256SUMS` checks them."""

import hashlib
import os
import re
from collections.abc import Iterable

# Written last and removed first: without it a folder that was written here is not whole.
SUMS = "SHA256SUMS"
# The star is of `sha256sum --binary`.
_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")


def sha256(path: str) -> str:
    """The SHA-256 sum of a file, as a hexadecimal string."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sum_lines(folder: str, names: Iterable[str]) -> list[str]:
    """Lines of the sums of some files of a local folder, as `sha256sum` has them."""
    return [f"{sha256(os.path.join(folder, name))}  {name}\n" for name in names]


def write_sums(folder: str, names: Iterable[str], others: Iterable[str] = ()) -> None:
    """Writes the sums of some files of a local folder into it, below lines of others there."""
    lines = [*others, *sum_lines(folder, names)]
    with open(os.path.join(folder, SUMS), "w", encoding="utf-8") as file:
        file.writelines(lines)


def read_sums(folder: str) -> dict[str, str]:
    """The sums that a local folder has, by the names of files.

    Raises:
        ValueError: where a line is not as `sha256sum` writes it.
    """
    sums = {}
    with open(os.path.join(folder, SUMS), encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            match = _LINE.fullmatch(line.rstrip("\n"))
            if not match:
                raise ValueError(
                    f"{SUMS} must have lines of `sha256sum`. Received: {line[:80]!r}, line {number}"
                )
            sums[match[2]] = match[1]
    return sums
