"""A run, its folder, which may be in remote storage, and `--resume`."""

import contextlib
import dataclasses
import functools
import os
import shlex
import shutil
import tempfile
import weakref

from keras_spanbert import files, stores
from keras_spanbert.recipes.flags import FLAGS, given, own_flags, set_flags
from keras_spanbert.recipes.recipe import find_recipe

# Functions that remove the local folders of this process.
_CLEANUPS = []
# Parts of a resumed run that are not fetched here. Nothing reads them, except checkpoints, which
# are fetched when they are read.
_NOT_FETCHED = ("checkpoints/", "tensorboard/")

# Flags that may change when a run is resumed.
CHANGEABLE_FLAGS = [
    "checkpoint_every", "distribution", "export", "keep_checkpoints", "output", "predict_data",
    "predictions", "resume", "tensorboard",
]  # fmt: skip


@dataclasses.dataclass
class Run:
    """The run that is passed to every recipe.

    It writes to `folder`, which is `output`, or a local folder that is copied to a store. If the
    run `resumes`, the local folder starts with the contents of the store.
    """

    distribution: object  # `Distribution`, the devices and processes that train.
    output: str  # The folder to write to, as messages name it.
    given: dict  # The flags as the user gave them. The values used may be lower.
    resumes: bool = False

    def __post_init__(self):
        self.folder = self.output
        self._sent = {}  # Size and time of each file when it was copied.
        self._is_stored = stores.is_store(self.output)
        if not self._is_stored:
            return
        self.folder = tempfile.mkdtemp(prefix="keras_spanbert-run-")
        _CLEANUPS.append(weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True))
        if self.resumes:
            found = stores.names(self.output)
            found = {name: tag for name, tag in found.items() if not name.startswith(_NOT_FETCHED)}
            stores.fetch(self.output, self.folder, found)
            self._sent = stores.names(self.folder)

    def publish(self) -> None:
        """Copies the files that changed since they were copied to the store."""
        if self._is_stored:
            found = stores.names(self.folder)
            changed = [name for name, tag in found.items() if self._sent.get(name) != tag]
            changed = [name for name in changed if files.PARTIAL not in name]
            if changed:
                stores.upload(self.folder, self.output, changed)
            self._sent = found

    def path(self, *names: str) -> str:
        """Returns a path in the local folder."""
        return os.path.join(self.folder, *names)

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes files and logs."""
        return self.distribution.is_main

    def write_record(self) -> None:
        """Writes `run.json`, which has everything needed to repeat the run."""
        import keras

        from keras_spanbert.runs.reports import versions

        os.makedirs(self.folder, exist_ok=True)
        flags = {flag.name: flag.value for flag in own_flags()}
        record = {"backend": keras.backend.backend(), "flags": flags, "versions": versions()}
        files.write_json(self.path("run.json"), {**record, "given": self.given})

    def report_names(self) -> str:
        """Returns the names of the reports in the folder, for a message."""
        from keras_spanbert.runs import reports

        return ", ".join(name for name in reports.FILES if os.path.exists(self.path(name)))


def output_folder() -> str:
    """Returns the folder to write to: --output, or a new one in saved_models/."""
    if FLAGS.output:
        return FLAGS.output
    base = os.path.join("saved_models", FLAGS.task)
    folder, i = base, 1
    while os.path.exists(folder):
        i += 1
        folder = f"{base}-{i}"
    return folder


def reserve_output_folder() -> str:
    """Returns the folder to write to. Creates a default folder, so that no other run takes it."""
    while writes_reports() and not FLAGS.output:
        folder = output_folder()
        with contextlib.suppress(FileExistsError):  # Another run has just created it.
            os.makedirs(folder)
            _CLEANUPS.append(functools.partial(_remove_if_empty, folder))
            return folder
    return output_folder()


def _remove_if_empty(folder):
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def writes_reports() -> bool:
    """Returns whether the run writes reports: it trains, evaluates, or has --output."""
    return bool(find_recipe(FLAGS.task).run or FLAGS.train_data or FLAGS.eval_data or FLAGS.output)


def clean_up_folders() -> None:
    """Removes empty folders and local copies of stores, which `os._exit` would leave behind."""
    while _CLEANUPS:
        _CLEANUPS.pop()()


# === --resume: continues a run with the flags that it was started with ===
def identity() -> dict:
    """Returns the values that must not change when a run is resumed."""
    fixed = [flag for flag in own_flags() if flag.name not in CHANGEABLE_FLAGS]
    return {f"--{flag.name}": flag.value for flag in fixed}


def recorded_run() -> dict:
    """Returns the contents of `run.json` in --output, or {} without --resume or the file."""
    path = stores.join(FLAGS.output or "", "run.json")
    return files.read_json(path) if FLAGS.resume and stores.kind(path) == "file" else {}


def preset_warnings() -> contextlib.AbstractContextManager:
    """Context manager for loading --preset. It suppresses warnings if a checkpoint follows."""
    from keras_spanbert.checkpoints.convert import suppress_warnings

    # The checkpoint replaces the weights, and the run has logged the warnings at its start.
    return suppress_warnings() if has_checkpoint() else contextlib.nullcontext()


def has_checkpoint() -> bool:
    """Returns whether --resume continues from a checkpoint."""
    if not FLAGS.resume:
        return False
    names = stores.entries(stores.join(FLAGS.output, "checkpoints"))
    return any(name.startswith("step-") for name in names)


def new_run_hint(output: str) -> str:
    """Returns advice for a run that cannot be resumed in the requested way."""
    if stores.kind(stores.join(output, "config.json")):
        return f"to train its model further, start a new run with --preset={shlex.quote(output)}"
    return "to change it, start a new run in another --output"


def restore_flags() -> None:
    """With --resume, sets the flags that are not given to the values of the resumed run."""
    if not FLAGS.resume:
        return
    if not FLAGS.output:
        raise ValueError("`--resume` needs --output, the folder of the run. Received: no --output")
    run = recorded_run()
    if not run and set(given()) <= {"output"}:
        raise ValueError(
            "`--resume` needs a run in --output, or flags to start one with, such as "
            f"--train_data. Received: --resume --output={FLAGS.output}, which has no run"
        )
    unknown = sorted({*run.get("given", ()), *run.get("flags", ())} - set(FLAGS))
    if run and (unknown or "given" not in run):
        raise ValueError(
            f"`--resume` needs a run of this version. Received: {FLAGS.output}, of version "
            f"{run.get('versions', {}).get('keras-spanbert', 'unknown')}"
            + (f", with former flags {', '.join(unknown)}" if unknown else "")
        )
    for name, value in run.get("flags", {}).items():
        if FLAGS[name].present:
            # Compare the given value and the used one: a run may lower a number that is too large.
            is_same = FLAGS[name].value in [run["given"].get(name, value), value]
            if not is_same and name not in CHANGEABLE_FLAGS:
                raise ValueError(
                    f"A resumed run keeps its flags; {new_run_hint(FLAGS.output)}. Received: "
                    f"--{name}={FLAGS[name].value!r} with --resume --output={FLAGS.output}, where "
                    f"it is {value!r}"
                )
            continue
        if name in run["given"]:
            set_flags(**{name: run["given"][name]})
            FLAGS[name].present = 1
        elif name not in CHANGEABLE_FLAGS:
            set_flags(**{name: value})
