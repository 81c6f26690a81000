"""The folder of a run's checkpoints: written whole, the newest kept, damaged ones set aside.

In a store a checkpoint is whole once its SHA256SUMS, which are written last, are there; without
them it counts for nothing.
"""

import contextlib
import errno
import itertools
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable

import numpy as np

from keras_spanbert import files, stores
from keras_spanbert.runs import checkpoint_parts
from keras_spanbert.runs.checkpoint_parts import CheckpointParts

VERSION = 2
# Of one in parts.
PARTS_VERSION = 3

_NAME = re.compile(r"step-(\d+)")
_ARRAYS, _STATE = "arrays.npz", "state.json"


class CheckpointFolder:
    """Checkpoints by their steps, each a folder `step-...` of arrays and a state.

    Args:
        folder: string.
        keep: int. How many are kept, the newest.
    """

    def __init__(self, folder: str, keep: int):
        self.folder = folder
        self.keep = keep

    def lock(self) -> Callable[[], None]:
        """Makes the folder, keeps others from writing to it, and removes what is half-written.

        Returns:
            function that lets others write.

        Raises:
            ValueError: where another run has it.
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
            new = parts.whole_folder(step, path) if parts else self._new_folder(step)
            with new as partial:
                write_files(partial, arrays, state, parts.take_sums(partial) if parts else [])
        except OSError as error:
            # What failed may be known by no name of a file: a full disk while writing.
            code = error.errno or errno.EIO
            raise OSError(code, f"{error.strerror or error}; {self.last_good()}", path) from None
        for old in self.steps()[self.keep :]:
            self._remove(old)
        return path

    def _new_folder(self, step):
        return files.new_folder(self._path(step), sync=True)

    def _remove(self, step):
        # Never half a checkpoint under its name.
        partial = f"{self._path(step)}{files.PARTIAL}"
        os.rename(self._path(step), partial)
        shutil.rmtree(partial)

    def read_newest(self, is_main: bool = True) -> tuple[str, dict, dict] | None:
        """Path, arrays and state of the newest whole checkpoint, `None` where there is none.

        Args:
            is_main: bool. Whether this process reads before the others, and for
                all: it checks the sums of all parts, and sets aside what is
                damaged. Defaults to `True`.

        Raises:
            ValueError: where all are damaged, or it is of another version.
            OSError: where one is damaged that the main process found whole.
        """
        steps = self.steps()
        for step in steps:
            try:
                with self._local(step) as folder:
                    _check_sums(folder, check_parts=is_main)
                    return self._path(step), *_read_files(folder, self._path(step))
            except _DamagedError as error:
                if not is_main:
                    text = f"Not as the first process read it: {error}"
                    raise OSError(errno.EIO, text, self._path(step)) from None
                self._set_aside(step)
                logging.getLogger("keras_spanbert").warning(
                    "Checkpoint %s is damaged (%s) and set aside", self._path(step), error
                )
        if steps:
            raise ValueError(
                f"One checkpoint must be whole. Received: {self.folder}, all of them damaged"
            )
        return None

    def steps(self) -> list[int]:
        """Steps of the checkpoints, the newest first."""
        return _steps(os.listdir(self.folder))

    def last_good(self) -> str:
        """What messages say of the newest checkpoint."""
        return _last_good(map(self._path, self.steps()))  # Another process may have written it.

    def _path(self, step):
        return stores.join(self.folder, f"step-{step}")

    def _local(self, step):
        """A context manager that gives a local folder with a checkpoint's files."""
        return contextlib.nullcontext(self._path(step))

    def _set_aside(self, step):
        path = self._path(step)
        os.rename(path, _unused(f"{path}.damaged", os.path.exists))


class StoredCheckpoints(CheckpointFolder):
    """A `CheckpointFolder` in a store, which has no locks: two runs must not write to it."""

    _seen = ()

    def lock(self) -> Callable[[], None]:
        """See `CheckpointFolder`; here it removes what a process that was killed had copied."""
        whole = set(self.steps())
        for step in _steps(stores.entries(self.folder)):
            if step not in whole:
                self._remove(step)
        return lambda: None

    def steps(self) -> list[int]:
        """Steps of the checkpoints that are whole, the newest first."""
        ending = f"/{stores.SUMS}"
        names = stores.names(self.folder)
        self._seen = _steps(n.removesuffix(ending) for n in names if n.endswith(ending))
        return self._seen

    def last_good(self) -> str:
        """See `CheckpointFolder`; it does not ask the store, which may be what failed."""
        return _last_good(map(self._path, self._seen))

    def _new_folder(self, step):
        # A process of before, which does not know yet that it is alone, may have written its part.
        if step not in self.steps():
            self._remove(step)
        return super()._new_folder(step)

    def _remove(self, step):
        stores.remove_folder(self._path(step))

    @contextlib.contextmanager
    def _local(self, step):
        with tempfile.TemporaryDirectory(prefix="keras_spanbert-") as folder:
            for is_last in [False, True]:
                try:
                    stores.fetch(self._path(step), folder, stores.names(self._path(step)))
                    break
                except stores.SumError as error:  # Perhaps on the way.
                    if is_last:
                        raise _DamagedError(error) from None
            yield folder

    def _set_aside(self, step):
        stores.rename_folder(
            self._path(step), _unused(f"{self._path(step)}.damaged", stores.is_folder)
        )


def open_folder(folder: str, keep: int) -> CheckpointFolder:
    """The `CheckpointFolder` of a local folder or of one in a store."""
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
    folder: str, arrays: dict[str, np.ndarray], state: str, sums: Iterable[str] = ()
) -> None:
    """Writes a checkpoint's files and their SHA-256 sums, below lines of others there."""
    np.savez(os.path.join(folder, _ARRAYS), **arrays)
    with open(os.path.join(folder, _STATE), "w", encoding="utf-8") as file:
        file.write(state)
    stores.write_sums(folder, [_ARRAYS, _STATE], sums)


def _read_files(folder, path):
    """A checkpoint's arrays and state; `path` is what messages call it."""
    with open(os.path.join(folder, _STATE), encoding="utf-8") as file:
        state = json.load(file)
    if state["version"] not in (1, VERSION, PARTS_VERSION):
        raise ValueError(
            f"A checkpoint must be of version {PARTS_VERSION} or before. Received: {path}, of "
            f"version {state['version']}"
        )
    with np.load(os.path.join(folder, _ARRAYS), allow_pickle=False) as file:
        arrays = dict(file)
    if state["version"] == 1:
        _drop_unused_seeds(arrays, state["variables"]["model"])
    return {**arrays, **checkpoint_parts.read(folder, state)}, state


def _check_sums(folder, check_parts):
    try:
        sums = stores.read_sums(folder)

        def check(names):
            for name in names:
                if files.sha256(os.path.join(folder, name)) != sums.get(name):
                    raise _DamagedError(f"{name} does not have its SHA-256")

        check([_ARRAYS, _STATE])
        if check_parts:
            state = files.read_json(os.path.join(folder, _STATE))
            check(itertools.chain(*checkpoint_parts.all_file_names(state)))
    except FileNotFoundError as error:
        raise _DamagedError(f"{os.path.basename(error.filename)} is missing") from None
    except (NotADirectoryError, ValueError):
        raise _DamagedError(f"{stores.SUMS} cannot be read") from None


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


def _unused(path, is_used):
    number, unused = 1, path
    while is_used(unused):
        number += 1
        unused = f"{path}-{number}"
    return unused
