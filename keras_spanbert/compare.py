"""`spanbert-compare PLAN FOLDER`: trains each row of a plan with several seeds, and compares them.

A plan is a JSON file. `train` lists the flags of spanbert-train that all runs share, and `rows` the
flags that each row adds:

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

Environment variables in flags are expanded. Each run has its own folder and checkpoints. The
command can stop at any moment (after --minutes, on Ctrl-C or when power is lost), and the same
command resumes it. Several processes on several GPUs or hosts can share FOLDER: each run is
protected by a file lock, which the operating system releases when its process ends.

Writes comparison.csv, comparison.md and comparison.png into FOLDER. They show the mean over seeds
for each row and score, the mean difference from the first row, paired by seed, and the 95%
confidence intervals of both by Student's t. Held-out losses are measured with the masks of each
row.
"""

import argparse
import collections
import dataclasses
import os
import re
import signal
import subprocess
import sys
import time

import filelock
import numpy as np
from scipy import stats

from keras_spanbert import files
from keras_spanbert.optional import missing
from keras_spanbert.recipes.run import check_arguments

PROGRAM = "spanbert-compare"
KEYS = ["about", "train", "test", "start", "pretrain", "rows", "fine_tunings"]
SCORES_OF_PRETRAINING = {
    "mlm_cross_entropy": "held-out MLM",
    "sbo_cross_entropy": "held-out SBO",
    "nsp_cross_entropy": "held-out NSP",
}
# Scores to report for a test if the training had no evaluation data, and so did not name a score.
# The first of them that the test has is used.
SCORES_OF_TESTS = ["average_f1", "macro_f1", "f1", "accuracy"]
# Interval for checking whether another process has finished its run.
WAIT_SECONDS = 5
# Environment variables of launchers that start a run in several processes.
PROCESS_COUNTS = ["WORLD_SIZE", "KERAS_DISTRIBUTION_NUM_PROCESSES"]


@dataclasses.dataclass(frozen=True)
class Stage:
    """A run of spanbert-train."""

    row: str
    seed: int
    # "pretrain", or the name of a fine-tuning, which is "train" in a plan without pretraining. For
    # a test, the same name and " test".
    name: str
    flags: tuple
    needs: "Stage" = None  # It must finish first.

    @property
    def path(self) -> str:
        return os.path.join(self.row.replace(os.sep, "-"), f"seed-{self.seed}", self.name)

    @property
    def is_test(self) -> bool:
        return self.name.endswith(" test")


class Interrupted(KeyboardInterrupt):
    """A signal asked the program to stop. Its argument is the number of the signal."""


def _check(is_right, rule, received) -> None:
    if not is_right:
        raise ValueError(f"{rule}. Received: {received}")


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise ValueError(message)


def main(arguments=None) -> int:
    """Runs the command and returns its exit code."""

    def interrupt(number, frame):
        raise Interrupted(number)

    numbers = [signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)]
    # `nohup` makes processes ignore SIGHUP.
    handlers = {n: signal.getsignal(n) for n in numbers if signal.getsignal(n) != signal.SIG_IGN}
    try:
        for number in handlers:
            signal.signal(number, interrupt)
        return compare(arguments)
    except (ValueError, OSError) as error:
        print(f"{PROGRAM}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except Interrupted as error:
        print("Interrupted; run the same command to resume", file=sys.stderr)
        return 128 + error.args[0]
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def compare(arguments=None) -> int:
    """Runs what is left of a plan and writes the tables. Returns 1 if a run failed, else 0."""
    parser = _Parser(
        prog=PROGRAM,
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("plan", metavar="PLAN", help="JSON file with flags")
    parser.add_argument("folder", metavar="FOLDER", help="new, empty, or with runs of this plan")
    parser.add_argument("--num_seeds", type=int, default=3, help="number of seeds (default: 3)")
    parser.add_argument("--minutes", type=float, default=None, help="stop after this time")
    parser.add_argument("--rows", nargs="+", help="names of the rows to run (default: all)")
    parser.add_argument("--fine_tunings", nargs="*", help="names of those to run (default: all)")
    parser.add_argument("--show", action="store_true", help="only write tables of finished runs")
    args = parser.parse_args(arguments)
    _check(args.num_seeds >= 1, "--num_seeds must be at least 1", args.num_seeds)
    _check("://" not in args.folder, "FOLDER must be on a local disk", args.folder)
    rule = f"{PROGRAM} must be a single process, which starts the runs"
    for name in PROCESS_COUNTS:
        count = os.environ.get(name) or 1
        _check(int(count) <= 1, rule, f"{name}={count}")
    whole_plan = files.read_json(args.plan)
    check(whole_plan)
    plan = standard_form(whole_plan)
    for part in ["rows", "fine_tunings"]:
        chosen, known = getattr(args, part), plan[part]
        names = ", ".join(map(repr, sorted(known))) or "(the plan has none)"
        for name in chosen or []:
            _check(name in known, f"--{part} must be one or more of {names}", name)
        if chosen is not None:
            plan[part] = {name: value for name, value in known.items() if name in chosen}
    stages = list(plan_stages(plan, args.num_seeds, args.folder))
    if not args.show:
        check_flags([s for s in stages if not read_metrics(args.folder, s)], args.folder)
    else:
        has_runs = os.path.isdir(os.path.join(args.folder, ".claims"))
        _check(has_runs, "--show needs a folder with runs", args.folder)
    claim_folder(args.folder, whole_plan)
    failed = () if args.show else run_all(stages, args.folder, args.minutes)
    report(stages, args.folder)
    left = sum(not read_metrics(args.folder, stage) for stage in stages)
    if failed:
        text = f"{left} of {len(stages)} runs are left, {len(failed)} failed"
        print(f"{PROGRAM}: {text}; run the same command to try again", file=sys.stderr)
    elif left and not args.show:
        print(f"{left} of {len(stages)} runs are left; run the same command to resume")
    return 1 if failed else 0


def check(plan: dict) -> None:
    """Raises a `ValueError` if the plan is invalid."""
    unknown = set(plan) - set(KEYS)
    _check(not unknown, f"Keys of a plan must be in {KEYS}", sorted(unknown))
    rows, fine_tunings = plan.get("rows", {}), plan.get("fine_tunings", {})
    for part, named in [("rows", rows), ("fine_tunings", fine_tunings)]:
        _check(isinstance(named, dict), f"`{part}` of a plan must be a dict", repr(named))
    for named in fine_tunings.values():
        rule = "A fine-tuning must have flags to `train` with"
        _check(isinstance(named, dict), rule, repr(named))
    start = plan.get("start", "")
    _check(isinstance(start, str), "`start` must be a preset", repr(start))
    lists = [plan.get(name, []) for name in ("train", "test", "pretrain")]
    lists += [row for row in rows.values() if row is not None]
    lists += [flags for named in fine_tunings.values() for flags in named.values()]
    for flags in lists:
        are_flags = isinstance(flags, list) and all(isinstance(flag, str) for flag in flags)
        _check(are_flags, "Flags must be a list of strings", repr(flags))
    if "train" in plan:
        others = [name for name in ("start", "pretrain", "fine_tunings") if name in plan]
        rule = "A plan with `train` must have no pretraining and no null row"
        received = ", ".join(["train", *others]) if others else "a null row"
        _check(not others and None not in rows.values(), rule, received)
        return
    _check(rows, "A plan must have `train` or `rows`", "neither of them")
    _check("test" not in plan, "`test` of a plan needs `train`", "no `train`")
    if "pretrain" not in plan and any(row is not None for row in rows.values()):
        raise ValueError("A plan with rows of flags must have `train` or `pretrain`")
    if None in rows.values() and not plan.get("start"):
        raise ValueError("A plan with a null row must have `start`, a preset")
    rule = "A fine-tuning must have flags to `train` with and can have flags to `test` with"
    for name, flags in fine_tunings.items():
        _check({"train"} <= set(flags) <= {"train", "test"}, rule, f"{name}: {sorted(flags)}")


def standard_form(plan: dict) -> dict:
    """Returns the same plan with all keys. A plan with `train` has one fine-tuning of this name."""
    plan = {"start": "", "rows": {"all": []}, "fine_tunings": {}, **plan}
    if "train" in plan:
        runs = {name: plan[name] for name in ("train", "test") if name in plan}
        plan["fine_tunings"] = {"train": runs}
    return plan


def check_flags(stages, folder) -> None:
    """Raises a `ValueError` if a flag of a run is wrong or has a variable that is not set."""
    for flag in {flag for stage in stages for flag in stage.flags}:
        found = re.search(r"\$(\w+|{\w+})", os.path.expandvars(flag))
        _check(not found, "Variables of a plan must be set", f"{found and found[0]} in {flag}")
    # Seeds do not change the checks. The preset of a run that has not begun is any folder.
    for stage in [stage for stage in stages if stage.seed == 0]:
        flags = [os.path.expandvars(flag) for flag in stage.flags]
        if stage.needs:
            flags[0] = "--preset=."
        try:
            check_arguments([*flags, f"--output={os.path.join(folder, '.claims', 'unused')}"])
        except ValueError as error:
            raise ValueError(f"{stage.path}: {error}") from None


def claim_folder(folder: str, plan: dict) -> None:
    """Stores the plan in the folder. Raises a `ValueError` if the folder has something else."""
    path, claims = os.path.join(folder, "plan.json"), os.path.join(folder, ".claims")
    is_free = not os.path.exists(folder) or os.path.isdir(folder) and not os.listdir(folder)
    # Another process may be about to write the plan.
    is_right = is_free or os.path.isdir(claims)
    _check(is_right, "The folder must be new, empty, or that of a plan", folder)
    os.makedirs(claims, exist_ok=True)
    with filelock.FileLock(os.path.join(claims, "plan.lock")):
        if not os.path.exists(path):
            files.write_json(path, plan)
        is_same = files.read_json(path) == plan
        _check(is_same, "A folder must have one plan", f"another plan than {path}")


def plan_stages(plan: dict, seeds: int, folder: str):
    """Yields the runs of a plan, seed by seed, so that each finished seed completes its pairs."""
    for seed in range(seeds):
        for row, flags in plan["rows"].items():
            needs, start, own = None, os.path.expandvars(plan["start"]), []
            if "train" in plan:
                own = flags
            elif flags is not None:
                needs = Stage(row, seed, "pretrain", ("--task=pretrain", *plan["pretrain"], *flags))
                start = os.path.join(folder, needs.path)
                yield needs
            preset = [f"--preset={start}"] if start else []
            for name, runs in plan["fine_tunings"].items():
                train = Stage(row, seed, name, (*preset, *runs["train"], *own), needs)
                yield train
                if "test" in runs:
                    trained = os.path.join(folder, train.path)
                    test = (f"--preset={trained}", *runs["test"])
                    yield Stage(row, seed, f"{name} test", test, train)


def read_metrics(folder: str, stage: Stage) -> dict | None:
    """Returns the content of metrics.json, or None if the run is not finished."""
    try:
        metrics, run = (
            files.read_json(os.path.join(folder, stage.path, name))
            for name in ["metrics.json", "run.json"]
        )
    except OSError:
        return None
    # Interrupted runs also write metrics.json, with fewer steps.
    return metrics if metrics.get("steps", 0) == (run["flags"].get("steps") or 0) else None


def run_all(stages, folder, minutes) -> set:
    """Runs the stages that are left and not locked by other processes. Returns the failed ones."""
    ends = float("inf") if minutes is None else time.monotonic() + 60 * minutes
    failed = set()
    while time.monotonic() < ends:
        left = [s for s in stages if s not in failed and not read_metrics(folder, s)]
        left = [s for s in left if s.needs not in failed or failed.add(s)]
        if not left:
            break
        ready = (s for s in left if s.needs is None or read_metrics(folder, s.needs))
        claimed = next(filter(None, (claim(folder, stage) for stage in ready)), None)
        if claimed is None:
            time.sleep(min(WAIT_SECONDS, max(0.0, ends - time.monotonic())))
            continue
        stage, lock = claimed
        try:
            # Another process may have finished it before this one got the lock.
            if not read_metrics(folder, stage) and not run(folder, stage, ends):
                if time.monotonic() < ends:
                    failed.add(stage)
        finally:
            lock.release()
    for stage in failed:
        print(f"Failed: {stage.path}", file=sys.stderr)
    return failed


def claim(folder, stage):
    """Returns the stage and its lock, or None if another process has the lock."""
    place, output = (os.path.join(folder, *part, stage.path) for part in [(".claims",), ()])
    os.makedirs(place, exist_ok=True)
    try:
        lock = files.lock(place)
        if os.path.isdir(output):  # A run may outlive the process that started it.
            files.lock(output).release()
    except ValueError:
        return None
    return stage, lock


def run(folder, stage, ends) -> bool:
    """Runs or resumes a stage, at most until `ends`. Returns whether it finished."""
    output = os.path.join(folder, stage.path)
    flags = [os.path.expandvars(flag) for flag in stage.flags]
    flags.append(f"--output={output}")
    if not stage.is_test:  # Evaluation draws nothing at random.
        flags.append(f"--seed={stage.seed}")
    if os.path.isdir(output) and os.listdir(output):
        flags.append("--resume")
    log = os.path.join(folder, ".claims", stage.path, "log.txt")
    print(f"{time.strftime('%H:%M')} {stage.path} (log: {log})", flush=True)
    # The run must find the same packages as this process.
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    command = [sys.executable, "-P", "-m", "keras_spanbert_commands", *flags]
    with open(log, "a", encoding="utf-8") as file:
        # In its own session, a run gets Ctrl-C once: from this process, not the terminal.
        process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": path},
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        with process:
            try:
                process.wait(None if ends == float("inf") else max(0.0, ends - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGTERM)  # It saves a checkpoint.
            except Interrupted:
                process.send_signal(signal.SIGTERM)
                raise
            code = process.wait()
    if code not in (0, 128 + signal.SIGTERM):
        with open(log, encoding="utf-8") as file:
            last_lines = collections.deque(file, 5)
        print(f"{stage.path} ended with exit code {code}:\n{''.join(last_lines)}", file=sys.stderr)
    return code == 0


# === Tables ===
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
    """Returns the mean and half the width of its 95% interval (None for a single value)."""
    values = np.asarray(values, "float64")
    if len(values) < 2:
        return float(values.mean()), None
    width = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return float(values.mean()), float(width)


def report(stages, folder) -> None:
    """Writes the tables and the plot, and prints the table and the best run of each score."""
    found = collect_scores(stages, folder)
    rows = list(dict.fromkeys(stage.row for stage in stages))
    table = []
    for score, by_row in found.items():
        base = by_row.get(rows[0], {})
        for row in rows:
            values = by_row.get(row)
            if not values:
                continue
            mean, width = interval(list(values.values()))
            line = {"score": score, "row": row, "seeds": len(values), "mean": mean, "width": width}
            pairs = [value - base[seed] for seed, value in values.items() if seed in base]
            if row != rows[0] and pairs:
                line["difference"], line["difference_width"] = interval(pairs)
            table.append(line)
    if not table:
        is_finished = any(read_metrics(folder, stage) for stage in stages)
        no_score = "The finished runs have no score: give them --eval_data"
        print(no_score if is_finished else "No run is finished yet")
        return
    names = ["score", "row", "seeds", "mean", "width", "difference", "difference_width"]
    table = [{name: line.get(name) for name in names} for line in table]
    files.write_csv(os.path.join(folder, "comparison.csv"), table)
    lines = [f"| Score | Row | Seeds | Mean | Difference from {rows[0]} |", "|---|---|---|---|---|"]
    for line in table:
        mean, difference = format_mean(line["mean"], line["width"]), ""
        if line["difference"] is not None:
            difference = format_mean(line["difference"], line["difference_width"], "+")
        cells = line["score"], line["row"], str(line["seeds"]), mean, difference
        lines.append(f"| {' | '.join(cells)} |")
    text = "\n".join(lines) + "\n"
    with files.atomic_write(os.path.join(folder, "comparison.md")) as file:
        file.write(text)
    written = "comparison.csv and comparison.md"
    if message := missing("matplotlib", "drawing them"):
        print(f"No plots: {message}")
    else:
        plot(os.path.join(folder, "comparison.png"), table, found)
        written = "comparison.csv, comparison.md and comparison.png"
    print(text, end="")
    for score, by_row in found.items():
        if score not in SCORES_OF_PRETRAINING.values():  # Lower losses are better.
            row = max(by_row, key=lambda row: np.mean(list(by_row[row].values())))
            seed = max(by_row[row], key=by_row[row].get)
            print(f"Best mean {score}: {row}. Its best run: seed {seed}, {by_row[row][seed]:.2f}")
    print(f"Wrote {written} to {folder}")


def format_mean(mean, width, sign="") -> str:
    return f"{mean:{sign}.2f}" + ("" if width is None else f" ± {width:.2f}")


def plot(path, table, found) -> None:
    """Plots the means with their intervals and the value of each seed, one panel per score."""
    from matplotlib.figure import Figure

    scores = list(found)
    num_rows = max(len(by_row) for by_row in found.values())
    height = 1 + len(scores) * max(1.6, 0.4 + 0.3 * num_rows)
    figure = Figure(figsize=(8, height), dpi=120, layout="constrained")
    panels = figure.subplots(len(scores), 1, squeeze=False)
    for axes, score in zip(panels[:, 0], scores):
        lines = [line for line in table if line["score"] == score]
        for place, line in enumerate(lines):
            values = list(found[score][line["row"]].values())
            axes.plot(values, [place] * len(values), "o", color="0.7", ms=4)
            axes.errorbar(line["mean"], place, xerr=line["width"], fmt="o", capsize=4)
        axes.set_yticks(range(len(lines)), [line["row"] for line in lines])
        axes.invert_yaxis()
        axes.set_title(score, fontsize=10)
    has_seeds = any(line["width"] is not None for line in table)
    title = "Mean over seeds with 95% interval" if has_seeds else "One seed"
    figure.suptitle(title, fontsize=10)
    with files.atomic_write(path, "wb") as file:
        figure.savefig(file, format="png")
