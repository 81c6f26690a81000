"""The folder of a run's checkpoints: writes, keeps, checks and sets aside checkpoints.

In a store, a checkpoint is complete once its SHA256SUMS file, which is written last, exists.
Without it the checkpoint is ignored.
"""

import errno
import itertools
import json
import logging
import os
import re
from collections.abc import Callable, Iterable

import numpy as np

from keras_spanbert import files, stores
from keras_spanbert.runs import checkpoint_shards
from keras_spanbert.runs.checkpoint_shards import CheckpointShards, StoredShards

VERSION = 2
# The version of a checkpoint in shards.
SHARDS_VERSION = 3

_NAME = re.compile(r"step-(\d+)")
_ARRAYS, _STATE = "arrays.npz", "state.json"


class CheckpointFolder:
    """The checkpoints of a run, each a folder `step-...` of arrays and a state.

    Args:
        folder: string.
        keep: int. Number of newest checkpoints to keep.
    """

    shards = CheckpointShards

    def __init__(self, folder: str, keep: int):
        self.folder = folder
        self.keep = keep

    def lock(self) -> Callable[[], None]:
        """Creates and locks the folder, and removes partial checkpoints.

        Returns:
            A function that releases the lock.

        Raises:
            ValueError: if another run has locked it.
        """
        os.makedirs(self.folder, exist_ok=True)
        release = files.lock(self.folder).release
        files.remove_partial(self.folder)
        return release

    def write(
        self,
        step: int,
        arrays: dict[str, np.ndarray],
        state: str,
        shards: CheckpointShards | None = None,
    ) -> str:
        """Writes a checkpoint, removes old ones, and returns its path.

        `shards` are those that all processes write, to wait for. Without them, this
        process writes the whole checkpoint.

        Raises:
            OSError: if it cannot be written. The message names the last good one.
        """
        path = self._path(step)
        try:
            # In a store, a process of an earlier start that had not ended yet may have written its
            # shard here.
            if not shards and step not in self.steps():
                stores.remove_folder(path)
            new = shards.complete_folder(step, path) if shards else files.new_folder(path, True)
            with new as folder:
                checksums = shards.collect_checksums(step) if shards else []
                write_files(folder, arrays, state, checksums)
        except OSError as error:
            # The error may name no file: for example, a full disk while writing.
            code = error.errno or errno.EIO
            raise OSError(code, f"{error.strerror or error}; {self.last_good()}", path) from None
        for old in self.steps()[self.keep :]:
            stores.remove_folder(self._path(old))
        return path

    def read_newest(self, is_main: bool = True) -> tuple[str, dict, dict] | None:
        """Returns path, arrays and state of the newest complete checkpoint, or `None`.

        Args:
            is_main: bool. Whether this process reads before the others. If so, it
                verifies the checksums of all shards and sets damaged checkpoints aside.
                Defaults to `True`.

        Raises:
            ValueError: if all are damaged, or the newest has an unknown version.
            OSError: if a checkpoint is damaged that the main process found complete.
        """
        steps = self.steps()
        for step in steps:
            try:
                with stores.temporary_copy(self._path(step)) as folder:
                    _verify_checksums(folder, check_shards=is_main)
                    return self._path(step), *_read_files(folder, self._path(step))
            except (_DamagedError, stores.ChecksumError) as error:
                if not is_main:
                    text = f"The main process read it without errors, this process did not: {error}"
                    raise OSError(errno.EIO, text, self._path(step)) from None
                path = self._path(step)
                stores.rename_folder(path, _unused_path(f"{path}.damaged"))
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
        """Returns the steps of the checkpoints, the newest first."""
        return _steps(stores.entries(self.folder))

    def last_good(self) -> str:
        """Returns a phrase for messages about the newest checkpoint."""
        return _last_good(map(self._path, self.steps()))  # Another process may have written it.

    def _path(self, step):
        return stores.join(self.folder, f"step-{step}")


class StoredCheckpoints(CheckpointFolder):
    """A `CheckpointFolder` in a store. Stores have no locks: two runs must not use one folder."""

    shards = StoredShards
    _seen = ()

    def lock(self) -> Callable[[], None]:
        """See `CheckpointFolder`. Removes the files that a killed process had copied."""
        whole = set(self.steps())
        for step in _steps(stores.entries(self.folder)):
            if step not in whole:
                stores.remove_folder(self._path(step))
        return lambda: None

    def steps(self) -> list[int]:
        """Returns the steps of the complete checkpoints, the newest first."""
        ending = f"/{stores.CHECKSUMS}"
        names = stores.names(self.folder)
        self._seen = _steps(n.removesuffix(ending) for n in names if n.endswith(ending))
        return self._seen

    def last_good(self) -> str:
        """See `CheckpointFolder`. Does not ask the store, which may be the cause of the error."""
        return _last_good(map(self._path, self._seen))


def open_folder(folder: str, keep: int) -> CheckpointFolder:
    """Returns the `CheckpointFolder` of a local folder or of a folder in a store."""
    return (StoredCheckpoints if stores.is_store(folder) else CheckpointFolder)(folder, keep)


def _last_good(paths):
    newest = next(iter(paths), None)
    return f"the last good checkpoint is {newest}" if newest else "no checkpoint yet"


def _steps(names):
    matches = filter(None, map(_NAME.fullmatch, names))
    return sorted((int(match[1]) for match in matches), reverse=True)


class _DamagedError(Exception):
    pass


def write_files(
    folder: str, arrays: dict[str, np.ndarray], state: str, checksums: Iterable[str] = ()
) -> None:
    """Writes the files of a checkpoint and their SHA-256 checksums, after the given lines."""
    np.savez(os.path.join(folder, _ARRAYS), **arrays)
    with open(os.path.join(folder, _STATE), "w", encoding="utf-8") as file:
        file.write(state)
    stores.write_checksums(folder, [_ARRAYS, _STATE], checksums)


def _read_files(folder, path):
    """Returns a checkpoint's arrays and state. Messages name it by `path`."""
    with open(os.path.join(folder, _STATE), encoding="utf-8") as file:
        state = json.load(file)
    if state["version"] not in (VERSION, SHARDS_VERSION):
        raise ValueError(
            f"A checkpoint must have version {VERSION} or {SHARDS_VERSION}. Received: {path}, with "
            f"version {state['version']}"
        )
    with np.load(os.path.join(folder, _ARRAYS), allow_pickle=False) as file:
        arrays = dict(file)
    return {**arrays, **checkpoint_shards.read(folder, state)}, state


def _verify_checksums(folder, check_shards):
    try:
        checksums = stores.read_checksums(folder)

        def check(names):
            for name in names:
                if files.sha256(os.path.join(folder, name)) != checksums.get(name):
                    raise _DamagedError(f"{name} does not match its SHA-256 sum")

        check([_ARRAYS, _STATE])
        if check_shards:
            state = files.read_json(os.path.join(folder, _STATE))
            check(itertools.chain(*checkpoint_shards.all_file_names(state)))
    except FileNotFoundError as error:
        raise _DamagedError(f"{os.path.basename(error.filename)} is missing") from None
    except (NotADirectoryError, ValueError):
        raise _DamagedError(f"{stores.CHECKSUMS} cannot be read") from None


def _unused_path(path):
    number, unused = 1, path
    while stores.exists(unused):
        number += 1
        unused = f"{path}-{number}"
    return unused
