"""Checkpoints of models that are split over processes: each process writes a shard.

In addition to `arrays.npz`, which has the values that all processes share, there are the files
`part-0-START.npz` and `part-0-START.json` of process 0, and so on: its slices of the variables,
and their bounds. START, a number that `state.json` records, identifies the start of
the run, so that shards written late by processes of an earlier start are ignored.
"""

import contextlib
import io
import json
import math
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator

import keras
import numpy as np

from keras_spanbert import distribution, files, stores

# How long the main process waits for the shards of the others, which start writing at the same
# time. The second limit applies once its main thread has ended, perhaps because the others have.
_LIMIT_SECONDS, _END_SECONDS = 600, 30


class CheckpointShards:
    """Writes the shards of a checkpoint, one per process.

    The processes communicate only through files. They write in the background,
    where collective operations would interfere with those of the training steps.
    All write into one folder. Each process writes its checksums last, and the main
    process renames the folder when all shards are there.

    Args:
        folder: string. The folder of the checkpoints, which all processes must see.
        process: int. The index of this process.
        num_processes: int.
        start: int. A number that is the same in all processes and differs between
            starts of the run. Shards of processes of an earlier start that still
            write are ignored.
    """

    def __init__(self, folder: str, process: int, num_processes: int, start: int):
        self._folder = folder
        self._process = process
        self.num_processes = num_processes
        self.start = start

    def write(self, step: int, slices: dict[str, tuple[list, np.ndarray]]) -> None:
        """Writes this process's shard: arrays, and their bounds `[start, stop]` per dimension."""
        folder = self._shared_folder(step)
        os.makedirs(folder, exist_ok=True)
        self._write_files(folder, slices)

    def _write_files(self, folder, slices):
        """Writes the shard's files into a local folder. Returns their names in order of writing."""
        names = file_names(self._process, self.start)
        arrays, bounds = (os.path.join(folder, name) for name in names)
        np.savez(arrays, **{name: array for name, (_, array) in slices.items()})
        with open(bounds, "w", encoding="utf-8") as file:
            json.dump({name: where for name, (where, _) in slices.items()}, file)
        for path in [arrays, bounds]:
            files.sync_to_disk(path)
        checksum_file = self._checksum_file(self._process)
        with files.atomic_write(os.path.join(folder, checksum_file)) as file:
            file.writelines(stores.checksum_lines(folder, names))
        return [*names, checksum_file]

    @contextlib.contextmanager
    def complete_folder(self, step: int, path: str) -> Iterator[str]:
        """Yields the folder once all shards are in it, then renames it to `path`.

        Raises:
            OSError: if a shard is missing after ten minutes.
        """
        folder = self._shared_folder(step)
        try:
            self._wait(step)
            yield folder
            for name in [*os.listdir(folder), ""]:
                files.sync_to_disk(os.path.join(folder, name))
            os.rename(folder, path)
            files.sync_to_disk(self._folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def collect_checksums(self, step: int) -> list[str]:
        """Returns the lines of all shards' checksum files, and removes these files."""
        lines = []
        for process in range(self.num_processes):
            path = stores.join(self._shared_folder(step), self._checksum_file(process))
            with io.TextIOWrapper(stores.open_binary(path), encoding="ascii") as file:
                lines.extend(file)
            stores.remove(path)
        return lines

    def _wait(self, step, pause=0.05):
        ends = time.monotonic() + _LIMIT_SECONDS
        for process in range(self.num_processes):
            while self._checksum_file(process) not in stores.entries(self._shared_folder(step)):
                if not threading.main_thread().is_alive():
                    ends = min(ends, time.monotonic() + _END_SECONDS)
                if time.monotonic() > ends:
                    raise TimeoutError(
                        f"Process {process} has not written its part of the checkpoint of step "
                        f"{step:,} into {self._folder}, which all processes must see"
                    )
                time.sleep(pause)

    def _shared_folder(self, step):
        """Returns the path of the folder that all processes write to."""
        return os.path.join(self._folder, f"step-{step}-{self.start}{stores.PARTIAL}")

    def _checksum_file(self, process):
        return f"part-{process}-{self.start}.sums"


class StoredShards(CheckpointShards):
    """`CheckpointShards` of a folder in a store, where nothing can be renamed.

    The shards are ignored until `SHA256SUMS` exists. The main process writes it when
    all shards are there.
    """

    def write(self, step: int, slices: dict[str, tuple[list, np.ndarray]]) -> None:
        """See `CheckpointShards`."""
        with tempfile.TemporaryDirectory(prefix="keras_spanbert-") as local:
            for name in self._write_files(local, slices):
                path = stores.join(self._shared_folder(step), name)
                stores.put_file(os.path.join(local, name), path)

    @contextlib.contextmanager
    def complete_folder(self, step: int, path: str) -> Iterator[str]:
        """Yields a local folder for the other files once all shards exist, then copies it.

        Raises:
            OSError: if a shard is missing after ten minutes.
        """
        self._wait(step, pause=1.0)
        with files.local_folder(path) as local:
            yield local

    def _shared_folder(self, step):
        return stores.join(self._folder, f"step-{step}")


class ShardedArray:
    """The value of a variable whose slices are in several shards. Reads only what is indexed."""

    def __init__(self, shape: tuple[int, ...], dtype):
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self._slices = []

    def add(self, bounds: list, file: np.lib.npyio.NpzFile, name: str) -> None:
        """Adds a slice and where it is stored."""
        self._slices.append((bounds, file, name))

    def __getitem__(self, index: tuple[slice, ...]) -> np.ndarray:
        wanted = [slice(*i.indices(size)[:2]) for i, size in zip(index, self.shape, strict=True)]
        value = np.empty([part.stop - part.start for part in wanted], self.dtype)
        missing = value.size
        for bounds, file, name in self._slices:
            common = [
                slice(max(part.start, start), min(part.stop, stop))
                for part, (start, stop) in zip(wanted, bounds)
            ]
            if any(part.start >= part.stop for part in common):
                continue
            source = tuple(_shifted(part, start) for part, (start, _) in zip(common, bounds))
            target = tuple(_shifted(part, all_.start) for part, all_ in zip(common, wanted))
            value[target] = file[name][source]
            missing -= math.prod(part.stop - part.start for part in common)
        if missing:
            raise ValueError(
                f"The shards of a checkpoint must cover all values. Received: {missing:,} missing "
                f"values, of shape {self.shape}"
            )
        return value

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        value = self[tuple(slice(None) for _ in self.shape)]
        return value if dtype is None else value.astype(dtype)


def file_names(process: int, start: int | None) -> list[str]:
    """Returns the names of a shard's files. Early checkpoints of version 0.2 have no start."""
    stem = f"part-{process}" if start is None else f"part-{process}-{start}"
    return [f"{stem}.npz", f"{stem}.json"]


def all_file_names(state: dict) -> list[list[str]]:
    """Returns the names of the files of each shard, from a checkpoint's state."""
    return [file_names(i, state.get("start")) for i in range(state.get("num_parts", 0))]


def read(folder: str, state: dict) -> dict[str, ShardedArray]:
    """Returns the variables of a checkpoint that are stored in shards, by their names."""
    arrays = {}
    for names in all_file_names(state):
        values, bounds = (os.path.join(folder, name) for name in names)
        file = np.load(values, allow_pickle=False)
        for slice_name, where in files.read_json(bounds).items():
            name = slice_name.rpartition("/")[0]
            if name not in arrays:
                group, _, number = name.partition("/")
                _, shape, dtype = state["variables"][group][int(number)]
                # `_copy_array` stored these as float32.
                dtype = "float32" if dtype == "bfloat16" else dtype
                arrays[name] = ShardedArray(tuple(shape), dtype)
            arrays[name].add(where, file, slice_name)
    return arrays


def values(groups: dict[str, list[keras.Variable]], is_main: bool) -> tuple[dict, dict | None]:
    """Returns the values that this process writes: whole arrays, and slices of split variables.

    Only the main process writes whole arrays. The second dict is `None` if nothing is split over
    processes.
    """
    arrays, slices, is_sharded = {}, {}, False
    for group, variables in groups.items():
        for i, variable in enumerate(variables):
            own = distribution.own_slices(variable)
            if own is not None:
                is_sharded = True
                for number, (bounds, value) in enumerate(own):
                    slices[f"{group}/{i}/{number}"] = bounds, _copy_array(value)
            elif is_main:
                arrays[f"{group}/{i}"] = _copy_array(distribution.to_numpy(variable))
    return arrays, slices if is_sharded else None


def _copy_array(array):
    # NumPy files cannot store bfloat16.
    return np.array(array, "float32" if array.dtype.kind == "V" else None)


def _shifted(part, start):
    return slice(part.start - start, part.stop - start)
