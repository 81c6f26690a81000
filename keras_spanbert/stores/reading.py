"""Reading of stores: objects by parts, folders by copies."""

import contextlib
import errno
import glob
import hashlib
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from typing import BinaryIO

import filelock

from keras_spanbert.stores.calls import (
    PINNED,
    SCHEME,
    call,
    changed,
    info_of,
    is_store,
    join,
    tag_of,
)
from keras_spanbert.stores.sums import SUMS, read_sums, sha256

_READ_BYTES = 1 << 23


def open_binary(path: str | os.PathLike) -> BinaryIO:
    """Opens a file, local or of a store, for bytes.

    An object of a store is read by parts. Where another one takes its place meanwhile, or a part
    lacks bytes, reading it is an `OSError`.
    """
    if not is_store(path):
        return open(path, "rb")
    return io.BufferedReader(_ObjectReader(path), _READ_BYTES)


class _ObjectReader(io.RawIOBase):
    _file = None  # Where it cannot be opened, this is closed too.

    def __init__(self, path):
        super().__init__()
        self._path = path
        self._position = 0
        self._file = call(path, lambda fs, key: fs.open(key, "rb", cache_type="none"))
        details = getattr(self._file, "details", None)
        self._tag = tag_of(details) if details else info_of(path)

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
        if not (data or is_pinned) and info_of(self._path) != self._tag:
            raise changed(self._path)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self):
        if self._file is not None:
            self._file.close()
        super().close()


def check_same(path: str | os.PathLike, seen: dict) -> None:
    """Raises an OSError where an object of a store is not the one that `seen` has noted.

    Args:
        path: string. Of a local file nothing is asked.
        seen: dict, into which what is new is noted.
    """
    if is_store(path):
        now = info_of(path)
        if seen.setdefault(path, now) != now:
            raise changed(path)


def find(pattern: str) -> Iterator[str]:
    """What a glob, or a path, finds, local or in a store, where globs find no folders."""
    if not is_store(pattern):
        return glob.iglob(pattern, recursive=True)
    if not glob.has_magic(pattern):
        return iter([pattern] if exists(pattern) else [])

    def find(fs, key):
        # What the key lacks, as a host or an account, or has besides, as the working folder.
        common = len(os.path.commonprefix([pattern[::-1], key[::-1]]))
        before, added = pattern[: len(pattern) - common], key[: len(key) - common]
        # A bucket that is not ours would look as if it were empty.
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
    """Bytes of a file, local or of a store."""
    return info_of(path)[0] if is_store(path) else os.path.getsize(path)


def is_file(path: str | os.PathLike) -> bool:
    """Whether there is a file at a path, local or of a store."""
    if not is_store(path):
        return os.path.isfile(path)
    with contextlib.suppress(FileNotFoundError):
        return call(path, lambda fs, key: fs.info(key)["type"] == "file")
    return False


def is_folder(path: str | os.PathLike) -> bool:
    """Whether there is a folder at a path; one of a store is never empty."""
    if not is_store(path):
        return os.path.isdir(path)
    with contextlib.suppress(FileNotFoundError):
        return call(path, lambda fs, key: fs.info(key)["type"] != "file")
    return False


def exists(path: str | os.PathLike) -> bool:
    """Whether there is something at a path, local or of a store."""
    return os.path.exists(path) if not is_store(path) else is_file(path) or is_folder(path)


def names(folder: str) -> dict[str, tuple]:
    """The objects in a folder of a store, by their names in it, with size and tag."""

    def find(fs, key):
        root = key.rstrip("/") + "/"
        found = fs.find(root, detail=True)
        return {k.removeprefix(root): tag_of(v) for k, v in found.items() if k.startswith(root)}

    with contextlib.suppress(FileNotFoundError):
        return call(folder, find)
    return {}


class SumError(OSError):
    """An object does not have the SHA-256 sum that was written with it."""


# === Fetching ===
def local_copy(
    path: str | os.PathLike, takes: Callable[[str], bool] = lambda name: True
) -> str | os.PathLike:
    """A local path to what a path leads to: itself, or of a store a copy that is kept.

    Copies are whole, and of the objects as they are now: others take other places in the folder
    that the environment variable KERAS_SPANBERT_CACHE names, by default
    `~/.cache/keras_spanbert`. Nothing removes them.

    Args:
        path: string, a file or a folder.
        takes: function of a name in the folder that tells whether to fetch it.
            Defaults to all.

    Raises:
        FileNotFoundError: where a store has nothing there.
        OSError: where what it has changes meanwhile, or does not have its sums.
    """
    if not is_store(path):
        return path
    if is_file(path):
        folder, _, name = path.rpartition("/")
        return os.path.join(_fetched(folder, {name: info_of(path)}), name)
    found = {name: tag for name, tag in names(path).items() if takes(name)}
    if not found:
        raise FileNotFoundError(errno.ENOENT, "No such object or folder", path)
    return _fetched(path, found)


def _fetched(folder, found):
    """The local folder of some objects of a folder."""
    home = os.environ.get("KERAS_SPANBERT_CACHE") or os.path.join(
        os.path.expanduser("~"), ".cache", "keras_spanbert"
    )
    os.makedirs(home, exist_ok=True)
    what = json.dumps([folder.rstrip("/"), sorted(found.items())])
    target = os.path.join(home, hashlib.sha256(what.encode()).hexdigest()[:32])
    partial = f"{target}.partial"
    with filelock.FileLock(f"{target}.lock"):  # Of several processes one fetches.
        if not os.path.isdir(target):
            shutil.rmtree(partial, ignore_errors=True)  # Of a process that was killed.
            fetch(folder, partial, found)
            os.replace(partial, target)
    return target


def fetch(folder: str, local: str, found: dict[str, tuple]) -> None:
    """Copies objects of a store's folder into a local one, whole or with an error.

    Args:
        folder: string, of a store.
        local: string.
        found: dict of what to take, as `names` gives it.
    """
    for name, tag in found.items():
        target = os.path.join(local, *name.split("/"))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        _get(join(folder, name), target, tag)
    try:
        sums = read_sums(local) if SUMS in found else {}
    except ValueError as error:
        raise SumError(errno.EIO, str(error), join(folder, SUMS)) from None
    for name, expected in sums.items():
        if name in found and sha256(os.path.join(local, name)) != expected:
            raise SumError(errno.EIO, "Not of its SHA-256 sum", join(folder, name))


def _get(path, target, tag):
    def get(fs, key):
        fs.get_file(key, target)
        if os.path.getsize(target) != tag[0]:
            raise OSError(errno.EIO, f"{os.path.getsize(target)} bytes instead of {tag[0]}")

    call(path, get)
    if info_of(path) != tag:
        raise changed(path)
