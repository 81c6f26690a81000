"""Where a run writes. All of it is checked before anything is read or a backend is loaded."""

import fnmatch
import glob
import os
import pathlib

from keras_spanbert import files, stores
from keras_spanbert.recipes.checks import INPUTS
from keras_spanbert.recipes.flags import FLAGS


def output() -> str:
    """The folder to write to: --output, or a new one in saved_models/."""
    if FLAGS.output:
        return FLAGS.output
    base = os.path.join("saved_models", FLAGS.task)
    folder, i = base, 1
    while os.path.exists(folder):
        i += 1
        folder = f"{base}-{i}"
    return folder


def check() -> None:
    """Raises a ValueError where a run could not write, or would overwrite what is not its own."""
    _check_folder("output", output())
    if FLAGS.output:
        _check_output()
    if FLAGS.export:
        _check_folder("export", FLAGS.export)
        if _real(FLAGS.export) in [_real(FLAGS.output), _real(FLAGS.preset)]:
            raise ValueError(
                "`--export` must be a folder of its own. Received: "
                f"--export={FLAGS.export} --output={FLAGS.output} --preset={FLAGS.preset}"
            )
    if FLAGS.predictions:
        check_file("predictions")


def _real(path):
    return path and os.path.realpath(path)


def _check_folder(flag, path):
    """Checks that a folder can be made or written, and is not among a run's inputs."""
    files.check_writable(path, f"`--{flag}`")
    _check_outside_of_inputs(flag, path, is_folder=True)


def _check_output():
    """Checks that --output does not hold anything yet but a run to resume."""
    names = stores.entries(FLAGS.output)
    # A run may have been killed before it wrote what it is; of several processes, the first
    # one may be writing already.
    is_run = "run.json" in names or names == ["checkpoints"]
    if names and not (FLAGS.resume and is_run):
        raise ValueError(
            f"`--output` must be new or empty, or a run to --resume. Received: {FLAGS.output}"
        )


def check_file(flag: str, *others: str) -> None:
    """Raises a ValueError where a flag does not name a new file that can be written.

    Args:
        flag: string.
        *others: files that are written with it.
    """
    path = FLAGS[flag].value
    folder = os.path.dirname(os.path.abspath(path))
    # Names in there are the run's, some of which are only known when they are written.
    if _real(output()) in [_real(folder), *map(str, pathlib.Path(_real(folder)).parents)]:
        raise ValueError(
            f"`--{flag}` must be outside of --output. Received: "
            f"--{flag}={path} --output={FLAGS.output}"
        )
    for written in [path, *others]:
        if stores.exists(written) if stores.is_store(written) else os.path.lexists(written):
            none = f", or none by --predict_data= --{flag}=" if FLAGS.resume else ""
            raise ValueError(
                f"`--{flag}` must be a new file: name another one{none}. Received: "
                f"--{flag}={path}, where {written} exists"
            )
    if stores.is_store(path):
        folder = path.rpartition("/")[0]
    if not os.path.basename(path) or not (stores.is_store(path) or os.path.isdir(folder)):
        raise ValueError(f"`--{flag}` must be a file in a folder that exists. Received: {path}")
    files.check_writable(folder, f"The folder of `--{flag}`")
    _check_outside_of_inputs(flag, path, is_folder=False)


# === Globs ===
def _check_outside_of_inputs(flag, path, is_folder):
    """Checks that the globs of the inputs, read again, would not find what is written."""
    for name in INPUTS:
        for pattern in FLAGS[name].value or []:
            if glob.has_magic(pattern) and _finds(pattern, path, is_folder):
                raise ValueError(
                    f"`--{flag}` must be where --{name} finds nothing. Received: "
                    f"--{flag}={path} --{name}={pattern}"
                )


def _finds(pattern, path, is_folder):
    """Whether a glob may find a file, or a folder, one above it or something in it."""
    parts, names = (pathlib.Path(os.path.abspath(p)).parts for p in [pattern, path])
    for part, name in zip(parts, names):
        if part == "**":
            return is_folder or fnmatch.fnmatch(names[-1], parts[-1])
        if not fnmatch.fnmatch(name, part):
            return False
    return is_folder or len(parts) == len(names)
