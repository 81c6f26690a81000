"""Writes files and folders whole or not at all, reads JSON and CSV, locks and checks folders.

Paths may be in stores (`s3://...`), except those of `add_to_folder`, `lock`, `read_csv`,
`remove_partial`, `sha256` and `sync_to_disk`.
"""

import contextlib
import csv
import errno
import io
import json
import math
import operator
import os
import pathlib
import random
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO

import filelock

from keras_spanbert import stores
from keras_spanbert.stores.checksums import sha256 as sha256

# The umask can only be read by setting it, which is done here, before there are threads.
_UMASK = os.umask(0)
os.umask(_UMASK)


def ending(path: str | os.PathLike) -> str:
    """Returns the ending of a file's name in small letters: `".csv"` of `A.CSV.GZ`."""
    return os.path.splitext(os.fspath(path).lower().removesuffix(".gz"))[1]


def read_json(path: str) -> dict:
    """Reads the object in a JSON file, as a dict.

    Raises:
        ValueError: if the file is not JSON in UTF-8, or has something other than an object.
    """
    try:
        with io.TextIOWrapper(stores.open_binary(path), encoding="utf-8") as file:
            value = json.load(file)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} must be JSON in UTF-8. Received: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} must have a JSON object. Received: {type(value).__name__}")
    return value


def write_json(path: str, value, indent: int | None = 2) -> None:
    """Writes a JSON value atomically. Large values are written faster without `indent`.

    JSON has no NaN and no infinity. They become `null`, for example for undefined scores.
    """
    try:
        text = json.dumps(value, indent=indent, allow_nan=False)
    except ValueError:
        text = json.dumps(_replace_nan(value), indent=indent)
    with atomic_write(path) as file:
        file.write(text + "\n")


def _replace_nan(value):
    if isinstance(value, dict):
        return {name: _replace_nan(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replace_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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


@contextlib.contextmanager
def _atomic_write_on_disk(path, mode="w"):
    partial = f"{path}{stores.PARTIAL}"
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
    try:
        with open(partial, mode, **text) as file:
            yield file
        os.replace(partial, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.remove(partial)
        # The error of a full disk names no file.
        if isinstance(error, OSError) and error.filename in (None, partial):
            code = error.errno or errno.EIO
            raise OSError(code, error.strerror or str(error), path) from None
        raise


@stores.on_disk(_atomic_write_on_disk)
@contextlib.contextmanager
def atomic_write(path: str, mode: str = "w") -> Iterator[IO]:
    """Opens a temporary file that replaces `path` once it is complete.

    Args:
        path: string.
        mode: "w" for text in UTF-8, or "wb". Defaults to `"w"`.

    Raises:
        OSError: if it cannot be written. The error names `path`.

    Example:
    ```python
    with files.atomic_write("metrics.json") as file:
        file.write("{}")
    ```
    """
    with tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, "file")
        with atomic_write(local, mode) as file:
            yield file
        stores.put_file(local, path)


def check_new(path: str) -> None:
    """Raises `ValueError` if a folder to write is not empty or cannot be created."""
    holds_some = stores.entries(path) or stores.exists(path) and not stores.is_folder(path)
    if holds_some or not os.fspath(path):
        shown = path or "an empty name"
        raise ValueError(f"The folder to write must be new or empty. Received: {shown}")
    check_writable(path)


def _check_writable_on_disk(path, name="The folder to write"):
    existing = os.path.abspath(path)
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    if not os.path.isdir(existing):
        raise ValueError(
            f"{name} must be a folder. Received: {path}, where {existing} is not a folder"
        )
    if not os.access(existing, os.W_OK):
        raise ValueError(
            f"{name} must be writable. Received: {path}, where {existing} is not writable"
        )


@stores.on_disk(_check_writable_on_disk)
def check_writable(path: str, name: str = "The folder to write") -> None:
    """Raises `ValueError` if a folder, existing or new, cannot be written to.

    Args:
        path: string. In a store, an object is written to it and removed.
        name: string. The name of the folder in the message. Defaults to
            `"The folder to write"`.
    """
    place = stores.join(path, f".writable-{random.randrange(1 << 32):08x}")
    try:
        stores.call(place, lambda fs, key: fs.pipe_file(key, b""))
        stores.call(place, lambda fs, key: fs.rm_file(key))
    except (stores.StoreError, FileNotFoundError) as error:
        raise stores.StoreError(f"{name} must be writable. Received: {path}: {error}") from None


@stores.on_disk(contextlib.nullcontext)
@contextlib.contextmanager
def local_folder(path: str) -> Iterator[str]:
    """Yields a local folder to write to: `path`, or for a store, one that is then copied there.

    The files that mark it as complete are copied last: see `stores.put_folder`.
    """
    with tempfile.TemporaryDirectory(prefix="keras_spanbert-") as folder:
        yield folder
        stores.put_folder(folder, path)


@contextlib.contextmanager
def _new_folder_on_disk(path):
    check_new(path)
    path = pathlib.Path(os.path.abspath(path))
    new_parents = [parent for parent in path.parents if not parent.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = pathlib.Path(
        tempfile.mkdtemp(prefix=f".{path.name}-", suffix=stores.PARTIAL, dir=path.parent)
    )
    try:
        yield str(partial)
        _set_usual_modes(partial)
        if os.name == "nt" and path.exists():
            path.rmdir()  # Windows cannot rename to an existing path.
        os.replace(partial, path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        with contextlib.suppress(OSError):  # Others may have written to it meanwhile.
            for parent in new_parents:
                parent.rmdir()
        raise


@stores.on_disk(_new_folder_on_disk)
@contextlib.contextmanager
def new_folder(path: str) -> Iterator[str]:
    """Yields a temporary folder that becomes `path` once it is complete.

    Args:
        path: string. A new or empty folder, local or in a store: see `local_folder`.

    Raises:
        ValueError: if `path` exists and is not an empty folder.
        OSError: if it cannot be written.

    Example:
    ```python
    with files.new_folder("model") as folder:
        model.save_to_preset(folder)
    ```
    """
    check_new(path)
    with local_folder(path) as folder:
        yield folder


@contextlib.contextmanager
def add_to_folder(path: str) -> Iterator[str]:
    """Yields a temporary folder whose files are moved to `path` once all are complete.

    Other files in `path` are kept. `remove_partial` removes the remains of a killed process.
    """
    with tempfile.TemporaryDirectory(prefix=".", suffix=stores.PARTIAL, dir=path) as folder:
        yield folder
        for place, _, names in os.walk(folder):
            target = os.path.join(path, os.path.relpath(place, folder))
            os.makedirs(target, exist_ok=True)
            for name in names:
                os.replace(os.path.join(place, name), os.path.join(target, name))


def remove_partial(folder: str) -> None:
    """Removes the incomplete files that a killed process left in a folder."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name.endswith(stores.PARTIAL):
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


def sync_to_disk(path: str | os.PathLike) -> None:
    """Flushes a file, or the names in a folder, to the disk."""
    if os.name == "nt" and os.path.isdir(path):
        return  # Windows cannot open folders.
    # Windows flushes only files that are open for writing.
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock(folder: str) -> filelock.BaseFileLock:
    """Locks a folder until `release` of the returned lock is called or the process ends.

    Raises:
        ValueError: if another run has locked it.
    """
    folder_lock = filelock.FileLock(os.path.join(folder, ".lock"), thread_local=False)
    try:
        folder_lock.acquire(blocking=False)
    except filelock.Timeout:
        raise ValueError(
            f"One run at a time may write to a folder. Received: {folder}, in use by another "
            "process"
        ) from None
    return folder_lock


def _set_usual_modes(folder):
    """Applies the user's umask, because `mkdtemp` and some libraries create private files."""
    for place in [folder, *folder.rglob("*")]:
        os.chmod(place, (0o777 if place.is_dir() else 0o666) & ~_UMASK)
