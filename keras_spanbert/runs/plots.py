"""What a run, or several, draw: PNG files beside their presets."""

import math

import numpy as np

from keras_spanbert.files import replacing

_NUM_COLORS = 10  # Matplotlib's.


def plot_losses(path: str, rows: list[dict], unigram: dict[str, float]) -> None:
    """Plots held-out cross-entropy over the steps, as PNG.

    Args:
        path: string.
        rows: list of dicts, of the history.
        unigram: dict of each objective to what ignoring the context gives.
    """
    figure, axes = _figure()
    steps = [row["step"] for row in rows]
    for i, name in enumerate(unigram):
        color, label = f"C{i}", name.upper() + (" (a pair)" if name == "nsp" else "")
        axes.plot(
            steps,
            [r.get(f"{name}_cross_entropy", math.nan) for r in rows],
            f"{color}:",
            label=f"{label}, training",
        )
        axes.plot(
            steps,
            [r[f"val_{name}_cross_entropy"] for r in rows],
            color,
            marker=".",
            label=f"{label}, held out",
        )
        axes.axhline(unigram[name], color=color, lw=0.8, ls="--", label=f"{label}, unigram")
    axes.set_xlabel("steps")
    axes.set_ylabel("cross-entropy (nats a token)")
    axes.set_title("Pretraining")
    axes.legend()
    _save(figure, path)


def plot_scores(path: str, rows: list[dict], title: str, scores: dict[str, str]) -> None:
    """Plots the training loss, and the scores that the rows have, as PNG.

    Args:
        path: string.
        rows: list of dicts, of the history.
        title: string.
        scores: dict of score to label.
    """
    figure, axes = _figure()
    steps = [row["step"] for row in rows]
    axes.plot(steps, [row["loss"] for row in rows], "C0:", marker=".", label="training loss")
    axes.set_xlabel("steps")
    axes.set_ylabel("training loss")
    axes.set_title(title)
    found = [name for name in scores if name in rows[0]]
    if found:
        right = axes.twinx()
        for i, name in enumerate(found, start=1):
            values = [row[name] for row in rows]
            right.plot(steps, values, f"C{i}", marker=".", label=scores[name])
        right.set_ylabel(", ".join(scores[name] for name in found))
        right.legend(loc="center right")
    axes.legend(loc="upper center")
    _save(figure, path)


def plot_span_lengths(path: str, lengths: np.ndarray, probabilities: np.ndarray) -> None:
    """Plots drawn span lengths against their distribution, as PNG.

    Args:
        path: string.
        lengths: int array. Drawn lengths, in words.
        probabilities: `[max words]`. Probabilities of the lengths 1, 2, ...
    """
    figure, axes = _figure()
    words = np.arange(1, len(probabilities) + 1)
    counts = np.bincount(np.ravel(lengths), minlength=len(words) + 1)[1:]
    axes.bar(
        words, counts / counts.sum(), color="C0", alpha=0.6, label=f"drawn ({counts.sum():,} spans)"
    )
    axes.plot(words, probabilities, "C1o-", label="truncated geometric distribution")
    axes.set_xticks(words)
    axes.set_xlabel("span length (words)")
    axes.set_ylabel("share of spans")
    axes.set_title(
        f"Span lengths, mean {np.mean(lengths):.2f} drawn, {words @ probabilities:.2f} expected"
    )
    axes.legend()
    _save(figure, path)


def plot_seeds(path: str, curves: dict, figures: dict, title: str, score: str) -> None:
    """Plots a score over the steps of each seed's run, with the mean of the best, as PNG.

    Args:
        path: string.
        curves: dict of seed to a list of `(step, value)`.
        figures: dict of `keras_spanbert.runs.statistics.summary`, of the best values.
        title: string.
        score: string, its name.
    """
    figure, axes = _figure()
    for i, (seed, points) in enumerate(curves.items()):
        steps, values = zip(*points)
        color = f"C{i % _NUM_COLORS}"
        label = f"seed {seed}" if len(curves) <= _NUM_COLORS else None
        axes.plot(steps, values, color, marker=".", alpha=0.5, label=label)
        best = int(np.argmax(values))
        axes.plot(steps[best], values[best], "o", color=color)
    axes.axhline(figures["mean"], color="black", lw=1, label=f"mean {figures['mean']:.2f}")
    if figures["interval"]:
        low, high = figures["interval"]
        label = f"95% interval {low:.2f} to {high:.2f}"
        axes.axhspan(low, high, color="black", alpha=0.12, label=label)
    axes.set_xlabel("steps")
    axes.set_ylabel(score)
    axes.set_title(f"{title}: the best evaluation of each of {len(curves)} runs")
    axes.legend()
    _save(figure, path)


def plot_grid(path: str, labels: list[str], figures: list[dict], title: str, score: str) -> None:
    """Plots the runs, mean and interval of each combination of flags, as PNG.

    Args:
        path: string.
        labels: list of strings, of the combinations, the best first.
        figures: list of dicts of `keras_spanbert.runs.statistics.summary`, with
            `values`, a dict of seed to value.
        title: string.
        score: string, its name.
    """
    figure, axes = _figure(height=max(5.0, 1.0 + 0.3 * len(labels)))
    for place, found in enumerate(figures):
        values = list(found["values"].values())
        axes.plot(values, [place] * len(values), "C0.", label="" if place else "a run")
        if found["interval"]:
            label = "" if place else "95% interval of the mean"
            axes.plot(found["interval"], [place, place], "C1", alpha=0.6, label=label)
        axes.plot(found["mean"], place, "C1D", label="" if place else "mean")
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()  # The best one on top.
    axes.set_xlabel(score)
    axes.set_title(title)
    axes.legend()
    _save(figure, path)


def _figure(height=5.0):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, height), dpi=120, layout="constrained")
    return figure, figure.subplots()


def _save(figure, path):
    with replacing(path, "wb") as file:
        figure.savefig(file, format="png")
