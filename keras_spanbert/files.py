"""Files and folders written whole or not at all, read as data, locked and checked.

Paths may lead to stores (`s3://...`), but for what adds to folders or locks them.
"""

import contextlib
import csv
import io
import json
import math
import operator
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO

import filelock

from keras_spanbert import stores
from keras_spanbert.stores.sums import sha256 as sha256

# The process's, which can only be read by setting it: here, before there are threads.
_UMASK = os.umask(0)
os.umask(_UMASK)
# What is being written, until it is whole and takes its name.
PARTIAL = ".partial"


def read_json(path: str) -> dict:
    """The object in a JSON file, as a dict.

    Raises:
        ValueError: where the file is not JSON in UTF-8 or holds something else.
    """
    try:
        with io.TextIOWrapper(stores.open_binary(path), encoding="utf-8") as file:
            value = json.load(file)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} must be JSON in UTF-8. Received: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object. Received: {type(value).__name__}")
    return value


def write_json(path: str, value, indent: int | None = 2) -> None:
    """Writes a JSON value, whole or not at all; without `indent` large ones in less time.

    JSON has no NaN and no infinity, as a score that is not defined: they become `null`.
    """
    try:
        text = json.dumps(value, indent=indent, allow_nan=False)
    except ValueError:
        text = json.dumps(_with_nulls(value), indent=indent)
    with replacing(path) as file:
        file.write(text + "\n")


def _with_nulls(value):
    if isinstance(value, dict):
        return {name: _with_nulls(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_nulls(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json_lines(path: str, values: Iterable) -> None:
    """Writes values as JSON, a line each, whole or not at all."""
    # `operator.index` takes NumPy's integers.
    lines = [json.dumps(value, default=operator.index) + "\n" for value in values]
    with replacing(path) as file:
        file.writelines(lines)


def write_csv(path: str, rows: list[dict], delimiter: str = ",") -> None:
    """Writes rows, whole or not at all, with the columns of all of them."""
    columns = dict.fromkeys(name for row in sorted(rows, key=len, reverse=True) for name in row)
    with replacing(path) as file:
        writer = csv.DictWriter(file, fieldnames=list(columns), restval="", delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


def read_csv(path: str) -> list[dict[str, str]]:
    """The rows of a CSV file as text, by the names of its columns."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@contextlib.contextmanager
def replacing(path: str, mode: str = "w") -> Iterator[IO]:
    """Opens a file beside `path`, which takes its place once it is complete.

    Args:
        path: string.
        mode: "w" for text in UTF-8, or "wb". Defaults to `"w"`.

    Raises:
        OSError: where it cannot be written, with the name `path`.

    Example:
    ```python
    with files.replacing("metrics.json") as file:
        file.write("{}")
    ```
    """
    if stores.is_store(path):
        with _stored_file(path) as local, replacing(local, mode) as file:
            yield file
        return
    partial = f"{path}{PARTIAL}"
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
    try:
        with open(partial, mode, **text) as file:
            yield file
        os.replace(partial, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.remove(partial)
        if isinstance(error, OSError):  # A full disk has no name of its own.
            raise OSError(error.errno, error.strerror or str(error), path) from None
        raise


@contextlib.contextmanager
def _stored_file(path):
    """A local file to write, which is copied to a store once it is complete."""
    with tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, "file")
        yield local
        stores.put_file(local, path)


def check_new(path: str) -> None:
    """Raises a ValueError where a folder to be written holds something, or cannot be made."""
    if stores.is_store(path):
        holds_some = stores.is_file(path) or stores.entries(path)
    else:
        holds_some = os.path.lexists(path) and (not os.path.isdir(path) or os.listdir(path))
    if holds_some or not os.fspath(path):
        shown = path or "an empty name"
        raise ValueError(f"The folder to write must be new or empty. Received: {shown}")
    check_writable(path)


def check_writable(path: str, name: str = "The folder to write") -> None:
    """Raises a ValueError where a folder, there or to be made, cannot be written to.

    Args:
        path: string.
        name: string. What the message calls it. Defaults to
            `"The folder to write"`.
    """
    if stores.is_store(path):
        return stores.check_writable(path, name)
    existing = os.path.abspath(path)
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    if not os.path.isdir(existing):
        raise ValueError(f"{name} must be a folder. Received: {path}, where {existing} is none")
    if not os.access(existing, os.W_OK):
        raise ValueError(f"{name} must be writable. Received: {path}, where {existing} is not")


@contextlib.contextmanager
def new_folder(path: str, sync: bool = False) -> Iterator[str]:
    """Gives a folder beside `path` to fill, which takes its place once it is complete.

    Args:
        path: string. A new or empty folder. One of a store is filled on a local
            disk and then copied, what makes it whole last: see `stores`.
        sync: bool. Whether all is on the disk before the folder takes its name.
            Defaults to `False`.

    Raises:
        ValueError: where there is something at `path`.
        OSError: where it cannot be written.

    Example:
    ```python
    with files.new_folder("model") as folder:
        model.save_to_preset(folder)
    ```
    """
    check_new(path)
    if stores.is_store(path):
        with tempfile.TemporaryDirectory(prefix="keras_spanbert-") as folder:
            yield folder
            stores.put_folder(folder, path)
        return
    path = pathlib.Path(os.path.abspath(path))
    new_parents = [parent for parent in path.parents if not parent.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = pathlib.Path(
        tempfile.mkdtemp(prefix=f".{path.name}-", suffix=PARTIAL, dir=path.parent)
    )
    try:
        yield str(partial)
        _set_usual_modes(partial)
        if sync:
            for place in [*partial.rglob("*"), partial]:
                sync_to_disk(place)
        if os.name == "nt" and path.exists():
            path.rmdir()  # Windows renames onto nothing that exists.
        os.replace(partial, path)
        if sync:
            sync_to_disk(path.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        with contextlib.suppress(OSError):  # Others may have written there meanwhile.
            for parent in new_parents:
                parent.rmdir()
        raise


@contextlib.contextmanager
def added_to_folder(path: str) -> Iterator[str]:
    """Gives a folder to fill, whose files take their places in `path` once all are complete.

    What else stands in `path` stays; `remove_partial` takes away what a killed process left.
    """
    with tempfile.TemporaryDirectory(prefix=".", suffix=PARTIAL, dir=path) as folder:
        yield folder
        for place, _, names in os.walk(folder):
            target = os.path.join(path, os.path.relpath(place, folder))
            os.makedirs(target, exist_ok=True)
            for name in names:
                os.replace(os.path.join(place, name), os.path.join(target, name))


def remove_partial(folder: str) -> None:
    """Removes what a process that was killed left half-written in a folder."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name.endswith(PARTIAL):
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


def sync_to_disk(path: str | os.PathLike) -> None:
    """Has the operating system write a file or a folder's names to the disk now."""
    if os.name == "nt" and os.path.isdir(path):
        return  # Windows opens no folders.
    # Windows writes only what may be written.
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock(folder: str) -> filelock.BaseFileLock:
    """Locks a folder until `release` of what is returned, or the end of the process.

    Raises:
        ValueError: where another run has it.
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
    """Gives files the modes that the user's other files have: libraries make theirs private."""
    for place in [folder, *folder.rglob("*")]:
        os.chmod(place, (0o777 if place.is_dir() else 0o666) & ~_UMASK)
