"""What the runs of `--seeds` and `--grid` gave: tables, figures, plots."""

import importlib.util
import os

from keras_spanbert import files
from keras_spanbert.recipes.flags import FLAGS
from keras_spanbert.recipes.terminal import log, user_input
from keras_spanbert.runs import plots
from keras_spanbert.runs.statistics import summary

_FILES = ["metrics.json", "seeds.csv", "seeds.png", "grid.csv", "grid.png", "run.json"]


def metrics_of(output: str, name: str) -> dict | None:
    """What `metrics.json` of a run says, `None` where it is not finished."""
    folder = os.path.join(output, name)
    try:
        metrics, run = (
            files.read_json(os.path.join(folder, file)) for file in ["metrics.json", "run.json"]
        )
    except OSError:
        return None
    # A run that was interrupted writes what there is.
    is_finished = metrics["steps"] == run["flags"]["steps"] and "best_score" in metrics
    return metrics if is_finished else None


def write(output: str, members: list) -> dict:
    """Writes tables and figures of the runs that are finished.

    Returns:
        What `metrics.json` says, an empty dict where no run is finished.
    """
    finished = [
        (member, metrics)
        for member in members
        if (metrics := metrics_of(output, member.name)) is not None
    ]
    if not finished:
        return {}
    best_score = finished[0][1]["best_score"]
    combinations = {}
    for member, metrics in finished:
        combinations.setdefault(member.combination, []).append((member, metrics))
    rows = [_figures(runs, best_score) for runs in combinations.values()]
    rows.sort(key=lambda row: row["scores"][best_score]["mean"], reverse=True)
    found = {
        "runs": len(members),
        "finished": len(finished),
        "best_score": best_score,
        "best": rows[0].pop("best"),
    }
    if FLAGS.grid:
        for row in rows[1:]:
            row.pop("best")
        found["combinations"] = rows
    else:
        found["scores"] = rows[0]["scores"]
    with user_input(OSError):
        files.write_json(os.path.join(output, "metrics.json"), found)
        if FLAGS.grid:
            files.write_csv(os.path.join(output, "grid.csv"), [_csv_row(row) for row in rows])
        else:
            table = [_row_of_run(member, metrics) for member, metrics in finished]
            files.write_csv(os.path.join(output, "seeds.csv"), table)
    return found


def show(output: str, found: dict, count: int) -> None:
    """Draws the plot, and tells the table and which run is the best."""
    score, best = found["best_score"], found["best"]
    if importlib.util.find_spec("matplotlib") is None:
        log("No plots: matplotlib is not installed (pip install keras-spanbert[train])")
    else:
        with user_input(OSError):
            _plot(output, found)
    log(f"{found['finished']} of {count} runs, on {','.join(FLAGS.eval_data)}")
    _log_table(_grid_table(found) if FLAGS.grid else _seeds_table(found))
    preset = os.path.join(output, best["folder"])
    if best["flags"]:
        flags = " ".join(f"--{name}={value}" for name, value in best["flags"].items())
        mean = found["combinations"][0]["scores"][score]["mean"]
        log(f"Best on --eval_data: {flags}, mean {score} {mean:.2f}")
        log(f"Its best preset: seed {best['seed']}, {score} {best[score]:.2f}, {preset}")
    else:
        log(f"Best on --eval_data: seed {best['seed']}, {score} {best[score]:.2f}, {preset}")


def written(output: str) -> str:
    """What the sweep wrote, to tell."""
    names = [name for name in _FILES if os.path.exists(os.path.join(output, name))]
    return f"{', '.join(names)} and a folder of each run"


def scores_of(metrics: dict) -> dict[str, float]:
    """The scores of a run, the best score first: what is a count, or a table, is none."""
    best_score = metrics["best_score"]
    others = {name: value for name, value in metrics.items() if isinstance(value, float)}
    others.pop("seconds", None)
    return {best_score: float(metrics[best_score]), **others}


def _figures(runs, best_score):
    """The figures of runs that differ by their seed alone."""
    member = runs[0][0]
    scores = {str(run.seed): scores_of(metrics) for run, metrics in runs}
    names = dict.fromkeys(name for found in scores.values() for name in found)
    statistics = {}
    for name in names:
        values = {seed: found[name] for seed, found in scores.items() if name in found}
        statistics[name] = {**summary(list(values.values()), FLAGS.seed), "values": values}
    flags = {name: float(text) for name, text in member.values.items()}
    flags = {name: int(n) if n.is_integer() and n >= 1 else n for name, n in flags.items()}
    run, metrics = max(runs, key=lambda found: found[1][best_score])
    best = {
        "flags": flags,
        "seed": run.seed,
        "folder": run.name,
        best_score: metrics[best_score],
    }
    return {"flags": flags, "folder": member.combination, "scores": statistics, "best": best}


def _row_of_run(member, metrics):
    figures = {name: metrics[name] for name in ["steps", "seconds"]}
    return {"seed": member.seed, "folder": member.name, **figures, **scores_of(metrics)}


def _csv_row(row):
    """A combination with the statistics of its scores, the best score's first."""
    columns = dict(row["flags"])
    for i, (name, found) in enumerate(row["scores"].items()):
        columns[name] = found["mean"]
        if i == 0:
            columns["runs"] = len(found["values"])
        columns[f"{name}_standard_deviation"] = found["standard_deviation"]
        columns[f"{name}_low"], columns[f"{name}_high"] = found["interval"] or (None, None)
    return {**columns, "folder": row["folder"]}


# === Tables ===
def _seeds_table(found):
    table = [["", "mean", "sd", "95% interval"]]
    for name, figures in found["scores"].items():
        table.append([name, *_shown(figures)])
    values = found["scores"][found["best_score"]]["values"]
    table.append([])
    table.append(["seed", *values])
    table.append([found["best_score"], *(f"{value:.2f}" for value in values.values())])
    return table


def _grid_table(found):
    rows = found["combinations"]
    table = [[*rows[0]["flags"], found["best_score"], "sd", "95% interval", "runs"]]
    for row in rows:
        figures = row["scores"][found["best_score"]]
        flags = [f"{value:g}" for value in row["flags"].values()]
        table.append([*flags, *_shown(figures), str(len(figures["values"]))])
    return table


def _shown(figures):
    """Mean, deviation and interval, as a table has them."""
    if figures["interval"] is None:
        return [f"{figures['mean']:.2f}", "-", "-"]
    low, high = figures["interval"]
    spread = f"{figures['standard_deviation']:.2f}"
    return [f"{figures['mean']:.2f}", spread, f"{low:.2f} to {high:.2f}"]


def _log_table(rows):
    """Tells rows in columns; behind an empty row others begin, of their own widths."""
    parts, part = [], []
    for row in [*rows, []]:
        if row:
            part.append(row)
        elif part:
            parts.append(part)
            part = []
    for part in parts:
        widths = [max(map(len, column)) for column in zip(*part)]
        for row in part:
            first, *others = (cell.rjust(width) for cell, width in zip(row, widths))
            log("  ".join([first.strip().ljust(widths[0]), *others]))


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
