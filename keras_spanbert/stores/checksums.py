"""SHA-256 checksums of the files in a folder, in the format of `sha256sum -c SHA256SUMS`."""

import hashlib
import os
import re
from collections.abc import Iterable

# Written last and removed first: a checkpoint, or a folder in a store, is incomplete without it.
CHECKSUMS = "SHA256SUMS"
# `sha256sum --binary` writes a star.
_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")


def sha256(path: str) -> str:
    """Returns the SHA-256 sum of a file, as a hexadecimal string."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checksum_lines(folder: str, names: Iterable[str]) -> list[str]:
    """Returns the lines that `sha256sum` would write for some files of a local folder."""
    return [f"{sha256(os.path.join(folder, name))}  {name}\n" for name in names]


def write_checksums(folder: str, names: Iterable[str], others: Iterable[str] = ()) -> None:
    """Writes the checksums of some files of a local folder into it, after the lines of `others`."""
    lines = [*others, *checksum_lines(folder, names)]
    with open(os.path.join(folder, CHECKSUMS), "w", encoding="utf-8") as file:
        file.writelines(lines)


def read_checksums(folder: str) -> dict[str, str]:
    """Returns the checksums recorded in a local folder, by the names of files.

    Raises:
        ValueError: if a line is not in the format of `sha256sum`.
    """
    checksums = {}
    with open(os.path.join(folder, CHECKSUMS), encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            match = _LINE.fullmatch(line.rstrip("\n"))
            if not match:
                raise ValueError(
                    f"{CHECKSUMS} must have lines in the format of `sha256sum`. Received: "
                    f"{line[:80]!r}, line {number}"
                )
            checksums[match[2]] = match[1]
    return checksums
