"""Trains each row of a plan with several seeds: `python benchmarks/compare.py PLAN FOLDER`.

A plan is a JSON file. `train` lists the flags of train.py that all runs share, and `rows` the flags
that each row adds:

    {"train": ["--task=classification", "--preset=encoder", "--train_data=train.csv",
               "--eval_data=dev.csv"],
     "rows": {"2e-5": ["--learning_rate=2e-5"], "1e-4": ["--learning_rate=1e-4"]}}

Without `rows`, the seeds are the only difference. `test` can list the flags of a test of each
trained model. Its score is then reported instead of the score of the best epoch.

The rows of a plan with `pretrain` are pretrained, and each model is fine-tuned in one or more ways.
A row that is null uses the model `start` without further pretraining:

    {"start": "encoder",
     "pretrain": ["--preset=encoder", "--train_data=novels/*.txt", "--steps=1000"],
     "rows": {"no pretraining": null, "MLM + SBO": [], "MLM": ["--objectives=mlm"]},
     "fine_tunings": {"entities": {"train": ["--task=token_classification", ...], "test": [...]}}}

Environment variables in flags are expanded. The script can stop at any moment, and the same command
resumes it. Several processes on several GPUs or hosts can share FOLDER: each run is protected by a
file lock. Writes comparison.csv into FOLDER: for each row and score the mean over seeds and the
mean difference from the first row, paired by seed, both with 95% intervals by Student's t.
"""

import argparse
import collections
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np
from absl.testing import flagsaver
from scipy import stats

from keras_spanbert import files
from keras_spanbert.recipes.run import check_flags, define_flags, parse_flags
from keras_spanbert.runs.checkpoint_folder import lock

TRAIN = pathlib.Path(__file__).resolve().parent.parent / "train.py"
KEYS = {"about", "train", "test", "start", "pretrain", "rows", "fine_tunings"}
SCORES_OF_PRETRAINING = {
    "mlm_cross_entropy": "held-out MLM",
    "sbo_cross_entropy": "held-out SBO",
    "nsp_cross_entropy": "held-out NSP",
}
# The score of a test, if the training named none.
SCORES_OF_TESTS = ["average_f1", "macro_f1", "f1", "accuracy"]
WAIT_SECONDS = 5  # Until it looks again for a run that another process may have finished.


@dataclasses.dataclass(frozen=True)
class Stage:
    """A run of train.py."""

    row: str
    seed: int
    name: str  # "pretrain", the name of a fine-tuning, or this name and " test".
    flags: tuple
    needs: "Stage" = None  # It must finish first.

    @property
    def path(self) -> str:
        return os.path.join(self.row.replace(os.sep, "-"), f"seed-{self.seed}", self.name)

    @property
    def is_test(self) -> bool:
        return self.name.endswith(" test")


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plan", metavar="PLAN", help="JSON file with flags")
    parser.add_argument("folder", metavar="FOLDER", help="new, empty, or with runs of this plan")
    parser.add_argument("--num_seeds", type=int, default=3, help="number of seeds (default: 3)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--rows", nargs="+", help="names of the rows to run (default: all)")
    parser.add_argument("--fine_tunings", nargs="*", help="names of those to run (default: all)")
    parser.add_argument("--show", action="store_true", help="only show finished runs")
    args = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        stages = read_plan(args)
        failed = set() if args.show else run_all(stages, args.folder, args.minutes)
    except (ValueError, OSError) as error:
        sys.exit(f"compare.py: {error}")
    except KeyboardInterrupt:
        sys.exit("Interrupted; run the same command to resume")
    report(stages, args.folder)
    if failed:
        sys.exit(f"Failed: {', '.join(sorted(stage.path for stage in failed))}")
    left = sum(not read_metrics(args.folder, stage) for stage in stages)
    if left and not args.show:
        print(f"{left} of {len(stages)} runs are left; run the same command to resume")


# === Plan ===
def read_plan(args) -> list[Stage]:
    """Returns the runs of a plan. Checks their flags, and that the folder has no other plan."""
    plan, path = files.read_json(args.plan), os.path.join(args.folder, "plan.json")
    if not set(plan) <= KEYS or not {"train", "rows"} & set(plan):
        raise ValueError(f"A plan must have `train` or `rows`, and only keys in {sorted(KEYS)}")
    if os.path.exists(path) and files.read_json(path) != plan:
        raise ValueError(f"A folder must have one plan. Received: another plan than {path}")
    if not os.path.exists(path) and os.path.isdir(args.folder) and os.listdir(args.folder):
        raise ValueError(f"The folder must be new, empty, or that of a plan: {args.folder}")
    stages = plan_stages(plan, args.num_seeds, args.folder)
    if args.rows:
        stages = [stage for stage in stages if stage.row in args.rows]
    if args.fine_tunings is not None:
        names = {"pretrain", *args.fine_tunings}
        stages = [stage for stage in stages if stage.name.removesuffix(" test") in names]
    if not stages:
        raise ValueError("The plan has no such rows or fine-tunings")
    define_flags()  # `flagsaver` would remove flags that it did not find at first.
    for stage in stages if not args.show else []:
        if stage.seed == 0 and not read_metrics(args.folder, stage):
            check_stage(stage, args.folder)
    os.makedirs(args.folder, exist_ok=True)
    files.write_json(path, plan)
    return stages


def plan_stages(plan: dict, num_seeds: int, folder: str) -> list[Stage]:
    """Returns the runs of a plan, seed by seed, so that each finished seed completes its pairs."""
    fine_tunings = plan.get("fine_tunings", {})
    if "train" in plan:
        fine_tunings = {"train": {name: plan[name] for name in ("train", "test") if name in plan}}
    stages = []
    for seed in range(num_seeds):
        for row, flags in plan.get("rows", {"all": []}).items():
            needs, start = None, plan.get("start")
            if "train" not in plan and flags is not None:
                needs = Stage(row, seed, "pretrain", ("--task=pretrain", *plan["pretrain"], *flags))
                start = os.path.join(folder, needs.path)
                stages.append(needs)
            preset = [f"--preset={start}"] if start else []
            own = flags if "train" in plan else []
            for name, runs in fine_tunings.items():
                train = Stage(row, seed, name, (*preset, *runs["train"], *own), needs)
                stages.append(train)
                if "test" in runs:
                    test = f"--preset={os.path.join(folder, train.path)}", *runs["test"]
                    stages.append(Stage(row, seed, f"{name} test", test, train))
    return stages


def check_stage(stage: Stage, folder: str) -> None:
    """Raises a `ValueError` if a flag of a run is wrong or has a variable that is not set."""
    flags = [os.path.expandvars(flag) for flag in stage.flags]
    if missing := re.search(r"\$(\w+|{\w+})", " ".join(flags)):
        raise ValueError(f"Variables of a plan must be set. Received: {missing[0]}")
    if stage.needs:
        flags[0] = "--preset=."  # The preset of a run that has not begun.
    try:
        with flagsaver.flagsaver():
            output = os.path.join(folder, "unused")
            check_flags(parse_flags(["compare.py", *flags, f"--output={output}"]))
    except ValueError as error:
        raise ValueError(f"{stage.path}: {error}") from None


# === Runs ===
def read_metrics(folder: str, stage: Stage) -> dict | None:
    """Returns the content of metrics.json, or `None` if the run is not finished."""
    try:
        metrics = files.read_json(os.path.join(folder, stage.path, "metrics.json"))
    except OSError:
        return None
    return None if metrics.get("interrupted") else metrics


def run_all(stages, folder, minutes) -> set:
    """Runs the stages that are left and not locked by other processes. Returns the failed ones."""
    ends, failed = time.monotonic() + 60 * minutes, set()
    while time.monotonic() < ends:
        left = [s for s in stages if s not in failed and not read_metrics(folder, s)]
        left = [s for s in left if s.needs not in failed or failed.add(s)]
        if not left:
            break
        ready = (s for s in left if s.needs is None or read_metrics(folder, s.needs))
        stage, lock = next(((s, lock) for s in ready if (lock := claim(folder, s))), (None, None))
        if stage is None:
            time.sleep(WAIT_SECONDS)
            continue
        try:
            # Another process may have finished it before this one got the lock.
            if not read_metrics(folder, stage) and not run(folder, stage, ends):
                if time.monotonic() < ends:
                    failed.add(stage)
        finally:
            lock.release()
    return failed


def claim(folder, stage):
    """Returns the lock of a stage, or `None` if another process holds it."""
    place, output = (os.path.join(folder, *part, stage.path) for part in [(".claims",), ()])
    os.makedirs(place, exist_ok=True)
    try:
        claimed = lock(place)
        if os.path.isdir(output):  # A run may outlive the process that started it.
            lock(output).release()
        return claimed
    except ValueError:
        return None


def run(folder, stage, ends) -> bool:
    """Runs or resumes a stage, at most until `ends`. Returns whether it finished."""
    output = os.path.join(folder, stage.path)
    command = [sys.executable, str(TRAIN), *map(os.path.expandvars, stage.flags)]
    command.append(f"--output={output}")
    if not stage.is_test:  # Evaluation draws nothing at random.
        command.append(f"--seed={stage.seed}")
    if os.path.isdir(output) and os.listdir(output):
        command.append("--resume")
    log = os.path.join(folder, ".claims", stage.path, "log.txt")
    print(f"{time.strftime('%H:%M')} {stage.path} (log: {log})", flush=True)
    with open(log, "a", encoding="utf-8") as file:
        # In its own session, a run gets Ctrl-C once: from this process, not the terminal.
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        with process:
            try:
                process.wait(None if ends == float("inf") else max(0.0, ends - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGTERM)  # It saves a checkpoint.
            except KeyboardInterrupt:
                process.send_signal(signal.SIGTERM)
                raise
            code = process.wait()
    if code not in (0, 128 + signal.SIGTERM):
        with open(log, encoding="utf-8") as file:
            last_lines = collections.deque(file, 5)
        print(f"{stage.path} ended with exit code {code}:\n{''.join(last_lines)}", file=sys.stderr)
    return code == 0


# === Table ===
def collect_scores(stages, folder) -> dict:
    """Returns the scores of finished runs as `{score: {row: {seed: value}}}`."""
    tested = {stage.needs for stage in stages if stage.is_test}
    found = {}
    for stage in stages:
        metrics = read_metrics(folder, stage)
        if metrics is None or stage in tested:
            continue
        names = {n: label for n, label in SCORES_OF_PRETRAINING.items() if metrics.get(n)}
        if not names:
            trained = read_metrics(folder, stage.needs) if stage.is_test else metrics
            known = [trained["best_score"]] if "best_score" in trained else SCORES_OF_TESTS
            score = next((name for name in known if name in metrics), None)
            names = {score: f"{stage.name.removesuffix(' test')} {score}"} if score else {}
        for name, label in names.items():
            label = label.removeprefix("train ")  # The only fine-tuning has no name of its own.
            found.setdefault(label, {}).setdefault(stage.row, {})[stage.seed] = metrics[name]
    return found


def interval(values) -> tuple[float, float | None]:
    """Returns the mean and half the width of its 95% interval (`None` for a single value)."""
    if len(values) < 2:
        return float(np.mean(values)), None
    return float(np.mean(values)), float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))


def report(stages, folder) -> None:
    """Writes and prints the table, and prints the best run of each score."""
    rows, table = list(dict.fromkeys(stage.row for stage in stages)), []
    for score, by_row in collect_scores(stages, folder).items():
        base = by_row.get(rows[0], {})
        for row, values in by_row.items():
            line = {"score": score, "row": row, "seeds": len(values)}
            line["mean"], line["width"] = interval([*values.values()])
            pairs = [value - base[seed] for seed, value in values.items() if seed in base]
            is_compared = row != rows[0] and pairs
            difference = interval(pairs) if is_compared else (None, None)
            line["difference"], line["difference_width"] = difference
            table.append(line)
            mean = f"{line['mean']:.2f}"
            print(
                f"| {score} | {row} | {len(values)} | {plus_minus(mean, line['width'])} |", end=""
            )
            print(f" {plus_minus(f'{difference[0]:+.2f}', difference[1])} |" if is_compared else "")
        if score not in SCORES_OF_PRETRAINING.values():  # Lower losses are better.
            row = max(by_row, key=lambda row: np.mean([*by_row[row].values()]))
            seed = max(by_row[row], key=by_row[row].get)
            print(f"Best mean {score}: {row}. Its best run: seed {seed}, {by_row[row][seed]:.2f}")
    if table:
        files.write_csv(os.path.join(folder, "comparison.csv"), table)


def plus_minus(mean: str, width) -> str:
    return mean if width is None else f"{mean} ± {width:.2f}"


if __name__ == "__main__":
    main()
