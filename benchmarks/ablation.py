"""Which pretraining makes the better model? Rows of an ablation, each with several seeds.

    python benchmarks/ablation.py benchmarks/plans/domain.json FOLDER --seeds=3 --minutes=10

A plan names flags of train.py: `pretrain`, those of every pretraining; `rows`, what each row adds
to them, or null where its model is `start` as it is; `fine_tunings`, each with the flags to `train`
with and, where its score is not to be that of the best epoch, those to `test` with. Variables of
the environment are filled in. Each row is trained with each seed, and each model fine-tuned:

    {"start": "saved_models/mine",
     "pretrain": ["--preset=saved_models/mine", "--train_data=novels/*.txt", "--steps=1000"],
     "rows": {"as it is": null, "MLM + SBO": [], "MLM": ["--objectives=mlm"]},
     "fine_tunings": {"entities": {"train": ["--task=token_classification", ...], "test": [...]}}}

Every run is one of train.py in a folder of its own, with its own checkpoints, so that this one may
end at any moment, by --minutes, Ctrl-C or a loss of power, and the same command goes on. Several of
it, on several GPUs or hosts that see FOLDER, take runs from it each: a run is locked by who has it
(a lock of the file system, which is gone with its process).

Writes ablation.csv, ablation.md and ablation.png into FOLDER: of each row and score the mean over
seeds, its 95% interval, and the mean difference from the first row with the interval of that,
paired by seed (both intervals by Student's t). Held-out losses are those of a row's own masks.
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

import filelock
import numpy as np
from scipy import stats

from keras_spanbert import files

TRAIN = pathlib.Path(__file__).parent.parent / "train.py"
SCORES_OF_PRETRAINING = {
    "mlm_cross_entropy": "held-out MLM",
    "sbo_cross_entropy": "held-out SBO",
    "nsp_cross_entropy": "held-out NSP",
}
# Between two looks at whether another process has ended its run.
WAIT_SECONDS = 5


@dataclasses.dataclass(frozen=True)
class Stage:
    """A run of train.py.

    Attributes:
        row: string.
        seed: int.
        name: string, "pretrain", or a fine-tuning's, or that and " test".
        flags: tuple of strings.
        needs: `Stage` that must be finished before, or None.
    """

    row: str
    seed: int
    name: str
    flags: tuple
    needs: "Stage" = None

    @property
    def path(self) -> str:
        return os.path.join(self.row.replace(os.sep, "-"), f"seed-{self.seed}", self.name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plan", help="A JSON file, as those in benchmarks/plans.")
    parser.add_argument("folder", help="Of the runs and tables: new, empty, or of this plan.")
    parser.add_argument("--seeds", type=int, default=3, help="How many; default: 3.")
    parser.add_argument("--minutes", type=float, default=None, help="Ends then; goes on later.")
    parser.add_argument("--rows", nargs="+", help="Names of those to run; default: all.")
    parser.add_argument(
        "--fine_tunings", nargs="*", help="Names of those to run; none: no one; default: all."
    )
    parser.add_argument("--show", action="store_true", help="Writes the tables of what there is.")
    args = parser.parse_args()
    plan = files.read_json(args.plan)
    check(plan)
    whole_plan = dict(plan)
    for part in ["rows", "fine_tunings"]:
        chosen, known = getattr(args, part), plan.get(part, {})
        for name in set(chosen or []) - set(known):
            names = ", ".join(map(repr, sorted(known))) or "none, as the plan has none"
            raise ValueError(f"--{part} must name some of {names}. Received: {name}")
        if chosen is not None:
            plan[part] = {name: value for name, value in known.items() if name in chosen}
    stages = list(stages_of(plan, args.seeds, args.folder))
    if not args.show:
        check_variables(stages)
    elif not os.path.isdir(os.path.join(args.folder, ".claims")):
        raise ValueError(f"--show takes the folder of a plan. Received: {args.folder}")
    take_folder(args.folder, whole_plan)
    failed = () if args.show else run_all(stages, args.folder, args.minutes)
    report(stages, args.folder)
    left = sum(not metrics_of(args.folder, stage) for stage in stages)
    if failed:
        sys.exit(f"ablation.py: {left} of {len(stages)} runs are left, as {len(failed)} failed")
    if left and not args.show:
        print(f"{left} of {len(stages)} runs are left; the same command goes on")


def check(plan: dict) -> None:
    """Raises a ValueError where a plan is none."""
    known = {"about", "start", "pretrain", "rows", "fine_tunings"}
    if set(plan) - known:
        raise ValueError(f"A plan must have no keys but {known}. Received: {set(plan) - known}")
    if not plan.get("rows"):
        raise ValueError("A plan must have `rows`. Received: none")
    fine_tunings = plan.get("fine_tunings", {})
    for part, named in [("rows", plan["rows"]), ("fine_tunings", fine_tunings)]:
        if not isinstance(named, dict):
            raise ValueError(f"A plan must have `{part}` by their names. Received: {named!r}")
    for named in fine_tunings.values():
        if not isinstance(named, dict):
            raise ValueError(f"A fine-tuning must have flags to `train` with. Received: {named!r}")
    if not isinstance(plan.get("start", ""), str):
        raise ValueError(f"`start` must be a preset. Received: {plan['start']!r}")
    lists = [plan.get("pretrain", []), *(row for row in plan["rows"].values() if row is not None)]
    lists += [flags for named in fine_tunings.values() for flags in named.values()]
    for flags in lists:
        if not (isinstance(flags, list) and all(isinstance(flag, str) for flag in flags)):
            raise ValueError(f"Flags must be a list of strings. Received: {flags!r}")
    if "pretrain" not in plan and any(row is not None for row in plan["rows"].values()):
        raise ValueError("A plan must have `pretrain`, the flags of its rows. Received: none")
    if None in plan["rows"].values() and not plan.get("start"):
        raise ValueError("A row of null takes `start`, a preset. Received: none")
    for name, flags in fine_tunings.items():
        if not set(flags) <= {"train", "test"} or "train" not in flags:
            raise ValueError(
                "A fine-tuning must have flags to `train` with, and may have some to `test` with. "
                f"Received: {name}: {sorted(flags)}"
            )


def check_variables(stages) -> None:
    """Raises a ValueError where a flag has a variable of the environment that is not set."""
    for flag in {flag for stage in stages for flag in stage.flags}:
        if found := re.search(r"\$(\w+|{\w+})", os.path.expandvars(flag)):
            raise ValueError(f"Variables of a plan must be set. Received: {found[0]}, in {flag}")


def take_folder(folder: str, plan: dict) -> None:
    """Notes in a folder of which plan it is; raises a ValueError where it is another's.

    A plan may get further rows and fine-tunings.
    """
    path, claims = os.path.join(folder, "plan.json"), os.path.join(folder, ".claims")
    if not os.path.exists(path):
        is_free = not os.path.exists(folder) or os.path.isdir(folder) and not os.listdir(folder)
        # Folders of before have no plan, nor has one that another process is about to note it in.
        if not (is_free or os.path.isdir(claims)):
            raise ValueError(f"The folder must be new, empty, or a plan's. Received: {folder}")
    os.makedirs(claims, exist_ok=True)
    with filelock.FileLock(os.path.join(claims, "plan.lock")):
        before = files.read_json(path) if os.path.exists(path) else None
        both = plan if before is None else _joined(before, plan, folder)
        if both != before:
            files.write_json(path, both)


def _joined(before, plan, folder):
    both = {**before, **plan}
    for name in ["start", "pretrain"]:
        if plan.get(name) != before.get(name):
            raise ValueError(
                f"A folder must be of one plan. Received: {folder}, of one with other `{name}`"
            )
    for part in ["rows", "fine_tunings"]:
        mine, theirs = plan.get(part, {}), before.get(part, {})
        for name in mine.keys() & theirs.keys():
            if mine[name] != theirs[name]:
                raise ValueError(
                    f"A folder must be of one plan. Received: {folder}, of one with another "
                    f"{name!r} of `{part}`"
                )
        both[part] = {**theirs, **mine}
    return both


def stages_of(plan: dict, seeds: int, folder: str):
    """Yields the runs of a plan, those of a seed together: each seed makes pairs of its own."""
    for seed in range(seeds):
        for row, flags in plan["rows"].items():
            needs, preset = None, os.path.expandvars(plan.get("start", ""))
            if flags is not None:
                needs = Stage(row, seed, "pretrain", ("--task=pretrain", *plan["pretrain"], *flags))
                preset = os.path.join(folder, needs.path)
                yield needs
            for name, runs in plan.get("fine_tunings", {}).items():
                train = Stage(row, seed, name, (f"--preset={preset}", *runs["train"]), needs)
                yield train
                if "test" in runs:
                    trained = os.path.join(folder, train.path)
                    test = (f"--preset={trained}", *runs["test"])
                    yield Stage(row, seed, f"{name} test", test, train)


def metrics_of(folder: str, stage: Stage) -> dict | None:
    """What metrics.json of a run says, None where it is not finished."""
    try:
        metrics, run = (
            files.read_json(os.path.join(folder, stage.path, name))
            for name in ["metrics.json", "run.json"]
        )
    except OSError:
        return None
    # A run that was interrupted writes what there is.
    return metrics if metrics.get("steps", 0) == (run["flags"].get("steps") or 0) else None


def run_all(stages, folder, minutes) -> set:
    """Runs what is left, as far as no other process has it; returns what failed."""
    ends = float("inf") if minutes is None else time.monotonic() + 60 * minutes
    failed = set()
    while time.monotonic() < ends:
        left = [s for s in stages if s not in failed and not metrics_of(folder, s)]
        left = [s for s in left if s.needs not in failed or failed.add(s)]
        if not left:
            break
        ready = (s for s in left if s.needs is None or metrics_of(folder, s.needs))
        claimed = next(filter(None, (claim(folder, stage) for stage in ready)), None)
        if claimed is None:
            time.sleep(min(WAIT_SECONDS, max(0.0, ends - time.monotonic())))
            continue
        stage, lock = claimed
        try:
            # Another process may have finished it between the look and the lock.
            if not metrics_of(folder, stage) and not run(folder, stage, ends):
                if time.monotonic() < ends:
                    failed.add(stage)
        finally:
            lock.release()
    for stage in failed:
        print(f"Failed: {stage.path}", file=sys.stderr)
    return failed


def claim(folder, stage):
    """The stage and its lock, None where another process has it."""
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
    """Runs a stage, or goes on with it, until a moment; returns whether it is finished."""
    output = os.path.join(folder, stage.path)
    flags = [os.path.expandvars(flag) for flag in stage.flags]
    flags += [f"--seed={stage.seed}", f"--output={output}"]
    if os.path.isdir(output) and os.listdir(output):
        flags.append("--resume")
    log = os.path.join(folder, ".claims", stage.path, "log.txt")
    print(f"{time.strftime('%H:%M')} {stage.path} (log: {log})", flush=True)
    with open(log, "a", encoding="utf-8") as file:
        command = [sys.executable, str(TRAIN), *flags]
        with subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT) as process:
            try:
                process.wait(None if ends == float("inf") else max(0.0, ends - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGTERM)  # It saves what it goes on from.
            except KeyboardInterrupt:
                process.wait()  # The terminal has told it too.
                raise
            code = process.wait()
    if code not in (0, 128 + signal.SIGTERM):
        with open(log, encoding="utf-8") as file:
            told = collections.deque(file, 5)
        print(f"{stage.path} ended with exit code {code}:\n{''.join(told)}", file=sys.stderr)
    return code == 0


# === Tables ===
def scores_of(stages, folder) -> dict:
    """The scores that there are, as `{score: {row: {seed: value}}}`."""
    tested = {stage.needs for stage in stages if stage.name.endswith(" test")}
    found = {}
    for stage in stages:
        metrics = metrics_of(folder, stage)
        if metrics is None or stage in tested:
            continue
        if stage.name == "pretrain":
            names = {n: shown for n, shown in SCORES_OF_PRETRAINING.items() if metrics.get(n)}
        else:
            trained = metrics_of(folder, stage.needs) if stage.name.endswith(" test") else metrics
            score = trained["best_score"]
            names = {score: f"{stage.name.removesuffix(' test')} {score}"}
        for name, shown in names.items():
            found.setdefault(shown, {}).setdefault(stage.row, {})[stage.seed] = metrics[name]
    return found


def interval(values) -> tuple[float, float | None]:
    """Mean and half the width of its 95% interval by Student's t, None for one value."""
    values = np.asarray(values, "float64")
    if len(values) < 2:
        return float(values.mean()), None
    width = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return float(values.mean()), float(width)


def report(stages, folder) -> None:
    """Writes tables and plot, and prints the table."""
    found = scores_of(stages, folder)
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
        print("No run is finished yet")
        return
    names = ["score", "row", "seeds", "mean", "width", "difference", "difference_width"]
    table = [{name: line.get(name) for name in names} for line in table]
    files.write_csv(os.path.join(folder, "ablation.csv"), table)
    text = markdown(table, rows[0])
    with files.replacing(os.path.join(folder, "ablation.md")) as file:
        file.write(text)
    plot(os.path.join(folder, "ablation.png"), table, found)
    print(text + f"Wrote ablation.csv, ablation.md and ablation.png to {folder}")


def markdown(table, base) -> str:
    """The table, as Markdown."""
    lines = [f"| Score | Row | Seeds | Mean | Against {base} |", "|---|---|---|---|---|"]
    for line in table:
        mean = shown(line["mean"], line["width"])
        has_pairs = line["difference"] is not None
        difference = shown(line["difference"], line["difference_width"], "+") if has_pairs else ""
        lines.append(
            f"| {line['score']} | {line['row']} | {line['seeds']} | {mean} | {difference} |"
        )
    return "\n".join(lines) + "\n"


def shown(mean, width, sign="") -> str:
    return f"{mean:{sign}.2f}" + ("" if width is None else f" ± {width:.2f}")


def plot(path, table, found) -> None:
    """Means with their intervals, and each seed's value, a panel a score."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    scores = list(found)
    figure, panels = pyplot.subplots(
        len(scores), 1, figsize=(8, 1 + 1.6 * len(scores)), squeeze=False, layout="constrained"
    )
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
    title = "Mean over seeds, with its 95% interval" if has_seeds else "One seed"
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        print(f"ablation.py: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("Interrupted; the same command goes on", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
