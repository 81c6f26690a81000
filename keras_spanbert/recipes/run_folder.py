"""The folder of a run, which may be in a store."""

import os
import pathlib
import shutil
import tempfile
import weakref

from keras_spanbert import files, stores

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
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
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
        for name, now in self._reports() if self._is_stored else ():
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
