"""Results of the runs of `--num_seeds` and `--grid`: statistics, a table and a plot."""

import os

from keras_spanbert import files
from keras_spanbert.optional import missing
from keras_spanbert.recipes import grid
from keras_spanbert.recipes.flags import FLAGS
from keras_spanbert.recipes.terminal import exit_on_user_error, log
from keras_spanbert.runs import plots
from keras_spanbert.runs.statistics import summary

FILES = ["metrics.json", "runs.csv", "runs.png", "run.json"]


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


def write(output: str, members: dict[str, dict[str, str]]) -> dict:
    """Writes the table and the statistics of the finished runs of `sweep.members`.

    Returns:
        The contents of `metrics.json`, an empty dict if no run is finished.
    """
    groups, score = {}, None  # The rows of each combination, by its folder.
    for folder, texts in members.items():
        if metrics := read_metrics(output, folder):
            score = metrics["best_score"]
            # Without counts and tables.
            scores = {name: value for name, value in metrics.items() if isinstance(value, float)}
            row = {name: grid.number(name, text) for name, text in texts.items()}
            row |= {"folder": folder, "steps": metrics["steps"], "seconds": scores.pop("seconds")}
            row |= {score: float(metrics[score]), **scores}
            groups.setdefault(os.path.dirname(folder), []).append(row)
    if not groups:
        return {}
    rows = [row for group in groups.values() for row in group]
    names = [name for name in next(iter(members.values())) if name != "seed"]
    combinations = [
        {
            "flags": {name: group[0][name] for name in names},
            "folder": folder,
            "scores": _statistics(group, {*names, "seed", "folder", "steps", "seconds"}),
        }
        for folder, group in groups.items()
    ]
    # Equal means keep the order of --grid.
    combinations.sort(key=lambda row: -_mean(row, score))
    best = max(groups[combinations[0]["folder"]], key=lambda row: row[score])
    found = {
        "runs": len(members),
        "finished": len(rows),
        "best_score": score,
        "best": {
            "flags": combinations[0]["flags"],
            **{name: best[name] for name in ["seed", "folder", score]},
        },
        **({"combinations": combinations} if FLAGS.grid else {"scores": combinations[0]["scores"]}),
    }
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


def _statistics(rows, others):
    """Returns the statistics of each score of runs that differ only by their seed.

    `others` are the columns of the rows that are no scores.
    """
    values = {}
    for row in rows:
        for name in [name for name in row if name not in others]:
            values.setdefault(name, {})[str(row["seed"])] = row[name]
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
