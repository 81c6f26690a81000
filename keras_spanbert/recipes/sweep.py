"""`--num_seeds` and `--grid`: fine-tunes several times, each run in a process of its own.

A crash or a memory leak in one run does not affect the others, and each run has
an ordinary run folder. This process loads no backend, so that each run has all
the memory of an accelerator.
"""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys

from keras_spanbert import files, stores
from keras_spanbert.recipes import checks, flags, grid, sweep_results
from keras_spanbert.recipes.flags import FLAGS
from keras_spanbert.recipes.resume import recorded_run
from keras_spanbert.recipes.terminal import PROGRAM, exit_on_user_error, log, stop_on_signals
from keras_spanbert.runs.versions import versions

# Flags that differ between the runs.
_PER_RUN_FLAGS = ["grid", "output", "resume", "seed", "num_seeds"]
# Flags that apply only to the best run.
_BEST_RUN_FLAGS = ["export", "predict_data", "predictions"]
# Flags of libraries that are passed to the runs.
_LIBRARY_FLAGS = ["verbosity", "stderrthreshold"]
# Environment variables of launchers that start a run in several processes.
_PROCESS_COUNTS = ["WORLD_SIZE", "KERAS_DISTRIBUTION_NUM_PROCESSES"]
_COMMAND = (
    "import sys; sys.argv[0] = {program!r}; import keras_spanbert_commands; "
    "keras_spanbert_commands.train()"
)


def is_requested() -> bool:
    """Returns whether the flags ask for several runs."""
    return bool(FLAGS.num_seeds or FLAGS.grid)


def members() -> dict[str, dict[str, str]]:
    """Returns the runs that the flags ask for, in order.

    Returns:
        dict from the folder of each run in --output to its values of --grid and --seed, as
        text by flag.
    """
    seeds = range(FLAGS.seed, FLAGS.seed + (FLAGS.num_seeds or 1))
    return {
        os.path.join("_".join(f"{n}-{text}" for n, text in values.items()), f"seed-{seed}"): {
            **values,
            "seed": str(seed),
        }
        for values in grid.combinations()
        for seed in seeds
    }


def check() -> None:
    """Checks the flags of the sweep and of each run. Raises `ValueError` if one is wrong."""
    if not is_requested():
        return
    needs = received = None
    recorded = recorded_run()
    processes = [name for name in _PROCESS_COUNTS if int(os.environ.get(name) or 1) > 1]
    if not (FLAGS.train_data and FLAGS.eval_data):
        needs = "--train_data, and --eval_data to compare the runs"
        received = checks.format_flags("train_data", "eval_data")
    elif processes:
        needs = "a single process, which starts the runs"
        received = f"{processes[0]}={os.environ[processes[0]]}"
    elif FLAGS.output and stores.is_store(FLAGS.output):
        needs, received = "an --output on a local disk", checks.format_flags("output")
    elif recorded and not ({"num_seeds", "grid"} & set(recorded["given"])):
        needs = "a new --output, or one of an earlier sweep"
        received = f"{checks.format_flags('output')}, which holds a single run"
    if needs:
        raise ValueError(f"`--num_seeds` and `--grid` need {needs}. Received: {received}")
    for values in grid.combinations():
        with grid.using(values):
            checks.check()
    with grid.using({"seed": str(FLAGS.seed + (FLAGS.num_seeds or 1) - 1)}):
        checks.check()


def run(output: str) -> None:
    """Starts the unfinished runs one after another, and logs and writes the results of all."""
    stop_on_signals("between two runs")
    all_members = members()
    with exit_on_user_error():
        os.makedirs(output, exist_ok=True)
        lock = files.lock(output)
        record = {"flags": flags.values(), "versions": versions(), "given": flags.given()}
        files.write_json(os.path.join(output, "run.json"), record)
    with contextlib.ExitStack() as stack:
        stack.callback(lock.release)
        failures = _run_all(output, all_members)
        found = sweep_results.write(output, all_members)
        if found:
            sweep_results.show(output, found)
            if FLAGS.predict_data or FLAGS.export:
                failures |= _use_best(output, found)
            names = [n for n in sweep_results.FILES if os.path.exists(os.path.join(output, n))]
            log(f"Wrote {', '.join(names)} and a folder for each run to {output}")
    if failures:
        names = ", ".join(f"{name} (exit code {code})" for name, code in failures.items())
        print(
            f"{PROGRAM.name}: some runs failed: {names}; "
            f"--resume --output={shlex.quote(output)} runs them again",
            file=sys.stderr,
        )
        sys.exit(1)


def _run_all(output, all_members):
    """Runs the unfinished members. Returns the exit codes of failed runs by their folders."""
    left = [name for name in all_members if not sweep_results.read_metrics(output, name)]
    is_first = len(left) == len(all_members)
    if not is_first:
        log(f"Finished before: {len(all_members) - len(left)} of {len(all_members)} runs")
    failures = {}
    for name in left:
        own = [f"--{flag}={text}" for flag, text in all_members[name].items()]
        place = f"{list(all_members).index(name) + 1} of {len(all_members)}"
        log(f"\nRun {place}: {' '.join(own)}")
        folder = os.path.join(output, name)
        has_begun = os.path.isdir(folder) and bool(os.listdir(folder))
        shared = _shared_flags([*_PER_RUN_FLAGS, *_BEST_RUN_FLAGS, *all_members[name]])
        resume = ["--resume"] if has_begun else []
        code, interrupted_by = start_run([*shared, *own, f"--output={folder}", *resume])
        if interrupted_by:
            log(f"Interrupted in run {place}; --resume --output={shlex.quote(output)} continues")
            sys.exit(128 + interrupted_by)
        if is_first and 0 < code < 128 and not os.path.exists(folder):
            _exit_before_first_run(output, code)
        is_first = False
        if code:
            failures[name] = code
        else:
            sweep_results.write(output, all_members)
    log()
    return failures


def _use_best(output, found):
    """Predicts and exports with the best model. Returns the exit code if that failed."""
    folder = os.path.join(output, "best")
    shutil.rmtree(folder, ignore_errors=True)  # From before the sweep was resumed.
    own = ["train_data", "eval_data", "preset", *_PER_RUN_FLAGS, *grid.combinations()[0]]
    arguments = [f"--preset={os.path.join(output, found['best']['folder'])}", f"--output={folder}"]
    log(f"Predicting and exporting with {found['best']['folder']}")
    code, interrupted_by = start_run([*_shared_flags(own), *arguments])
    if interrupted_by:
        sys.exit(128 + interrupted_by)
    return {"best": code} if code else {}


def _shared_flags(but):
    """Returns the flags that the user gave, as typed, except those in `but`.

    Flags that have no effect without those in `but` are left out too.
    """
    given = [flag for flag in flags.own_flags() if flag.present]
    given += [FLAGS[name] for name in _LIBRARY_FLAGS if FLAGS[name].present]
    with flags.turned_off(but):
        unused = {name for name, _ in checks.unused_flags()}
    return [
        flag.serialize()
        for flag in given
        if flag.name not in {*but, *unused} and flag.value is not None
    ]


def _exit_before_first_run(output, code):
    """Ends the program if the first run could not start. That run has logged the reason."""
    with contextlib.suppress(OSError):
        for name in ["run.json", ".lock"]:
            os.remove(os.path.join(output, name))
        os.rmdir(output)
    sys.exit(code)


def start_run(arguments: list[str]) -> tuple[int, int | None]:
    """Runs train.py in another process, and forwards Ctrl-C, SIGTERM and SIGHUP to it.

    Returns:
        The exit code, and the number of the signal that was received or `None`.
    """
    received, process = None, None

    def forward(number, frame):
        nonlocal received
        received = number
        if process:
            process.send_signal(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)

    # The run must find the same packages as this process.
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    command = [sys.executable, "-P", "-c", _COMMAND.format(program=PROGRAM.name), *arguments]
    numbers = [signal.SIGINT, signal.SIGTERM]
    # `nohup` makes processes ignore SIGHUP.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        numbers.append(signal.SIGHUP)
    handlers = {number: signal.signal(number, forward) for number in numbers}
    try:
        # In its own session, a run gets each signal once: from this process, not the terminal.
        environment = {**os.environ, "PYTHONPATH": path}
        with subprocess.Popen(command, env=environment, start_new_session=True) as process:
            if received:
                forward(received, None)
            return process.wait(), received
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
