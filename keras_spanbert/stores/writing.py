"""Writes to stores: objects appear when complete, and folders are complete with the last object."""

import contextlib
import errno
import os
import pathlib
import shutil

from keras_spanbert.stores.checksums import CHECKSUMS, write_checksums
from keras_spanbert.stores.fsspec_calls import call, join, on_disk
from keras_spanbert.stores.reading import names

# Marks the names of local files and folders that are not complete.
PARTIAL = ".partial"
# Files without which no library recognizes a folder as a model.
_SETTINGS = (".json", ".pb")


def put_file(local: str, path: str) -> None:
    """Copies a file to a store, where it appears when it is complete."""
    num_bytes = os.path.getsize(local)

    def put(fs, key):
        fs.put_file(local, key)
        found = fs.info(key)["size"]
        if found != num_bytes:
            raise OSError(errno.EIO, f"{found} bytes instead of {num_bytes}")

    call(path, put)


def put_folder(local: str, folder: str) -> None:
    """Copies a local folder to a store, and replaces objects of the same names there.

    The folder is complete once it has `SHA256SUMS`, which is written last. Settings such as
    `config.json` are written just before it, so that no library finds an incomplete model.
    """
    found = list(names(local))
    if CHECKSUMS not in found:
        write_checksums(local, sorted(found))
        found.append(CHECKSUMS)
    there = names(folder)
    found.sort(key=write_order)
    for name in reversed(found):
        if name in there and write_order(name) > (0,):
            remove(join(folder, name))
    for name in found:
        put_file(os.path.join(local, *name.split("/")), join(folder, name))


def write_order(name: str) -> tuple:
    """Returns the sort key for the order of writing. Files that mark a model are last."""
    if name == CHECKSUMS:
        return (3,)
    if "/" in name or not name.endswith(_SETTINGS):
        return (0,)
    return (2,) if name == "config.json" else (1,)


@on_disk(lambda path: pathlib.Path(path).unlink(missing_ok=True))
def remove(path: str) -> None:
    """Removes a file if it exists, local or in a store."""
    with contextlib.suppress(FileNotFoundError):
        call(path, lambda fs, key: fs.rm_file(key))


def _remove_folder_on_disk(folder):
    # Rename first: a folder with this name must never be incomplete.
    partial = f"{folder}{PARTIAL}"
    try:
        os.rename(folder, partial)
    except FileNotFoundError:
        return
    shutil.rmtree(partial)


@on_disk(_remove_folder_on_disk)
def remove_folder(folder: str) -> None:
    """Removes a folder if it exists, local or in a store. It is never seen half removed.

    In a store, the objects that mark it as complete are removed first.
    """
    for name in sorted(names(folder), key=write_order, reverse=True):
        remove(join(folder, name))


@on_disk(os.rename)
def rename_folder(folder: str, other: str) -> None:
    """Renames a folder, local or in a store, where its objects are moved one by one."""
    for name in sorted(names(folder), key=write_order, reverse=True):
        target = join(other, name)
        with contextlib.suppress(FileNotFoundError):  # It was moved, but the answer got lost.
            call(join(folder, name), lambda fs, key, path=target: fs.mv(key, path))
