"""`--seeds` and `--grid`: the same fine-tuning several times, each run a process of its own.

What one run crashes of, or leaves in memory, is no matter to the others, and each
run's folder is that of any run. This process loads no backend: the memory of an
accelerator is the run's.
"""

import contextlib
import dataclasses
import os
import shlex
import shutil
import sys
import time

from keras_spanbert import files, stores
from keras_spanbert.recipes import checks, flags, grid, sweep_results
from keras_spanbert.recipes.flags import FLAGS
from keras_spanbert.recipes.processes import PassedSignals, start_run
from keras_spanbert.recipes.resume import recorded_run
from keras_spanbert.recipes.terminal import PROGRAM, log, shown_duration, user_input
from keras_spanbert.runs.versions import versions

# Tells the first run how many there are, and how many times its work they all take.
SHARE = "KERAS_SPANBERT_SWEEP"
# What each run has a value of its own for.
_OWN = ["grid", "output", "resume", "seed", "seeds"]
# What is done with the best run alone.
_OF_BEST = ["export", "html", "predict_data", "predictions"]
# Of libraries' flags, those that a run is given too.
_LIBRARY_FLAGS = ["verbosity", "stderrthreshold"]
# Variables of launchers that start a run in several processes.
_PROCESS_COUNTS = ["WORLD_SIZE", "KERAS_DISTRIBUTION_NUM_PROCESSES"]


@dataclasses.dataclass(frozen=True)
class Member:
    """A run of a sweep.

    Attributes:
        values: dict of flag to value as text, what --grid gives it.
        seed: int.
        name: string, its folder's path in --output.
    """

    values: dict[str, str]
    seed: int

    @property
    def combination(self) -> str:
        """The folder of the runs with the same values, `""` without --grid."""
        return "_".join(f"{name}-{text}" for name, text in self.values.items())

    @property
    def name(self) -> str:
        return os.path.join(self.combination, f"seed-{self.seed}")

    @property
    def flags(self) -> list[str]:
        """What it is run with, beside what all are."""
        return [f"--{name}={text}" for name, text in self.values.items()] + [f"--seed={self.seed}"]

    def work(self) -> float:
        """How much it computes, beside others of the sweep."""
        steps, epochs, batch_size, length = (
            float(self.values.get(name, FLAGS[name].value or 0.0))
            for name in ["steps", "epochs", "batch_size", "sequence_length"]
        )
        return (epochs or steps * batch_size or 1.0) * (length or 1.0)


def is_asked() -> bool:
    """Whether the flags ask for several runs."""
    return bool(FLAGS.seeds or FLAGS.grid)


def members() -> list[Member]:
    """The runs that the flags ask for, in their order."""
    seeds = range(FLAGS.seed, FLAGS.seed + (FLAGS.seeds or 1))
    return [Member(values, seed) for values in grid.combinations() for seed in seeds]


def check(check_task) -> None:
    """Raises a ValueError where the flags are no several runs, or one of these would be wrong.

    Args:
        check_task: function that does so for the flags of one run of the task.
    """
    if not is_asked():
        return
    if not (FLAGS.train_data and FLAGS.eval_data):
        raise ValueError(
            "`--seeds` and `--grid` take --train_data, and --eval_data to compare runs on. "
            f"Received: {checks.shown('train_data', 'eval_data')}"
        )
    for name in _PROCESS_COUNTS:
        if int(os.environ.get(name) or 1) > 1:
            raise ValueError(
                "`--seeds` and `--grid` take one process, which starts the runs. Received: "
                f"{name}={os.environ[name]}"
            )
    if FLAGS.output and stores.is_store(FLAGS.output):
        raise ValueError(
            "`--seeds` and `--grid` take an --output on a local disk. Received: "
            f"--output={FLAGS.output}"
        )
    recorded = recorded_run()
    if recorded and not ({"seeds", "grid"} & set(recorded["given"])):
        raise ValueError(
            "`--seeds` and `--grid` take a new --output, or that of such runs. Received: "
            f"--output={FLAGS.output}, which is one run"
        )

    def check_run():
        checks.check()
        check_task()

    grid.check(check_run)
    with grid.using({"seed": str(members()[-1].seed)}):
        checks.check()


def run(output: str) -> None:
    """Starts the runs one after another, and tells what they gave."""
    all_members = members()
    with user_input():
        os.makedirs(output, exist_ok=True)
        lock = files.lock(output)
        record = {"flags": flags.values(), "versions": versions(), "given": flags.given()}
        files.write_json(os.path.join(output, "run.json"), record)
    with contextlib.ExitStack() as stack, PassedSignals() as signals:
        stack.callback(lock.release)
        failures = _run_all(output, all_members, signals)
        found = sweep_results.write(output, all_members)
        if found:
            sweep_results.show(output, found, len(all_members))
            if FLAGS.predict_data or FLAGS.export:
                failures |= _use_best(output, found, signals)
            log(f"Wrote {sweep_results.written(output)} to {output}")
    if failures:
        told = ", ".join(f"{name} (exit code {code})" for name, code in failures.items())
        print(
            f"{PROGRAM.name}: not all runs ended well: {told}; "
            f"--resume --output={shlex.quote(output)} tries them again",
            file=sys.stderr,
        )
        sys.exit(1)


def _run_all(output, all_members, signals):
    """Runs what is not finished yet; returns the exit codes of runs that failed, by their names."""
    left = [member for member in all_members if not sweep_results.metrics_of(output, member.name)]
    if len(left) < len(all_members):
        log(f"{len(all_members) - len(left)} of {len(all_members)} runs are finished")
    failures, seconds, done = {}, 0.0, 0.0
    for i, member in enumerate(left):
        work = sum(other.work() for other in left[i:])
        time_left = f", about {shown_duration(seconds / done * work)} left" if done else ""
        number = all_members.index(member) + 1
        log(f"\nRun {number} of {len(all_members)}: {' '.join(member.flags)}{time_left}")
        share = {} if i else {SHARE: f"{len(left)} {work / member.work()}"}
        folder = os.path.join(output, member.name)
        has_begun = os.path.isdir(folder) and bool(os.listdir(folder))
        arguments = [*member.flags, f"--output={folder}", *(["--resume"] if has_begun else [])]
        started = time.monotonic()
        shared = _shared_flags([*_OWN, *_OF_BEST, *member.values])
        code = start_run([*shared, *arguments], signals, share)
        if signals.number:
            _end_interrupted(output, number, len(all_members), signals.number)
        if code:
            is_mistake = 0 < code < 128 and not os.path.exists(folder)
            if is_mistake and i == 0 and len(left) == len(all_members):
                _end_unbegun(output, code)
            failures[member.name] = code
            continue
        seconds, done = seconds + time.monotonic() - started, done + member.work()
        sweep_results.write(output, all_members)
    log()
    return failures


def _use_best(output, found, signals):
    """Has the best run's model predict and be exported; returns the exit code where it failed."""
    folder = os.path.join(output, "best")
    shutil.rmtree(folder, ignore_errors=True)  # Of the sweep before it went on.
    own = ["train_data", "eval_data", "preset", *_OWN, *grid.combinations()[0]]
    arguments = [f"--preset={os.path.join(output, found['best']['folder'])}", f"--output={folder}"]
    log(f"Predictions and exports are of {found['best']['folder']}")
    code = start_run([*_shared_flags(own), *arguments], signals, {})
    if signals.number:
        sys.exit(128 + signals.number)
    return {"best": code} if code else {}


def _shared_flags(but):
    """The flags that the user gave, as they would be written, but for some."""
    given = [flag for flag in flags.own_flags() if flag.present]
    given += [FLAGS[name] for name in _LIBRARY_FLAGS if FLAGS[name].present]
    return [f.serialize() for f in given if f.name not in but and f.value is not None]


def _end_interrupted(output, number, count, signal_number):
    """Ends where a run was interrupted."""
    log(f"Interrupted in run {number} of {count}; --resume --output={shlex.quote(output)} goes on")
    sys.exit(128 + signal_number)


def _end_unbegun(output, code):
    """Ends where the first run could not begin, as no other one could; it has told why."""
    for name in ["run.json", ".lock"]:
        with contextlib.suppress(OSError):
            os.remove(os.path.join(output, name))
    with contextlib.suppress(OSError):
        os.rmdir(output)
    sys.exit(code)
