"""Reads from stores: objects in parts, folders as local copies."""

import contextlib
import errno
import glob
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import BinaryIO, TypeVar

import filelock

from keras_spanbert.stores.checksums import CHECKSUMS, read_checksums, sha256
from keras_spanbert.stores.fsspec_calls import (
    PINNED,
    SCHEME,
    call,
    changed_error,
    join,
    on_disk,
    version,
    version_from_info,
)

_READ_BYTES = 1 << 23
T = TypeVar("T")


@on_disk(lambda path: open(path, "rb"))
def open_binary(path: str | os.PathLike) -> BinaryIO:
    """Opens a file, local or in a store, for reading bytes.

    An object in a store is read in parts. Reading raises an `OSError` if the object is replaced
    meanwhile or a part is too short.
    """
    return io.BufferedReader(_ObjectReader(path), _READ_BYTES)


class _ObjectReader(io.RawIOBase):
    _file = None  # `close` needs it even if opening fails.

    def __init__(self, path):
        super().__init__()
        self._path = path
        self._position = 0
        self._file = call(path, lambda fs, key: fs.open(key, "rb", cache_type="none"))
        details = getattr(self._file, "details", None)
        self._tag = version_from_info(details) if details else version(path)

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self._position

    def seek(self, offset, whence=io.SEEK_SET):
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._tag[0]}[whence]
        self._position = start + offset
        return self._position

    def readinto(self, buffer):
        size = max(0, min(len(buffer), self._tag[0] - self._position))

        def read(fs, key):
            self._file.seek(self._position)
            data = self._file.read(size)
            if len(data) != size:
                raise OSError(errno.EIO, f"{len(data)} bytes instead of {size}")
            return data

        data = call(self._path, read) if size else b""
        is_pinned = SCHEME.match(self._path)[1].lower() in PINNED
        if not (data or is_pinned) and version(self._path) != self._tag:
            raise changed_error(self._path)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self):
        if self._file is not None:
            self._file.close()
        super().close()


def check_unchanged(path: str | os.PathLike, seen: dict) -> None:
    """Raises `OSError` if a file, local or in a store, is not the version recorded in `seen`.

    New files are recorded in it.
    """
    now = version(path)
    if seen.setdefault(path, now) != now:
        raise changed_error(path)


@on_disk(lambda pattern: glob.iglob(pattern, recursive=True))
def find(pattern: str) -> Iterator[str]:
    """Yields the paths that match a glob or path, local or in a store, where globs skip folders."""
    if not glob.has_magic(pattern):
        return iter([pattern] if exists(pattern) else [])

    def find(fs, key):
        # The key may lack the beginning of the path, such as a host, or have an additional one,
        # such as the working folder.
        common = len(os.path.commonprefix([pattern[::-1], key[::-1]]))
        before, added = pattern[: len(pattern) - common], key[: len(key) - common]
        # Without this check, a bucket that does not exist would look empty.
        root = key[: re.search(r"[*?[]", key).start()].rpartition("/")[0]
        with contextlib.suppress(FileNotFoundError):
            fs.ls(root)
        found = fs.glob(key, detail=True).items()
        names = [name for name, info in found if info["type"] == "file"]
        return [before + name.removeprefix(added) for name in names]

    with contextlib.suppress(FileNotFoundError):
        return iter(call(pattern, find))
    return iter([])


def size(path: str | os.PathLike) -> int:
    """Returns the size of a file in bytes, local or in a store."""
    return version(path)[0]


@on_disk(os.path.isfile)
def is_file(path: str | os.PathLike) -> bool:
    """Returns whether a path is a file, local or in a store."""
    return _kind(path) == "file"


@on_disk(os.path.isdir)
def is_folder(path: str | os.PathLike) -> bool:
    """Returns whether a path is a folder, local or in a store, where no folder is empty."""
    return _kind(path) not in (None, "file")


@on_disk(os.path.lexists)
def exists(path: str | os.PathLike) -> bool:
    """Returns whether a path exists, local or in a store. It may be a broken link."""
    return _kind(path) is not None


def _kind(path):
    with contextlib.suppress(FileNotFoundError):
        return call(path, lambda fs, key: fs.info(key)["type"])
    return None


def _names_on_disk(folder):
    paths = [path for path in pathlib.Path(folder).rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): version(path) for path in paths}


@on_disk(_names_on_disk)
def names(folder: str) -> dict[str, tuple]:
    """Returns the files in a folder and its subfolders, local or in a store.

    Returns:
        Dict of name, with `/` between folders, to size and tag.
    """

    def find(fs, key):
        root = key.rstrip("/") + "/"
        found = fs.find(root, detail=True)
        return {
            k.removeprefix(root): version_from_info(v)
            for k, v in found.items()
            if k.startswith(root)
        }

    with contextlib.suppress(FileNotFoundError):
        return call(folder, find)
    return {}


def _entries_on_disk(folder):
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


@on_disk(_entries_on_disk)
def entries(folder: str) -> list[str]:
    """Returns the names in a folder, local or in a store, except those of `check_writable`."""
    found = {name.split("/")[0] for name in names(folder)}
    return sorted(name for name in found if not name.startswith(".writable-"))


class ChecksumError(OSError):
    """An object does not match the SHA-256 sum that was written with it."""


# === Fetching ===
@on_disk(lambda path, takes=None: path)
def local_copy(
    path: str | os.PathLike, takes: Callable[[str], bool] = lambda name: True
) -> str | os.PathLike:
    """Returns a local path for a file or folder: itself, or a cached copy if it is in a store.

    A copy is complete and belongs to the present versions of the objects: other versions get other
    copies. Copies are kept in the folder that the environment variable KERAS_SPANBERT_CACHE names,
    by default `~/.cache/keras_spanbert`, and are never removed.

    Args:
        path: string. A file or a folder.
        takes: function of a name in the folder that returns whether to fetch
            it. Defaults to fetching all.

    Raises:
        FileNotFoundError: if the store has nothing at the path.
        OSError: if an object changes meanwhile or does not match its sum.
    """
    if is_file(path):
        folder, _, name = path.rpartition("/")
        return os.path.join(_cached_folder(folder, {name: version(path)}), name)
    found = {name: tag for name, tag in names(path).items() if takes(name)}
    if not found:
        raise FileNotFoundError(errno.ENOENT, "No such object or folder", path)
    return _cached_folder(path, found)


def _cached_folder(folder, found):
    """Returns the local folder with copies of some objects of a folder."""
    what = json.dumps([folder.rstrip("/"), sorted(found.items())])

    def check(path):
        if not os.path.isdir(path):
            raise FileNotFoundError(errno.ENOENT, "No such folder", path)
        return path

    return open_cached(what, lambda partial: fetch(folder, partial, found), check)


def open_cached(key: str, write: Callable[[str], None], open_folder: Callable[[str], T]) -> T:
    """Opens a folder of the cache. Writes it first if it does not exist or is damaged.

    Args:
        key: string that determines the contents.
        write: function of a path that makes a folder with the contents there. Only
            one of several processes calls it, and the others wait.
        open_folder: function of a path that returns the result. It raises a `ValueError`
            or an `OSError` if the folder is incomplete.

    Raises:
        OSError: if the cache cannot be written.
    """
    home = os.environ.get("KERAS_SPANBERT_CACHE") or os.path.join(
        os.path.expanduser("~"), ".cache", "keras_spanbert"
    )
    name = hashlib.sha256(key.encode()).hexdigest()[:32]
    target, partial = os.path.join(home, name), os.path.join(home, f"{name}.partial")
    with contextlib.suppress(ValueError, OSError):  # The cache may be read-only.
        return open_folder(target)
    try:
        os.makedirs(home, exist_ok=True)
        lock = filelock.FileLock(f"{target}.lock").acquire()
    except OSError as error:
        raise OSError(
            "The cache must be a folder that can be written. To use another one, set the "
            f"environment variable KERAS_SPANBERT_CACHE. Received: {home}: {error.strerror}"
        ) from None
    with lock:
        with contextlib.suppress(ValueError, OSError):  # Another process may have written it.
            return open_folder(target)
        if os.path.isdir(target):
            os.rename(target, f"{partial}.damaged")
        # Also what a killed process left.
        for left in glob.glob(f"*{name}.partial*", root_dir=home, include_hidden=True):
            shutil.rmtree(os.path.join(home, left))
        write(partial)
        os.replace(partial, target)
        return open_folder(target)


@on_disk(contextlib.nullcontext)
@contextlib.contextmanager
def temporary_copy(folder: str) -> Iterator[str]:
    """Yields a local folder with the files of a folder: itself, or a copy if it is in a store.

    Raises:
        ChecksumError: if an object does not match its sum, also when it is fetched again.
    """
    with tempfile.TemporaryDirectory(prefix="keras_spanbert-") as local:
        try:
            fetch(folder, local, names(folder))
        except ChecksumError:  # Perhaps damaged in transfer.
            fetch(folder, local, names(folder))
        yield local


def fetch(folder: str, local: str, found: dict[str, tuple]) -> None:
    """Copies objects of a store's folder, as returned by `names`, into a local one.

    Raises an error if one is incomplete.
    """
    for name, tag in found.items():
        target = os.path.join(local, *name.split("/"))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        _fetch_file(join(folder, name), target, tag)
    try:
        checksums = read_checksums(local) if CHECKSUMS in found else {}
    except ValueError as error:
        raise ChecksumError(errno.EIO, str(error), join(folder, CHECKSUMS)) from None
    for name, expected in checksums.items():
        if name in found and sha256(os.path.join(local, name)) != expected:
            raise ChecksumError(errno.EIO, "Does not match its SHA-256 sum", join(folder, name))


def _fetch_file(path, target, tag):
    def get(fs, key):
        fs.get_file(key, target)
        if os.path.getsize(target) != tag[0]:
            raise OSError(errno.EIO, f"{os.path.getsize(target)} bytes instead of {tag[0]}")

    call(path, get)
    if version(path) != tag:
        raise changed_error(path)
