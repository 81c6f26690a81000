"""Results of the runs of `--num_seeds` and `--grid`: statistics, a table and a plot."""

import os

from keras_spanbert import files
from keras_spanbert.optional import missing
from keras_spanbert.recipes.flags import FLAGS
from keras_spanbert.recipes.terminal import exit_on_user_error, log
from keras_spanbert.runs import plots
from keras_spanbert.runs.statistics import summary

_FILES = ["metrics.json", "runs.csv", "runs.png", "run.json"]


def read_metrics(output: str, name: str) -> dict | None:
    """Returns the contents of a run's `metrics.json`, `None` if the run is not finished."""
    try:
        metrics, run = (
            files.read_json(os.path.join(output, name, file))
            for file in ["metrics.json", "run.json"]
        )
    except OSError:
        return None
    # An interrupted run writes its partial results.
    is_finished = metrics["steps"] == run["flags"]["steps"] and "best_score" in metrics
    return metrics if is_finished else None


def write(output: str, members: list) -> dict:
    """Writes the table and the statistics of the finished runs.

    Returns:
        The contents of `metrics.json`, an empty dict if no run is finished.
    """
    runs = [(member, read_metrics(output, member.name)) for member in members]
    runs = [(member, metrics) for member, metrics in runs if metrics]
    if not runs:
        return {}
    score = runs[0][1]["best_score"]
    groups = {}  # The runs of each combination.
    for member, metrics in runs:
        groups.setdefault(member.combination, []).append((member, metrics))
    combinations = [
        {"flags": group[0][0].numbers, "folder": folder, "scores": _statistics(group)}
        for folder, group in groups.items()
    ]
    # Equal means keep the order of --grid.
    combinations.sort(key=lambda row: -_mean(row, score))
    best, metrics = max(groups[combinations[0]["folder"]], key=lambda run: run[1][score])
    found = {
        "runs": len(members),
        "finished": len(runs),
        "best_score": score,
        "best": {
            "flags": best.numbers,
            "seed": best.seed,
            "folder": best.name,
            score: metrics[score],
        },
    }
    if FLAGS.grid:
        found["combinations"] = combinations
    else:
        found["scores"] = combinations[0]["scores"]
    rows = [
        {
            **member.numbers,
            "seed": member.seed,
            "folder": member.name,
            **{name: metrics[name] for name in ["steps", "seconds"]},
            **_scores(metrics),
        }
        for member, metrics in runs
    ]
    with exit_on_user_error(OSError):
        files.write_json(os.path.join(output, "metrics.json"), found)
        files.write_csv(os.path.join(output, "runs.csv"), rows)
    return found


def show(output: str, found: dict) -> None:
    """Draws the plot, and logs the statistics, ties and the best run."""
    score, best = found["best_score"], found["best"]
    rows = found.get("combinations") or [{"flags": {}, "scores": found["scores"]}]
    if message := missing("matplotlib", "drawing them"):
        log(f"No plots: {message}")
    else:
        labels = [", ".join(f"{n} {v:g}" for n, v in row["flags"].items()) for row in rows]
        figures = [row["scores"][score] for row in rows]
        task = FLAGS.task.replace("_", " ").capitalize()
        with exit_on_user_error(OSError):
            plots.plot_runs(os.path.join(output, "runs.png"), labels, figures, task, score)
    log(f"{found['finished']} of {found['runs']} runs, on {','.join(FLAGS.eval_data)}")
    place = os.path.join(output, best["folder"])
    preset = f"seed {best['seed']}, {score} {best[score]:.2f}, {place}"
    if not FLAGS.grid:
        _log_table(list(found["scores"].items()))
        values = found["scores"][score]["values"].values()
        log(f"{score} of each seed: {', '.join(f'{value:.2f}' for value in values)}")
        log(f"Best on --eval_data: {preset}")
        return
    _log_table([(_join_flags(row), row["scores"][score]) for row in rows])
    mean = _mean(rows[0], score)
    tied = [_join_flags(row) for row in rows if _mean(row, score) == mean]
    if len(tied) > 1:
        log(
            f"{len(tied)} combinations share the best mean {score}: {'; '.join(tied)}. "
            "The first one in the order of --grid is used"
        )
    log(f"Best on --eval_data: {tied[0]}, mean {score} {mean:.2f}")
    log(f"Its best preset: {preset}")


def describe_files(output: str) -> str:
    """Returns the names of the files that the sweep wrote, for a message."""
    names = [name for name in _FILES if os.path.exists(os.path.join(output, name))]
    return f"{', '.join(names)} and a folder for each run"


def _scores(metrics):
    """Returns the scores of a run, the best score first, without counts and tables."""
    best_score = metrics["best_score"]
    others = {name: value for name, value in metrics.items() if isinstance(value, float)}
    others.pop("seconds", None)
    return {best_score: float(metrics[best_score]), **others}


def _statistics(runs):
    """Returns the statistics of each score of runs that differ only by their seed."""
    values = {}
    for member, metrics in runs:
        for name, value in _scores(metrics).items():
            values.setdefault(name, {})[str(member.seed)] = value
    return {
        name: {**summary(list(by_seed.values()), FLAGS.seed), "values": by_seed}
        for name, by_seed in values.items()
    }


def _mean(row, score):
    """Returns the mean score of a combination, without the rounding error of its sum."""
    return round(row["scores"][score]["mean"], 9)


def _join_flags(row):
    return " ".join(f"--{name}={value}" for name, value in row["flags"].items())


def _log_table(rows):
    """Logs rows, each a label and the statistics of a score."""
    width = max(len(label) for label, _ in rows)
    log(f"{'':{width}}   mean     sd  95% interval")
    for label, figures in rows:
        line = f"{label:{width}}  {figures['mean']:5.2f}"
        if figures["interval"]:
            low, high = figures["interval"]
            line += f"  {figures['standard_deviation']:5.2f}  {low:.2f} to {high:.2f}"
        log(line)
