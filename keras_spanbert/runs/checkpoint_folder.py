"""The folder of a run's checkpoints: written whole, the newest kept, damaged ones set aside."""

import errno
import json
import logging
import os
import re
import shutil
from collections.abc import Iterable

import numpy as np

from keras_spanbert import files
from keras_spanbert.runs import checkpoint_parts
from keras_spanbert.runs.checkpoint_parts import CheckpointParts

VERSION = 2
# Of one in parts.
PARTS_VERSION = 3

_NAME = re.compile(r"step-(\d+)")
_ARRAYS, _STATE, _SUMS = "arrays.npz", "state.json", "SHA256SUMS"


class CheckpointFolder:
    """Checkpoints by their steps, each a folder `step-...` of arrays and a state.

    Args:
        folder: string.
        keep: int. How many are kept, the newest.
    """

    def __init__(self, folder: str, keep: int):
        self.folder = folder
        self.keep = keep

    def write(
        self,
        step: int,
        arrays: dict[str, np.ndarray],
        state: str,
        parts: CheckpointParts | None = None,
    ) -> str:
        """Writes a checkpoint and removes old ones; returns its path.

        Args:
            step: int.
            arrays: dict of arrays.
            state: string, JSON.
            parts: what all processes write, to wait for. Defaults to `None`:
                this one has the whole.

        Raises:
            OSError: where it cannot be written; names the last good one.
        """
        path = self._path(step)
        try:
            new = parts.whole_folder(step, path) if parts else files.new_folder(path, sync=True)
            with new as partial:
                write_files(partial, arrays, state, parts.take_sums(partial) if parts else [])
        except OSError as error:
            # What failed may be known by no name of a file: a full disk while writing.
            code = error.errno or errno.EIO
            raise OSError(code, f"{error.strerror or error}; {self.last_good()}", path) from None
        for old in map(self._path, self.steps()[self.keep :]):
            # Never half a checkpoint under its name.
            os.rename(old, f"{old}{files.PARTIAL}")
            shutil.rmtree(f"{old}{files.PARTIAL}")
        return path

    def read_newest(self, check_parts: bool = True) -> tuple[str, dict, dict] | None:
        """Path, arrays and state of the newest whole checkpoint, `None` where there is none.

        Args:
            check_parts: bool. Whether all parts must have their sums, which
                reads them all: one process can for all. Defaults to `True`.

        Raises:
            ValueError: where all are damaged, or it is of another version.
        """
        steps = self.steps()
        for path in map(self._path, steps):
            try:
                _check_sums(path, check_parts)
            except _DamagedError as error:
                os.rename(path, _unused(f"{path}.damaged"))
                logging.getLogger("keras_spanbert").warning(
                    "Checkpoint %s is damaged (%s) and set aside", path, error
                )
                continue
            with open(os.path.join(path, _STATE), encoding="utf-8") as file:
                state = json.load(file)
            if state["version"] not in (1, VERSION, PARTS_VERSION):
                raise ValueError(
                    f"A checkpoint must be of version {PARTS_VERSION} or before. Received: {path}, "
                    f"of version {state['version']}"
                )
            with np.load(os.path.join(path, _ARRAYS), allow_pickle=False) as file:
                arrays = dict(file)
            if state["version"] == 1:
                _drop_unused_seeds(arrays, state["variables"]["model"])
            arrays.update(
                checkpoint_parts.read(path, state.get("num_parts", 0), state["variables"])
            )
            return path, arrays, state
        if steps:
            raise ValueError(
                f"One checkpoint must be whole. Received: {self.folder}, all of them damaged"
            )
        return None

    def steps(self) -> list[int]:
        """Steps of the checkpoints, the newest first."""
        names = (_NAME.fullmatch(name) for name in os.listdir(self.folder))
        return sorted((int(match[1]) for match in names if match), reverse=True)

    def last_good(self) -> str:
        """What messages say of the newest checkpoint."""
        for step in self.steps()[:1]:  # Another process may have written it.
            return f"the last good checkpoint is {self._path(step)}"
        return "no checkpoint yet"

    def _path(self, step):
        return os.path.join(self.folder, f"step-{step}")


class _DamagedError(Exception):
    pass


def write_files(
    folder: str, arrays: dict[str, np.ndarray], state: str, sums: Iterable[str] = ()
) -> None:
    """Writes a checkpoint's files and their SHA-256 sums, below lines of others there."""
    np.savez(os.path.join(folder, _ARRAYS), **arrays)
    with open(os.path.join(folder, _STATE), "w", encoding="utf-8") as file:
        file.write(state)
    with open(os.path.join(folder, _SUMS), "w", encoding="ascii") as file:
        file.writelines([*sums, *checkpoint_parts.sum_lines(folder, [_ARRAYS, _STATE])])


def _check_sums(folder, check_parts):
    try:
        with open(os.path.join(folder, _SUMS), encoding="ascii") as file:
            sums = dict(reversed(line.split()) for line in file)

        def check(names):
            for name in names:
                if files.sha256(os.path.join(folder, name)) != sums.get(name):
                    raise _DamagedError(f"{name} does not have its SHA-256")

        check([_ARRAYS, _STATE])
        num_parts = files.read_json(os.path.join(folder, _STATE)).get("num_parts", 0)
        for process in range(num_parts if check_parts else 0):
            check(checkpoint_parts.file_names(process))
    except FileNotFoundError as error:
        raise _DamagedError(f"{os.path.basename(error.filename)} is missing") from None
    except (NotADirectoryError, ValueError):
        raise _DamagedError(f"{_SUMS} cannot be read") from None


def _drop_unused_seeds(arrays, described):
    """Takes out the seeds that nothing drew from, which version 0.1 had in each layer.

    Where its attention has a dropout, a transformer layer had the seeds of two
    dropouts that others had taken the places of: the first two of its own.
    """
    own, with_attention = {}, set()
    for i, (path, *_) in enumerate(described):
        layer, _, rest = path.rpartition("transformer_layer_")[2].partition("/")
        if path.endswith("seed_generator_state") and "transformer_layer_" in path:
            if rest.startswith("self_attention_layer/"):
                with_attention.add(layer)
            else:
                own.setdefault(layer, []).append(i)
    # Where each variable's value is, the ones in use in the places of the others.
    source = {i: i for i in range(len(described))}
    for layer in with_attention & own.keys():
        unused, used = own[layer][:2], own[layer][2:]
        source.update(zip(unused, used))
        for i in used or unused:
            del source[i]
    values = [arrays.pop(f"model/{i}") for i in range(len(described))]
    order = sorted(source)
    arrays.update((f"model/{new}", values[source[old]]) for new, old in enumerate(order))
    described[:] = [described[i] for i in order]


def _unused(path):
    number, unused = 1, path
    while os.path.exists(unused):
        number += 1
        unused = f"{path}-{number}"
    return unused
