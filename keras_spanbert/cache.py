"""The cache: local copies of files in stores, and blocks of corpora."""

import contextlib
import errno
import functools
import glob
import hashlib
import json
import os
import shutil
from collections.abc import Callable

import filelock

from keras_spanbert import stores
from keras_spanbert.checks import check_path, expand_home

# The beginning of a file that Git LFS has not replaced with its content.
_POINTER = b"version https://git-lfs"


def local_copy(path: str | os.PathLike, takes: Callable[[str], bool] = lambda name: True) -> str:
    """Returns a local path for a file or folder: itself, or a copy if it is in a store.

    The copy is in the cache: see `open_cached`. It is complete, and other versions of the objects
    get other copies. `takes` is a function of a name in the folder: whether to copy it. Raises a
    `ValueError` if a local file is a pointer of Git LFS.
    """
    path = check_path("path", path)
    if not stores.is_store(path):
        if os.path.isfile(path):  # Not a pipe, which can be read only once.
            with open(path, "rb") as file:
                if file.read(len(_POINTER)) == _POINTER:
                    raise ValueError(
                        "A file must have its content: run `git lfs pull` in its repository. "
                        f"Received: {path}, a pointer of Git LFS"
                    )
        return path
    found = {name: tag for name, tag in stores.names(path).items() if takes(name)}
    if not found:
        raise FileNotFoundError(errno.ENOENT, "No such object or folder", path)
    key = json.dumps([path.rstrip("/"), sorted(found.items())])
    exists_at = functools.partial(os.path.realpath, strict=True)
    copy = open_cached(key, lambda local: stores.fetch(path, local, found), exists_at)
    return os.path.join(copy, os.path.basename(path)) if "" in found else copy


def open_cached(key: str, write: Callable[[str], None], open_folder: Callable):
    """Returns `open_folder(path)` of the folder of the cache whose contents `key` determines.

    If this raises a `ValueError` or `OSError`, which means that the folder does not exist or is
    damaged, `write(path)` writes it first. Only one of several processes does so, and the others
    wait. Nothing is removed from the cache.
    """
    home = expand_home(os.environ.get("KERAS_SPANBERT_CACHE") or "~/.cache/keras_spanbert")
    name = hashlib.sha256(key.encode()).hexdigest()[:32]
    target, partial = os.path.join(home, name), os.path.join(home, f"{name}.partial")
    with contextlib.suppress(ValueError, OSError):  # The cache may be read-only.
        return open_folder(target)
    try:
        os.makedirs(home, exist_ok=True)
        folder_lock = filelock.FileLock(f"{target}.lock").acquire()
    except OSError as error:
        raise OSError(
            "The cache must be a folder that can be written. To use another one, set the "
            f"environment variable KERAS_SPANBERT_CACHE. Received: {home}: {error.strerror}"
        ) from None
    with folder_lock:
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
