"""SHA-256 sums of the files of a folder, as `sha256sum -c SHA256SUMS` checks them."""

import hashlib
import os
from collections.abc import Iterable

# Written last and removed first: without it a folder that was written here is not whole.
SUMS = "SHA256SUMS"


def sha256(path: str) -> str:
    """The SHA-256 sum of a file, as a hexadecimal string."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_sums(folder: str, names: Iterable[str]) -> None:
    """Writes the sums of some files of a local folder into it."""
    lines = [f"{sha256(os.path.join(folder, name))}  {name}\n" for name in names]
    with open(os.path.join(folder, SUMS), "w", encoding="utf-8") as file:
        file.writelines(lines)


def read_sums(folder: str) -> dict[str, str]:
    """The sums that a local folder has, by the names of files."""
    with open(os.path.join(folder, SUMS), encoding="utf-8") as file:
        return dict(reversed(line.rstrip("\n").split("  ", 1)) for line in file)
