"""Reads and writes files and folders on the disk. Writes them whole or not at all.

Paths of `read_json`, `atomic_write`, the functions that use it, `check_new`, `check_writable` and
`new_folder` may be in stores (`s3://...`).
"""

import contextlib
import csv
import errno
import fnmatch
import hashlib
import json
import operator
import os
import pathlib
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from typing import IO

from keras_spanbert import cache, stores
from keras_spanbert.checks import check_path
from keras_spanbert.stores import CHECKSUMS, write_order

# Marks the names of local files and folders that are not complete.
PARTIAL = ".partial"
# The umask can only be read by setting it, which is done here, before there are threads.
_UMASK = os.umask(0)
os.umask(_UMASK)


def ending(path: str | os.PathLike) -> str:
    """Returns the ending of a file's name in small letters: `".csv"` of `A.CSV.GZ`."""
    return os.path.splitext(os.fspath(path).lower().removesuffix(".gz"))[1]


def read_json(path: str) -> dict:
    """Reads a JSON file as a dict. Raises `ValueError` if it is not an object in UTF-8."""
    try:
        with open(cache.local_copy(path), encoding="utf-8") as file:
            value = json.load(file)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} must be JSON in UTF-8. Received: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} must have a JSON object. Received: {type(value).__name__}")
    return value


def write_json(path: str, value, indent: int | None = 2) -> None:
    """Writes a JSON value atomically. Large values are written faster without `indent`."""
    try:
        text = json.dumps(value, indent=indent, allow_nan=False)
    except ValueError:
        # JSON has no NaN and no infinity. They become `null`, for example for undefined scores.
        value = json.loads(json.dumps(value), parse_constant=lambda name: None)
        text = json.dumps(value, indent=indent)
    with atomic_write(path) as file:
        file.write(text + "\n")


def write_json_lines(path: str, values: Iterable) -> None:
    """Writes values atomically, one JSON value per line."""
    # `operator.index` accepts NumPy's integers.
    lines = [json.dumps(value, default=operator.index) + "\n" for value in values]
    with atomic_write(path) as file:
        file.writelines(lines)


def write_csv(path: str, rows: list[dict], delimiter: str = ",") -> None:
    """Writes rows atomically, with the columns of all rows."""
    columns = dict.fromkeys(name for row in sorted(rows, key=len, reverse=True) for name in row)
    with atomic_write(path) as file:
        writer = csv.DictWriter(file, fieldnames=list(columns), restval="", delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


def read_csv(path: str) -> list[dict[str, str]]:
    """Reads the rows of a CSV file as text, by the names of the columns."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# === Writing ===
@contextlib.contextmanager
def _partial(path, inside=False):
    """Yields a temporary path next to `path` or in it. Errors name `path`."""
    path = os.fspath(path)
    name = f".{os.path.basename(path)[:50]}-{uuid.uuid4().hex[:8]}{PARTIAL}"
    place = os.path.join(path if inside else os.path.dirname(path), name)
    partial = os.path.join(place, "new")

    def renamed(value):
        if isinstance(value, str):
            return value.replace(partial, path).replace(place, path)
        return value

    try:
        os.mkdir(place, 0o700)
        yield partial
    except Exception as error:
        error.args = tuple(map(renamed, error.args))
        if isinstance(getattr(error, "filename", None), str):
            error.filename = renamed(error.filename)
        elif type(error) is OSError:  # For example, the disk is full.
            message = error.strerror or str(error)
            raise OSError(error.errno or errno.EIO, message, path) from None
        raise
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextlib.contextmanager
def atomic_write(path: str, mode: str = "w") -> Iterator[IO]:
    """Opens a temporary file that replaces `path` once it is complete.

    `mode` is "w" for text in UTF-8, or "wb". An `OSError` names `path`. Links are written through.
    """
    path = check_path("path", path)
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
    with stores.local_output(path) as local:
        local = os.path.realpath(local) if os.path.islink(local) else local
        with _partial(local) as partial:
            with open(partial, mode, **text) as file:
                yield file
            sync_to_disk(partial)
            os.replace(partial, local)


def check_new(path: str) -> None:
    """Raises `ValueError` if a folder to write is not empty or cannot be created."""
    holds_some = stores.entries(path) or stores.kind(path) not in (None, "directory")
    if holds_some or not os.fspath(path):
        shown = path or "an empty name"
        raise ValueError(f"The folder to write must be new or empty. Received: {shown}")
    check_writable(path)


def check_writable(path: str, name: str = "The folder to write") -> None:
    """Raises `ValueError` if a folder, existing or new, cannot be written to.

    `name` is its name in the message. In a store, an object is written to it and removed.
    """
    if stores.is_store(path):
        place = stores.join(path, f"{stores.PROBE}{uuid.uuid4().hex}")
        try:
            with stores.file_system(place) as (fs, key):
                fs.pipe_file(key, b"")
                fs.rm_file(key)
        except (stores.StoreError, FileNotFoundError) as error:
            message = f"{name} must be writable. Received: {path}: {error}"
            raise stores.StoreError(message) from None
        return
    existing = os.path.abspath(path)
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    if not os.path.isdir(existing):
        received = f"{path}, where {existing} is not a folder"
        raise ValueError(f"{name} must be a folder. Received: {received}")
    if not os.access(existing, os.W_OK):
        received = f"{path}, where {existing} is not writable"
        raise ValueError(f"{name} must be writable. Received: {received}")


@contextlib.contextmanager
def new_folder(path: str | os.PathLike) -> Iterator[str]:
    """Yields a temporary folder that becomes `path`, new or empty, once it is complete."""
    with stores.local_output(path) as local:
        disk = pathlib.Path(os.path.realpath(local))
        new_parents = [place for place in disk.parents if not place.exists()]
        try:
            disk.parent.mkdir(parents=True, exist_ok=True)
            with _partial(disk) as partial:
                os.mkdir(partial)
                yield partial
                # Some libraries create private files.
                for made in [pathlib.Path(partial), *pathlib.Path(partial).rglob("*")]:
                    os.chmod(made, (0o777 if made.is_dir() else 0o666) & ~_UMASK)
                os.replace(partial, disk)
        except BaseException:
            with contextlib.suppress(OSError):  # Others may have written to it meanwhile.
                for parent in new_parents:
                    parent.rmdir()
            raise


@contextlib.contextmanager
def add_to_folder(path: str, replaced: Iterable[str] = ()) -> Iterator[str]:
    """Yields a temporary folder whose files are moved to `path` once all are complete.

    After an error, nothing in `path` has changed. Other files in `path` are kept, except a
    `SHA256SUMS` that lists a file with new content, and, if a new file matches any of the patterns
    in `replaced`, those that match any. If the process is killed while the files are moved,
    `config.json` is missing, so that no library loads a mixture of old and new files. The targets
    of symbolic links are replaced.
    """
    with _partial(path, inside=True) as new:
        os.mkdir(new)
        yield new
        with contextlib.ExitStack() as undo:
            _swap(new, path, f"{new}-old", replaced, undo)
            undo.pop_all()


def _swap(new, path, old, replaced, undo):
    """Moves files from `path` to `old` and from `new` to `path`. `undo` reverses each step."""
    made = sorted(pathlib.Path(new).rglob("*"))
    names = [item.relative_to(new).as_posix() for item in made if not item.is_dir()]

    def place(name):
        target = os.path.join(path, name)
        return os.path.realpath(target) if name in names else target

    removed = {name for name in names if os.path.lexists(place(name))}

    def matches(name):
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in replaced)

    if any(map(matches, names)):
        removed.update(filter(matches, os.listdir(path)))
    if os.path.isfile(os.path.join(path, CHECKSUMS)):
        with contextlib.suppress(ValueError):  # A file of another format belongs to the user.
            if not removed.isdisjoint(read_checksums(path)):
                removed.add(CHECKSUMS)
    for name in removed:
        if os.path.isdir(target := place(name)):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
    for folder in filter(pathlib.Path.is_dir, made):
        target = os.path.join(path, folder.relative_to(new))
        if not os.path.isdir(target):
            os.mkdir(target)
            undo.callback(os.rmdir, target)

    def move_back(source, target):
        if not os.path.lexists(source):
            _move(target, source)

    order = sorted(removed, key=write_order, reverse=True)
    moves = [(place(name), os.path.join(old, name)) for name in order]
    moves += [(os.path.join(new, name), place(name)) for name in sorted(names, key=write_order)]
    for source, target in moves:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        undo.callback(move_back, source, target)  # Before the move, which may be interrupted.
        _move(source, target)


def _move(source, target):
    """Moves a file. On another disk it appears when it is complete."""
    try:
        os.replace(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copy2(source, f"{target}{PARTIAL}")
        os.replace(f"{target}{PARTIAL}", target)
        os.remove(source)


def remove_partial(folder: str) -> None:
    """Removes the incomplete files that a killed process left in a folder."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name.endswith(PARTIAL):
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


def sync_to_disk(path: str | os.PathLike) -> None:
    """Flushes a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# === Checksums of the files in a local folder, as those of `sha256sum` ===
def sha256(path: str) -> str:
    """Returns the SHA-256 sum of a file, as a hexadecimal string."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_checksums(folder: str) -> dict[str, str]:
    """Returns the checksums in `SHA256SUMS`, by name. Raises `ValueError` for other lines."""
    with open(os.path.join(folder, CHECKSUMS), encoding="utf-8") as file:
        # `sha256sum --binary` writes a star.
        matches = [re.fullmatch("([0-9a-f]{64}) [ *](.+)\n?", line) for line in file]
    if None in matches:
        raise ValueError(f"{CHECKSUMS} must have lines in the format of `sha256sum`")
    return {match[2]: match[1] for match in matches}
