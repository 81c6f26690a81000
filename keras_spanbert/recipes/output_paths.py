"""The paths that a run writes to. They are checked before anything is read or loaded."""

import contextlib
import fnmatch
import glob
import os
import pathlib

from keras_spanbert import files, stores
from keras_spanbert.recipes.checks import INPUTS, check_value, refuse
from keras_spanbert.recipes.flags import FLAGS
from keras_spanbert.recipes.recipe import find_recipe
from keras_spanbert.recipes.run_folder import remove_at_exit_if_empty


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
        with contextlib.suppress(FileExistsError):  # Another run has just created it.
            folder = output_folder()
            os.makedirs(folder)
            remove_at_exit_if_empty(folder)
            return folder
    return output_folder()


def writes_reports() -> bool:
    """Returns whether the run writes reports: it trains, evaluates, or has --output."""
    return bool(find_recipe(FLAGS.task).run or FLAGS.train_data or FLAGS.eval_data or FLAGS.output)


def check() -> None:
    """Raises `ValueError` if the run cannot write to a path or would overwrite other files."""
    output = output_folder() if writes_reports() else None
    if output:
        _check_folder("output", output)
    if FLAGS.output:
        names = stores.entries(FLAGS.output)
        # A run may have been killed before it wrote `run.json`. With several processes, the first
        # one may be writing already.
        complete = [name for name in names if not name.endswith(files.PARTIAL)]
        is_run = "run.json" in names or complete == ["checkpoints"]
        if names and not (FLAGS.resume and is_run):
            refuse("`--output` must be new or empty, or hold a run to --resume", "output")
    if FLAGS.export:
        _check_folder("export", FLAGS.export)
        if _realpath(FLAGS.export) in [_realpath(output), _realpath(FLAGS.preset)]:
            refuse("`--export` must be a folder of its own", "export", "output", "preset")
        if "config.json" in stores.entries(FLAGS.export):
            refuse("`--export` must not be the folder of a preset", "export")
    if FLAGS.predictions:
        check_file("predictions")
        extensions = find_recipe(FLAGS.task).endings()
        rule = f"a file that ends in {', '.join(extensions)}"
        check_value("predictions", FLAGS.predictions.lower().endswith(extensions), rule)


def _realpath(path):
    return path and os.path.realpath(path)


def _check_folder(flag, path):
    """Checks that a folder can be created or written, and is not an input of the run."""
    files.check_writable(path, f"`--{flag}`")
    _check_outside_of_inputs(flag, path, is_folder=True)


def check_file(flag: str, *others: str) -> None:
    """Raises `ValueError` if a flag does not name a new file that can be written.

    `others` are paths of files that are written with it.
    """
    path = FLAGS[flag].value
    folder = os.path.dirname(path) or os.curdir
    # The run chooses its own file names in there, some of them only while it runs.
    real_folder = pathlib.Path(_realpath(folder))
    if _realpath(output_folder()) in map(str, [real_folder, *real_folder.parents]):
        refuse(f"`--{flag}` must be outside --output", flag, "output")
    for written in [path, *others]:
        # A link to a new file is written through.
        if stores.kind(_realpath(written) if os.path.islink(written) else written):
            none = f", or turn it off with --predict_data= --{flag}=" if FLAGS.resume else ""
            mistake = f"`--{flag}` must be a new file. Choose another name{none}"
            refuse(mistake, flag, more=f", where {written} exists")
    is_right = os.path.basename(path) and (stores.is_store(path) or os.path.isdir(folder))
    check_value(flag, is_right, "a file in an existing folder")
    files.check_writable(folder, f"The folder of `--{flag}`")
    _check_outside_of_inputs(flag, path, is_folder=False)


# === Globs ===
def _check_outside_of_inputs(flag, path, is_folder):
    """Checks that the globs of the inputs would not match the files that are written."""
    for name in INPUTS:
        for pattern in FLAGS[name].value or []:
            if glob.has_magic(pattern) and _can_match(stores.as_glob(pattern), path, is_folder):
                refuse(f"`--{flag}` must not match the files of --{name}", flag, name)


def _can_match(pattern, path, is_folder):
    """Returns whether a glob may match a path, one of its parents, or something in it."""
    parts, names = (pathlib.Path(os.path.abspath(p)).parts for p in [pattern, path])
    for part, name in zip(parts, names):
        if part == "**":
            return is_folder or fnmatch.fnmatch(names[-1], parts[-1])
        if not fnmatch.fnmatch(name, part):
            return False
    return is_folder or len(parts) == len(names)
