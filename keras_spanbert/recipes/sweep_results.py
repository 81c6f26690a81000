"""Results of the runs of `--num_seeds` and `--grid`: tables, statistics, plots."""

import os

from keras_spanbert import files
from keras_spanbert.optional import missing
from keras_spanbert.recipes import grid
from keras_spanbert.recipes.flags import FLAGS
from keras_spanbert.recipes.terminal import exit_on_user_error, log
from keras_spanbert.runs import plots
from keras_spanbert.runs.statistics import summary

_FILES = ["metrics.json", "seeds.csv", "seeds.png", "grid.csv", "grid.png", "run.json"]


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
    """Writes the tables and statistics of the finished runs.

    Returns:
        The contents of `metrics.json`, an empty dict if no run is finished.
    """
    runs = [(member, read_metrics(output, member.name)) for member in members]
    runs = [(member, metrics) for member, metrics in runs if metrics]
    if not runs:
        return {}
    score = runs[0][1]["best_score"]
    by_combination = {}
    for member, metrics in runs:
        by_combination.setdefault(member.combination, []).append((member, metrics))
    combinations = [
        {
            "flags": _numbers(group[0][0]),
            "folder": folder,
            "scores": _statistics(group),
        }
        for folder, group in by_combination.items()
    ]
    # Equal means keep the order of --grid.
    combinations.sort(key=lambda row: -_mean(row, score))
    best, metrics = max(by_combination[combinations[0]["folder"]], key=lambda run: run[1][score])
    found = {
        "runs": len(members),
        "finished": len(runs),
        "best_score": score,
        "best": {
            "flags": _numbers(best),
            "seed": best.seed,
            "folder": best.name,
            score: metrics[score],
        },
    }
    if FLAGS.grid:
        found["combinations"] = combinations
        name, rows = "grid.csv", [_combination_row(row) for row in combinations]
    else:
        found["scores"] = combinations[0]["scores"]
        name, rows = "seeds.csv", [_run_row(*run) for run in runs]
    with exit_on_user_error(OSError):
        files.write_json(os.path.join(output, "metrics.json"), found)
        files.write_csv(os.path.join(output, name), rows)
    return found


def show(output: str, found: dict) -> None:
    """Draws the plot, and logs the table, ties and the best run."""
    score, best = found["best_score"], found["best"]
    if message := missing("matplotlib", "drawing them"):
        log(f"No plots: {message}")
    else:
        with exit_on_user_error(OSError):
            _plot(output, found)
    log(f"{found['finished']} of {found['runs']} runs, on {','.join(FLAGS.eval_data)}")
    place = os.path.join(output, best["folder"])
    preset = f"seed {best['seed']}, {score} {best[score]:.2f}, {place}"
    if not FLAGS.grid:
        _log_table(list(found["scores"].items()))
        values = found["scores"][score]["values"].values()
        log(f"{score} of each seed: {', '.join(f'{value:.2f}' for value in values)}")
        log(f"Best on --eval_data: {preset}")
        return
    rows = found["combinations"]
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


def extract_scores(metrics: dict) -> dict[str, float]:
    """Returns the scores of a run, the best score first, without counts and tables."""
    best_score = metrics["best_score"]
    others = {name: value for name, value in metrics.items() if isinstance(value, float)}
    others.pop("seconds", None)
    return {best_score: float(metrics[best_score]), **others}


def _numbers(member):
    return {name: grid.number(name, text) for name, text in member.values.items()}


def _statistics(runs):
    """Returns the statistics of each score of runs that differ only by their seed."""
    values = {}
    for member, metrics in runs:
        for name, value in extract_scores(metrics).items():
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


def _run_row(member, metrics):
    figures = {name: metrics[name] for name in ["steps", "seconds"]}
    return {"seed": member.seed, "folder": member.name, **figures, **extract_scores(metrics)}


def _combination_row(row):
    """Returns a combination with the statistics of its scores, the best score first."""
    columns = dict(row["flags"])
    for i, (name, found) in enumerate(row["scores"].items()):
        columns[name] = found["mean"]
        if i == 0:
            columns["runs"] = len(found["values"])
        columns[f"{name}_standard_deviation"] = found["standard_deviation"]
        columns[f"{name}_low"], columns[f"{name}_high"] = found["interval"] or (None, None)
    return {**columns, "folder": row["folder"]}


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


def _plot(output, found):
    score = found["best_score"]
    task = FLAGS.task.replace("_", " ").capitalize()
    if FLAGS.grid:
        rows = found["combinations"]
        labels = [
            ", ".join(f"{name} {value:g}" for name, value in row["flags"].items()) for row in rows
        ]
        figures = [row["scores"][score] for row in rows]
        plots.plot_grid(os.path.join(output, "grid.png"), labels, figures, task, score)
        return
    figures = found["scores"][score]
    curves = {}
    for seed in figures["values"]:
        rows = files.read_csv(os.path.join(output, f"seed-{seed}", "history.csv"))
        curves[seed] = [(int(row["step"]), float(row[score])) for row in rows if row.get(score)]
    plots.plot_seeds(os.path.join(output, "seeds.png"), curves, figures, task, score)
