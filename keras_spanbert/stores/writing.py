"""Writing to stores: objects appear whole, and a folder is whole with its last object."""

import contextlib
import errno
import os
import pathlib
import random

from keras_spanbert.stores.calls import StoreError, call, is_store, join
from keras_spanbert.stores.reading import names
from keras_spanbert.stores.sums import SUMS, write_sums

# Files without which nobody takes a folder for a model.
_SETTINGS = (".json", ".pb")


def put_file(local: str, path: str) -> None:
    """Copies a file to a store, where it appears when it is whole."""
    num_bytes = os.path.getsize(local)

    def put(fs, key):
        fs.put_file(local, key)
        found = fs.info(key)["size"]
        if found != num_bytes:
            raise OSError(errno.EIO, f"{found} bytes instead of {num_bytes}")

    call(path, put)


def put_folder(local: str, folder: str) -> None:
    """Copies a local folder to a store, in place of what has the same names there.

    It is whole once it has `SHA256SUMS`, which is written last; settings, as `config.json`, are
    written last but for it, so that others find no model either before all of it is there.
    """
    paths = [path for path in pathlib.Path(local).rglob("*") if path.is_file()]
    found = [path.relative_to(local).as_posix() for path in paths]
    if SUMS not in found:
        write_sums(local, sorted(found))
        found.append(SUMS)
    there = names(folder)
    found.sort(key=_rank)
    for name in reversed(found):
        if name in there and _rank(name) > (0,):
            remove(join(folder, name))
    for name in found:
        put_file(os.path.join(local, *name.split("/")), join(folder, name))


def _rank(name):
    """By what files of a folder are written: those that stand for others behind these."""
    if name == SUMS:
        return (3,)
    if "/" in name or not name.endswith(_SETTINGS):
        return (0,)
    return (2,) if name == "config.json" else (1,)


def remove(path: str) -> None:
    """Removes a file, local or of a store, where it is there."""
    if not is_store(path):
        pathlib.Path(path).unlink(missing_ok=True)
        return
    with contextlib.suppress(FileNotFoundError):
        call(path, lambda fs, key: fs.rm_file(key))


def remove_folder(folder: str) -> None:
    """Removes all objects in a folder, the ones first without which it is not whole."""
    for name in sorted(names(folder), key=_rank, reverse=True):
        remove(join(folder, name))


def rename_folder(folder: str, other: str) -> None:
    """Gives the objects of a folder other names, in another folder of the same store."""
    for name in sorted(names(folder), key=_rank, reverse=True):
        target = join(other, name)
        with contextlib.suppress(FileNotFoundError):  # Moved, but the store's answer was lost.
            call(join(folder, name), lambda fs, key, path=target: fs.mv(key, path))


def check_writable(folder: str, name: str) -> None:
    """Raises a `StoreError` where nothing can be written to a folder of a store: it tries.

    Args:
        folder: string.
        name: string. What the message calls it.
    """
    path = join(folder, f".writable-{random.randrange(1 << 32):08x}")
    try:
        call(path, lambda fs, key: fs.pipe_file(key, b""))
        call(path, lambda fs, key: fs.rm_file(key))
    except (StoreError, FileNotFoundError) as error:
        raise StoreError(f"{name} must be writable. Received: {folder}: {error}") from None


def entries(folder: str) -> list[str]:
    """The names right in a folder, local or of a store, but for those of `check_writable`."""
    if not is_store(folder):
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    found = {name.split("/")[0] for name in names(folder)}
    return sorted(name for name in found if not name.startswith(".writable-"))
