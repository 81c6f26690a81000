"""Shards of checkpoints, if a model is split over processes: each process writes one.

In addition to `arrays.npz`, which has the values that all processes share, there are the files
`part-0-START.npz` and `part-0-START.json` of process 0, and so on: its slices of the variables,
and their bounds. START, a number that `state.json` records, identifies the start of
the run, so that shards written late by processes of an earlier start are ignored.
"""

import io
import json
import math
import os

import keras
import numpy as np

from keras_spanbert import distribution, files, stores


def write(folder: str, process: int, start: int, slices: dict) -> list[str]:
    """Writes a process's shard into a local folder, with its checksums last.

    Args:
        folder: string.
        process, start: ints. The index of the process and the number of the start.
        slices: dict from names to pairs of bounds `[start, stop]` per dimension, and
            an array.

    Returns:
        List of the files' names, in the order of writing.
    """
    names = file_names(process, start)
    arrays, bounds = (os.path.join(folder, name) for name in names)
    np.savez(arrays, **{name: array for name, (_, array) in slices.items()})
    with open(bounds, "w", encoding="utf-8") as file:
        json.dump({name: where for name, (where, _) in slices.items()}, file)
    for path in [arrays, bounds]:
        files.sync_to_disk(path)
    with files.atomic_write(os.path.join(folder, checksum_file(process, start))) as file:
        file.writelines(files.checksum_lines(folder, names))
    return [*names, checksum_file(process, start)]


def collect_checksums(folder: str, num_processes: int, start: int) -> list[str]:
    """Returns the lines of all shards' checksum files, and removes these files."""
    lines = []
    for process in range(num_processes):
        path = stores.join(folder, checksum_file(process, start))
        with io.TextIOWrapper(files.open_binary(path), encoding="ascii") as file:
            lines.extend(file)
        files.remove(path)
    return lines


def checksum_file(process: int, start: int) -> str:
    """Returns the name of a shard's checksum file, which exists when the shard is complete."""
    return f"part-{process}-{start}.sums"


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


def file_names(process: int, start: int) -> list[str]:
    """Returns the names of a shard's files."""
    return [f"part-{process}-{start}.npz", f"part-{process}-{start}.json"]


def is_shard(name: str) -> bool:
    """Returns whether a file of a checkpoint belongs to a shard."""
    return name.startswith("part-")


def read(folder: str, state: dict) -> dict[str, ShardedArray]:
    """Returns the variables of a checkpoint that are stored in shards, by their names."""
    arrays = {}
    for process in range(state.get("num_parts", 0)):
        values, bounds = (os.path.join(folder, n) for n in file_names(process, state["start"]))
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
