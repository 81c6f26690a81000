"""A run and its folder, which may be in remote storage."""

import contextlib
import dataclasses
import os
import shutil
import tempfile
import weakref

from keras_spanbert import files, stores
from keras_spanbert.recipes.flags import FLAGS, values

# Functions that remove the local folders of this process.
_CLEANUPS = []
# Parts of a resumed run that are not fetched here. Nothing reads them, except checkpoints, which
# are fetched when they are read.
_NOT_FETCHED = ("checkpoints/", "tensorboard/", "profile/")


class RunFolder:
    """The folder that a run writes to: a local one, which may be copied to a store.

    Args:
        output: string. The folder of the run.
        resumes: bool. Whether the run may have started before. If so, the local
            folder starts with the contents of the store.

    Attributes:
        path: string. The local folder.
    """

    def __init__(self, output: str, resumes: bool):
        self._output = self.path = output
        self._sent = {}  # Size and time of each file when it was copied.
        self._is_stored = stores.is_store(output)
        if not self._is_stored:
            return
        self.path = tempfile.mkdtemp(prefix="keras_spanbert-run-")
        _CLEANUPS.append(weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True))
        if resumes:
            found = files.names(output)
            found = {name: tag for name, tag in found.items() if not name.startswith(_NOT_FETCHED)}
            files.fetch(output, self.path, found)
            self._sent = files.names(self.path)

    def add_preset(self, folder: str) -> None:
        """Copies a preset to the store, before it is moved into the local folder."""
        if self._is_stored:
            files.put_folder(folder, self._output)
            self._sent.update(files.names(folder))

    def publish(self) -> None:
        """Copies the files that changed since they were copied to the store."""
        if not self._is_stored:
            return
        # `run.json` goes first: it marks the folder as a run.
        found = files.names(self.path)
        for name in sorted(found, key=lambda name: (name != "run.json", name)):
            if self._sent.get(name) != found[name] and files.PARTIAL not in name:
                files.put_file(os.path.join(self.path, name), stores.join(self._output, name))
                self._sent[name] = found[name]


@dataclasses.dataclass
class Run:
    """The run that is passed to every recipe.

    Attributes:
        distribution: `Distribution`. The devices and processes that train.
        output: string. The folder to write to, as messages name it.
        given: dict. The flags as the user gave them. The values used may be lower.
        folder: `RunFolder`. The local folder that is written to.
    """

    distribution: object
    output: str
    given: dict

    def __post_init__(self):
        self.folder = RunFolder(self.output, FLAGS.resume)

    def path(self, *names: str) -> str:
        """Returns a path in the local folder."""
        return os.path.join(self.folder.path, *names)

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes files and logs."""
        return self.distribution.is_main

    def write_record(self) -> None:
        """Writes `run.json`, which has everything needed to repeat the run."""
        from keras_spanbert.runs import reports

        os.makedirs(self.folder.path, exist_ok=True)
        record = {**reports.run_record(values()), "given": self.given}
        files.write_json(self.path("run.json"), record)

    def report_names(self) -> str:
        """Returns the names of the reports in the folder, for a message."""
        from keras_spanbert.runs import reports

        return ", ".join(name for name in reports.FILES if os.path.exists(self.path(name)))


def remove_at_exit_if_empty(folder: str) -> None:
    """Removes a folder when the run ends, if nothing was written to it."""

    def remove():
        with contextlib.suppress(OSError):
            os.rmdir(folder)

    _CLEANUPS.append(remove)


def clean_up_folders() -> None:
    """Removes empty folders and local copies of stores, which `os._exit` would leave behind."""
    while _CLEANUPS:
        _CLEANUPS.pop()()
