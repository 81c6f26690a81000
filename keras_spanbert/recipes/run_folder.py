"""The folder of a run, which may be in a store."""

import os
import pathlib
import shutil
import tempfile
import weakref

from keras_spanbert import files, stores

# What removes the local folders of this process.
_REMOVERS = []
# Of a run that goes on, what is not needed here, or is fetched by who reads it.
_LEFT_THERE = ("checkpoints/", "tensorboard/", "profile/")


class RunFolder:
    """Where a run writes: the folder that it is given, or a local one that is copied to a store.

    Args:
        output: string. The folder of the run.
        goes_on: bool. Whether the run may have begun before: the local folder
            then begins with what is in the store.

    Attributes:
        path: string, the local folder.
    """

    def __init__(self, output: str, goes_on: bool):
        self._output = output
        self._is_stored = stores.is_store(output)
        self._sent = {}  # What files were when they were copied.
        self.path = output
        if not self._is_stored:
            return
        self.path = tempfile.mkdtemp(prefix="keras_spanbert-run-")
        _REMOVERS.append(weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True))
        if goes_on:
            found = stores.names(output)
            found = {name: tag for name, tag in found.items() if not name.startswith(_LEFT_THERE)}
            stores.fetch(output, self.path, found)
            self._sent = dict(self._reports())

    def add_preset(self, folder: str) -> None:
        """Copies a preset, before it takes its place in the local folder."""
        if self._is_stored:
            stores.put_folder(folder, self._output)

    def publish(self) -> None:
        """Copies what was written since the last time, but for presets."""
        if not self._is_stored:
            return
        # Without `run.json`, which is there first, nobody knows that this is a run.
        for name, now in sorted(self._reports(), key=lambda report: report[0] != "run.json"):
            if self._sent.get(name) != now:
                stores.put_file(os.path.join(self.path, name), stores.join(self._output, name))
                self._sent[name] = now

    def _reports(self):
        """Yields the files of the local folder but presets, with size and time of each."""
        of_preset = {stores.SUMS}
        if os.path.exists(os.path.join(self.path, stores.SUMS)):
            of_preset |= set(stores.read_sums(self.path))
        for path in sorted(pathlib.Path(self.path).rglob("*")):
            name = path.relative_to(self.path).as_posix()
            if path.is_file() and name not in of_preset and files.PARTIAL not in name:
                yield name, (path.stat().st_size, path.stat().st_mtime_ns)


def remove_local() -> None:
    """Removes the local folders that stand for a store's: `os._exit` would leave them."""
    for remove in _REMOVERS:
        remove()
