"""The folder of a run's checkpoints: writes, keeps, checks and sets aside checkpoints."""

import contextlib
import errno
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Callable

import filelock
import numpy as np

from keras_spanbert import files, stores

VERSION = 2

_NAME = re.compile(r"step-(\d+)")
_ARRAYS, _STATE = "arrays.npz", "state.json"


class CheckpointFolder:
    """The checkpoints of a run, each a folder `step-...` of arrays and a state.

    A checkpoint is written under another name and renamed once it is complete. In a store, which
    has no renaming and no locks, it is complete once `SHA256SUMS` exists, which is written last.
    Two runs must not use one folder there.
    """

    def __init__(self, folder: str, keep: int):
        self.folder = folder
        self.keep = keep
        self._is_store = stores.is_store(folder)
        self._seen = ()

    def lock(self) -> Callable[[], None]:
        """Creates and locks the folder, and removes partial checkpoints.

        Returns a function that unlocks it. Raises `ValueError` if another run has locked it.
        """
        if self._is_store:
            for step in set(_steps(stores.entries(self.folder))).difference(self.steps()):
                _remove(self._path(step))
            return lambda: None
        os.makedirs(self.folder, exist_ok=True)
        release = lock(self.folder).release
        files.remove_partial(self.folder)
        return release

    def write(self, step: int, arrays: dict[str, np.ndarray], state: str) -> str:
        """Writes a checkpoint, removes old ones, and returns its path."""
        path = self._path(step)
        try:
            if step not in self.steps():
                _remove(path)  # In a store, it may be incomplete.
            with files.new_folder(path) as folder:
                write_files(folder, arrays, state)
                for name in [*os.listdir(folder), ""]:
                    files.sync_to_disk(os.path.join(folder, name))
            if not self._is_store:
                files.sync_to_disk(self.folder)
        except OSError as error:
            # The error may name no file: for example, a full disk while writing.
            code = error.errno or errno.EIO
            raise OSError(code, f"{error.strerror or error}; {self.last_good()}", path) from None
        for old in self.steps()[self.keep :]:
            _remove(self._path(old))
        return path

    def read_newest(self, is_main: bool = True) -> tuple[str, dict, dict] | None:
        """Returns path, arrays and state of the newest complete checkpoint, or `None`.

        The main process reads before the others, and sets damaged checkpoints aside. Raises
        `ValueError` if all are damaged, or the newest has an unknown version.
        """
        steps = self.steps()
        for step in steps:
            path = self._path(step)
            try:
                with tempfile.TemporaryDirectory(prefix="keras_spanbert-") as folder:
                    if self._is_store:
                        stores.fetch(path, folder)
                    else:
                        folder = path
                    _verify_checksums(folder)
                    with open(os.path.join(folder, _STATE), encoding="utf-8") as file:
                        state = json.load(file)
                    if state["version"] != VERSION:
                        raise ValueError(
                            f"A checkpoint must have version {VERSION}; start the run anew, or "
                            "continue it with the release that began it. Received: "
                            f"{path}, with version {state['version']}"
                        )
                    with np.load(os.path.join(folder, _ARRAYS), allow_pickle=False) as file:
                        return path, dict(file), state
            except _DamagedError as error:
                if not is_main:
                    text = f"The main process read it without errors, this process did not: {error}"
                    raise OSError(errno.EIO, text, path) from None
                number, added = 1, ".damaged"
                while stores.kind(path + added):
                    number += 1
                    added = f".damaged-{number}"
                stores.rename(path, path + added)
                logging.getLogger("keras_spanbert").warning(
                    "Checkpoint %s is damaged (%s) and was set aside", path, error
                )
        if steps:
            raise ValueError(
                f"At least one checkpoint must be intact. Received: {self.folder}, where all are "
                "damaged"
            )
        return None

    def steps(self) -> list[int]:
        """Returns the steps of the complete checkpoints, the newest first."""
        names = stores.entries(self.folder)
        if self._is_store:
            ending = f"/{files.CHECKSUMS}"
            names = stores.names(self.folder)
            names = [name.removesuffix(ending) for name in names if name.endswith(ending)]
        self._seen = _steps(names)
        return self._seen

    def last_good(self) -> str:
        """Returns a phrase for messages about the newest checkpoint."""
        # Another process may have written it. A store may be the cause of the error.
        steps = self._seen if self._is_store else self.steps()
        if not steps:
            return "no checkpoint yet"
        return f"the last good checkpoint is {self._path(steps[0])}"

    def _path(self, step):
        return stores.join(self.folder, f"step-{step}")


def lock(folder: str) -> filelock.BaseFileLock:
    """Locks a folder until `release` of the result is called or the process ends."""
    folder_lock = filelock.FileLock(os.path.join(folder, ".lock"), thread_local=False)
    try:
        folder_lock.acquire(blocking=False)
    except filelock.Timeout:
        rule = "One run at a time may write to a folder"
        raise ValueError(f"{rule}. Received: {folder}, in use by another process") from None
    return folder_lock


def _remove(folder):
    """Removes a checkpoint if it exists. It is never seen half removed."""
    if stores.is_store(folder):
        stores.remove(stores.join(folder, files.CHECKSUMS))
        stores.remove(folder)
        return
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder, f"{folder}{files.PARTIAL}")
        shutil.rmtree(f"{folder}{files.PARTIAL}")


def _steps(names):
    matches = filter(None, map(_NAME.fullmatch, names))
    return sorted((int(match[1]) for match in matches), reverse=True)


class _DamagedError(Exception):
    pass


def write_files(folder: str, arrays: dict[str, np.ndarray], state: str) -> None:
    """Writes the files of a checkpoint and their SHA-256 checksums."""
    np.savez(os.path.join(folder, _ARRAYS), **arrays)
    with open(os.path.join(folder, _STATE), "w", encoding="utf-8") as file:
        file.write(state)
    sums = [f"{files.sha256(os.path.join(folder, name))}  {name}\n" for name in (_ARRAYS, _STATE)]
    with open(os.path.join(folder, files.CHECKSUMS), "w", encoding="utf-8") as file:
        file.writelines(sums)


def _verify_checksums(folder):
    try:
        checksums = files.read_checksums(folder)
        for name in sorted({_ARRAYS, _STATE, *checksums}):
            if files.sha256(os.path.join(folder, name)) != checksums.get(name):
                raise _DamagedError(f"{name} does not match its SHA-256 sum")
    except FileNotFoundError as error:
        raise _DamagedError(f"{os.path.basename(error.filename)} is missing") from None
    except (NotADirectoryError, ValueError):
        raise _DamagedError(f"{files.CHECKSUMS} cannot be read") from None
