"""Writes files and folders whole or not at all, reads JSON and CSV, locks and checks folders.

Paths may be in stores (`s3://...`), except those of `add_to_folder`, `lock`, `read_csv`,
`remove_partial`, `replace_files`, `sha256` and `sync_to_disk`.
"""

import contextlib
import csv
import errno
import fnmatch
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
        with _errors_name(path, partial):
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
def add_to_folder(path: str, replaced: Iterable[str] = ()) -> Iterator[str]:
    """Yields a temporary folder whose files are moved to `path` once all are complete.

    After an error, nothing in `path` has changed. Other files in `path` are kept, except a
    `SHA256SUMS` that lists a file with new content. If the process is killed while the files are
    moved, `config.json` is missing, so that no library loads a mixture of old and new files.
    `remove_partial` removes the remains of a killed process.

    Args:
        path: string. An existing folder on disk.
        replaced: patterns of file names. If a new file matches any of them, the old files
            that match any of them are removed. Defaults to `()`.
    """
    os.stat(path)  # If the folder is missing, this error names it.
    with tempfile.TemporaryDirectory(
        prefix=".", suffix=stores.PARTIAL, dir=path, ignore_cleanup_errors=True
    ) as partial:
        new, old = os.path.join(partial, "new"), os.path.join(partial, "old")
        os.mkdir(new)
        with _errors_name(path, new):
            yield new
        with contextlib.ExitStack() as undo:
            _swap(new, path, old, replaced, undo)
            undo.pop_all()


def _swap(new, path, old, replaced, undo):
    """Moves files from `path` to `old` and from `new` to `path`.

    Pushes functions that reverse each step on `undo`.
    """
    places = [os.path.relpath(place, new) for place, _, _ in os.walk(new)]
    names = [
        os.path.normpath(os.path.join(place, name)).replace(os.sep, "/")
        for place in places
        for name in os.listdir(os.path.join(new, place))
        if not os.path.isdir(os.path.join(new, place, name))
    ]
    removed = {name for name in names if os.path.lexists(os.path.join(path, name))}
    if _matches(names, replaced):
        removed.update(_matches(os.listdir(path), replaced))
    if os.path.isfile(os.path.join(path, stores.CHECKSUMS)):
        with contextlib.suppress(ValueError):  # A file of another format belongs to the user.
            if not removed.isdisjoint(stores.read_checksums(path)):
                removed.add(stores.CHECKSUMS)
    for name in removed:
        if os.path.isdir(os.path.join(path, name)):
            place = os.path.join(path, name)
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), place)
    for place in places:
        target = os.path.join(path, place)
        if not os.path.isdir(target):
            os.mkdir(target)
            undo.callback(os.rmdir, target)
    moves = [(path, old, name) for name in sorted(removed, key=stores.write_order, reverse=True)]
    moves += [(new, path, name) for name in sorted(names, key=stores.write_order)]
    for source, target, name in moves:
        source, target = os.path.join(source, name), os.path.join(target, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        undo.callback(_move_back, source, target)  # Before the move, which may be interrupted.
        os.replace(source, target)


@contextlib.contextmanager
def _errors_name(path, partial):
    """Makes errors name `path` instead of the temporary path that is written to."""
    path, partial = os.fspath(path), os.fspath(partial)
    try:
        yield
    except Exception as error:
        error.args = tuple(
            x.replace(partial, path) if isinstance(x, str) else x for x in error.args
        )
        if isinstance(getattr(error, "filename", None), str):
            error.filename = error.filename.replace(partial, path)
        raise


def _matches(names, patterns):
    return [name for name in names if any(fnmatch.fnmatchcase(name, p) for p in patterns)]


def _move_back(source, target):
    if not os.path.lexists(source):
        os.replace(target, source)


@contextlib.contextmanager
def _replace_in_folder_on_disk(path, replaced=()):
    with add_to_folder(path, replaced) if os.path.isdir(path) else new_folder(path) as folder:
        yield folder


@stores.on_disk(_replace_in_folder_on_disk)
def replace_in_folder(path: str, replaced: Iterable[str] = ()):
    """Does what `add_to_folder` does if `path` is a folder on disk, else what `new_folder` does.

    In a store, the new files are copied over the old ones: see `local_folder`.
    """
    return local_folder(path)


@contextlib.contextmanager
def replace_files(path: str | os.PathLike) -> Iterator[str]:
    """Yields a temporary path to write a file or folder to, which becomes `path` when complete.

    It has the same name. Other files that are written next to it, such as shards of weights, are
    moved too. After an error, nothing has changed.
    """
    folder, name = os.path.split(os.fspath(path).rstrip(os.sep))
    with add_to_folder(folder or os.curdir) as new:
        yield os.path.join(new, name)


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
