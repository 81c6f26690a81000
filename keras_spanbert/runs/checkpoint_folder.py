"""The folder of a run's checkpoints: writes, keeps, checks and sets aside checkpoints.

In a store, a checkpoint is complete once its SHA256SUMS file, which is written last, exists.
Without it the checkpoint is ignored.
"""

import contextlib
import errno
import json
import logging
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable

import numpy as np

from keras_spanbert import files, stores
from keras_spanbert.runs import checkpoint_shards

VERSION = 2
# The version of a checkpoint in shards.
SHARDS_VERSION = 3

_NAME = re.compile(r"step-(\d+)")
_ARRAYS, _STATE = "arrays.npz", "state.json"
# How long the main process waits for the shards of the others, which start writing at the same
# time. The second limit applies once its main thread has ended, perhaps because the others have.
_LIMIT_SECONDS, _END_SECONDS = 600, 30


class CheckpointFolder:
    """The checkpoints of a run, each a folder `step-...` of arrays and a state.

    Processes that share a model each write a shard. They communicate only through
    files. They write in the background, where collective operations would interfere
    with those of the training steps. All write into one folder. Each process writes
    its checksums last, and the main process renames the folder when all shards are
    there. In a store, where nothing can be renamed, it writes `SHA256SUMS`. Stores
    have no locks: two runs must not use one folder there.

    Args:
        folder: string, which all processes must see. May be in a store.
        keep: int. Number of newest checkpoints to keep.
        process: int. The index of this process. Defaults to `0`.
        start: int. A number that is the same in all processes and differs between
            starts of the run. Shards that a process of an earlier start is still writing are
            ignored. Defaults to `0`.
    """

    def __init__(self, folder: str, keep: int, process: int = 0, start: int = 0):
        self.folder = folder
        self.keep = keep
        self.process = process
        self.start = start
        self._is_store = stores.is_store(folder)
        self._seen = ()

    def lock(self) -> Callable[[], None]:
        """Creates and locks the folder, and removes partial checkpoints.

        Returns:
            A function that releases the lock.

        Raises:
            ValueError: if another run has locked it.
        """
        if self._is_store:
            for step in set(_steps(files.entries(self.folder))).difference(self.steps()):
                files.remove_folder(self._path(step))
            return lambda: None
        os.makedirs(self.folder, exist_ok=True)
        release = files.lock(self.folder).release
        files.remove_partial(self.folder)
        return release

    def write_shard(self, step: int, slices: dict) -> None:
        """Writes this process's shard of a checkpoint: see `checkpoint_shards.write`."""
        folder = self._shared_folder(step)
        if not self._is_store:
            os.makedirs(folder, exist_ok=True)
            checkpoint_shards.write(folder, self.process, self.start, slices)
            return
        with tempfile.TemporaryDirectory(prefix="keras_spanbert-") as local:
            for name in checkpoint_shards.write(local, self.process, self.start, slices):
                files.put_file(os.path.join(local, name), stores.join(folder, name))

    def write(
        self, step: int, arrays: dict[str, np.ndarray], state: str, num_shards: int = 0
    ) -> str:
        """Writes a checkpoint, removes old ones, and returns its path.

        `num_shards` is the number of processes that write shards, to wait for.

        Raises:
            OSError: if it cannot be written. The message names the last good one.
        """
        path = self._path(step)
        try:
            # In a store, a process of an earlier start that had not ended yet may have written its
            # shard here.
            if not num_shards and step not in self.steps():
                files.remove_folder(path)
            with self._complete_folder(step, num_shards) as folder:
                shared = self._shared_folder(step)
                sums = checkpoint_shards.collect_checksums(shared, num_shards, self.start)
                write_files(folder, arrays, state, sums)
        except OSError as error:
            # The error may name no file: for example, a full disk while writing.
            code = error.errno or errno.EIO
            raise OSError(code, f"{error.strerror or error}; {self.last_good()}", path) from None
        for old in self.steps()[self.keep :]:
            files.remove_folder(self._path(old))
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
                with files.temporary_copy(self._path(step)) as folder:
                    _verify_checksums(folder, check_shards=is_main)
                    return self._path(step), *_read_files(folder, self._path(step))
            except _DamagedError as error:
                if not is_main:
                    text = f"The main process read it without errors, this process did not: {error}"
                    raise OSError(errno.EIO, text, self._path(step)) from None
                path = self._path(step)
                files.rename_folder(path, _unused_path(f"{path}.damaged"))
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
        names = files.entries(self.folder)
        if self._is_store:
            ending = f"/{files.CHECKSUMS}"
            names = files.names(self.folder)
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

    @contextlib.contextmanager
    def _complete_folder(self, step, num_shards):
        """Yields a local folder for the other files once all shards are written."""
        if self._is_store:
            self._wait(step, num_shards, pause=1.0)
            with files.local_folder(self._path(step)) as local:
                yield local
            return
        folder = self._shared_folder(step)
        try:
            self._wait(step, num_shards, pause=0.05)
            os.makedirs(folder, exist_ok=True)
            yield folder
            for name in [*os.listdir(folder), ""]:
                files.sync_to_disk(os.path.join(folder, name))
            os.rename(folder, self._path(step))
            files.sync_to_disk(self.folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _wait(self, step, num_shards, pause):
        """Waits until all shards are written.

        Raises a `TimeoutError` after ten minutes, or 30 seconds after the main thread has ended.
        """
        ends = time.monotonic() + _LIMIT_SECONDS
        for process in range(num_shards):
            name = checkpoint_shards.checksum_file(process, self.start)
            while name not in files.entries(self._shared_folder(step)):
                if not threading.main_thread().is_alive():
                    ends = min(ends, time.monotonic() + _END_SECONDS)
                if time.monotonic() > ends:
                    raise TimeoutError(
                        f"Process {process} has not written its part of the checkpoint of step "
                        f"{step:,} into {self.folder}, which all processes must see"
                    )
                time.sleep(pause)

    def _path(self, step):
        return stores.join(self.folder, f"step-{step}")

    def _shared_folder(self, step):
        """Returns the path of the folder that all processes write to."""
        return self._path(step) + ("" if self._is_store else f"-{self.start}{files.PARTIAL}")


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
    files.write_checksums(folder, [_ARRAYS, _STATE], checksums)


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
        checksums = files.read_checksums(folder)
        for name in sorted({_ARRAYS, _STATE, *checksums}):
            if check_shards or not checkpoint_shards.is_shard(name):
                if files.sha256(os.path.join(folder, name)) != checksums.get(name):
                    raise _DamagedError(f"{name} does not match its SHA-256 sum")
        state = files.read_json(os.path.join(folder, _STATE))
        for i in range(state.get("num_parts", 0)):
            if missing := {*checkpoint_shards.file_names(i, state.get("start"))} - {*checksums}:
                raise _DamagedError(f"{min(missing)} has no SHA-256 sum")
    except FileNotFoundError as error:
        raise _DamagedError(f"{os.path.basename(error.filename)} is missing") from None
    except (NotADirectoryError, ValueError):
        raise _DamagedError(f"{files.CHECKSUMS} cannot be read") from None


def _unused_path(path):
    number, unused = 1, path
    while files.exists(unused):
        number += 1
        unused = f"{path}-{number}"
    return unused
