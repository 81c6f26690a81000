"""Checkpoints of models that are spread over processes: each writes its part, none has the whole.

Beside `arrays.npz`, which has what every process has, there are then `part-0-START.npz` and
`part-0-START.json` of process 0, and so on: shards, and where in their variables they are. The
number of the start is in `state.json`: what a process of before writes late is nobody's.
"""

import contextlib
import json
import math
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Container, Iterator

import keras
import numpy as np

from keras_spanbert import distribution, files, stores

# How long the first process waits for what the others write, which begin when it does, and how
# long once it is about to end, perhaps because they have.
_LIMIT_SECONDS, _END_SECONDS = 600, 30


class CheckpointParts:
    """What the processes of a run write together, which tell one another by files alone.

    They write in the background, where exchanges would get between those of the
    steps: each into one folder, its sums last, and the first renames it when
    all have.

    Args:
        folder: string. Where checkpoints are, which all processes see.
        process: int. Number of this one.
        num_processes: int.
        start: int, the same in all processes and another each time that they
            start: what a process of before writes, which does not know yet that
            it is alone, is not taken for a part of these.
    """

    def __init__(self, folder: str, process: int, num_processes: int, start: int):
        self._folder = folder
        self._process = process
        self.num_processes = num_processes
        self.start = start

    def write(self, step: int, shards: dict[str, tuple[list, np.ndarray]]) -> None:
        """Writes this process's part of a checkpoint.

        Args:
            step: int.
            shards: dict of name to bounds, a `[start, stop]` a dimension, and
                array.
        """
        folder = self._partial(step)
        os.makedirs(folder, exist_ok=True)
        self._write_files(folder, shards)

    def _write_files(self, folder, shards):
        """Writes the part's files into a local folder; returns their names, the last one last."""
        names = file_names(self._process, self.start)
        arrays, bounds = (os.path.join(folder, name) for name in names)
        np.savez(arrays, **{name: array for name, (_, array) in shards.items()})
        with open(bounds, "w", encoding="utf-8") as file:
            json.dump({name: where for name, (where, _) in shards.items()}, file)
        for path in [arrays, bounds]:
            files.sync_to_disk(path)
        sums = self._sums(self._process)
        with files.replacing(os.path.join(folder, sums)) as file:
            file.writelines(stores.sum_lines(folder, names))
        return [*names, sums]

    @contextlib.contextmanager
    def whole_folder(self, step: int, path: str) -> Iterator[str]:
        """Gives the folder once all parts are in it; it takes the name `path` at the end.

        Raises:
            OSError: where a part is missing after ten minutes.
        """
        folder = self._partial(step)
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

    def take_sums(self, folder: str) -> list[str]:
        """The lines of all parts' sums, whose files are removed."""
        lines = []
        for process in range(self.num_processes):
            path = os.path.join(folder, self._sums(process))
            with open(path, encoding="ascii") as file:
                lines.extend(file)
            os.remove(path)
        return lines

    def _wait(self, step, pause=0.05):
        ends = time.monotonic() + _LIMIT_SECONDS
        for process in range(self.num_processes):
            while self._sums(process) not in self._written(step):
                if not threading.main_thread().is_alive():
                    ends = min(ends, time.monotonic() + _END_SECONDS)
                if time.monotonic() > ends:
                    raise TimeoutError(
                        f"Process {process} has not written its part of the checkpoint of step "
                        f"{step:,} into {self._folder}, which all processes must see"
                    )
                time.sleep(pause)

    def _written(self, step) -> Container[str]:
        """Names of the files that there are of a checkpoint."""
        folder = self._partial(step)
        return os.listdir(folder) if os.path.isdir(folder) else []

    def _partial(self, step):
        return os.path.join(self._folder, f"step-{step}-{self.start}{files.PARTIAL}")

    def _sums(self, process):
        return f"part-{process}-{self.start}.sums"


class StoredParts(CheckpointParts):
    """`CheckpointParts` of a folder in a store: the parts are there before the checkpoint's sums.

    Until `SHA256SUMS` is, which the first process writes when all have written
    theirs, they count for nothing.
    """

    def write(self, step: int, shards: dict[str, tuple[list, np.ndarray]]) -> None:
        """See `CheckpointParts`."""
        with tempfile.TemporaryDirectory(prefix="keras_spanbert-") as local:
            for name in self._write_files(local, shards):
                stores.put_file(os.path.join(local, name), stores.join(self._path(step), name))

    @contextlib.contextmanager
    def whole_folder(self, step: int, path: str) -> Iterator[str]:
        """Gives a local folder for the other files once all parts are there; then copies it.

        Raises:
            OSError: where a part is missing after ten minutes.
        """
        self._wait(step, pause=1.0)
        sums = {self._sums(process) for process in range(self.num_processes)}
        found = {name: tag for name, tag in self._written(step).items() if name in sums}
        with tempfile.TemporaryDirectory(prefix="keras_spanbert-") as local:
            stores.fetch(path, local, found)
            yield local
            for name in sums:
                stores.remove(stores.join(path, name))
            stores.put_folder(local, path)

    def _written(self, step):
        return stores.names(self._path(step))

    def _path(self, step):
        return stores.join(self._folder, f"step-{step}")


class SpreadArray:
    """A variable's value in the files of a checkpoint's parts: what is asked for is read."""

    def __init__(self, shape: tuple[int, ...], dtype):
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self._shards = []

    def add(self, bounds: list, file: np.lib.npyio.NpzFile, name: str) -> None:
        """Says where a shard is."""
        self._shards.append((bounds, file, name))

    def __getitem__(self, index: tuple[slice, ...]) -> np.ndarray:
        wanted = [slice(*i.indices(size)[:2]) for i, size in zip(index, self.shape, strict=True)]
        value = np.empty([place.stop - place.start for place in wanted], self.dtype)
        missing = value.size
        for bounds, file, name in self._shards:
            common = [
                slice(max(place.start, start), min(place.stop, stop))
                for place, (start, stop) in zip(wanted, bounds)
            ]
            if any(place.start >= place.stop for place in common):
                continue
            source = tuple(_moved(place, start) for place, (start, _) in zip(common, bounds))
            target = tuple(_moved(place, all_.start) for place, all_ in zip(common, wanted))
            value[target] = file[name][source]
            missing -= math.prod(place.stop - place.start for place in common)
        if missing:
            raise ValueError(
                f"The parts of a checkpoint must be the whole of it. Received: {missing:,} values "
                f"less, of shape {self.shape}"
            )
        return value

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        value = self[tuple(slice(None) for _ in self.shape)]
        return value if dtype is None else value.astype(dtype)


def file_names(process: int, start: int | None) -> list[str]:
    """Names of the files of a process's part; of 0.2's first checkpoints the start is `None`."""
    stem = f"part-{process}" if start is None else f"part-{process}-{start}"
    return [f"{stem}.npz", f"{stem}.json"]


def all_file_names(state: dict) -> list[list[str]]:
    """Names of the files of each part, by a checkpoint's state."""
    return [file_names(i, state.get("start")) for i in range(state.get("num_parts", 0))]


def read(folder: str, state: dict) -> dict[str, SpreadArray]:
    """The variables that are in parts, by their names.

    Args:
        folder: string, of a whole checkpoint.
        state: dict, the checkpoint's.
    """
    arrays = {}
    for names in all_file_names(state):
        values, bounds = (os.path.join(folder, name) for name in names)
        file = np.load(values, allow_pickle=False)
        for shard, where in files.read_json(bounds).items():
            name = shard.rpartition("/")[0]
            if name not in arrays:
                group, _, number = name.partition("/")
                _, shape, dtype = state["variables"][group][int(number)]
                # As `copied` has it.
                dtype = "float32" if dtype == "bfloat16" else dtype
                arrays[name] = SpreadArray(tuple(shape), dtype)
            arrays[name].add(where, file, shard)
    return arrays


def values(groups: dict[str, list[keras.Variable]], is_main: bool) -> tuple[dict, dict | None]:
    """What this process writes: whole arrays, and shards of what is spread over processes.

    Args:
        groups: dict of name to variables.
        is_main: bool. Whether whole arrays are this process's to write.

    Returns:
        Two dicts, the second `None` where nothing is spread.
    """
    arrays, shards, spread = {}, {}, False
    for group, variables in groups.items():
        for i, variable in enumerate(variables):
            own = distribution.own_shards(variable)
            if own is not None:
                spread = True
                for number, (bounds, value) in enumerate(own):
                    shards[f"{group}/{i}/{number}"] = bounds, _copied(value)
            elif is_main:
                arrays[f"{group}/{i}"] = _copied(distribution.to_numpy(variable))
    return arrays, shards if spread else None


def _copied(array):
    # NumPy's files know no bfloat16.
    return np.array(array, "float32" if array.dtype.kind == "V" else None)


def _moved(place, start):
    return slice(place.start - start, place.stop - start)
