"""What a run draws: PNG files beside its preset."""

import math

import numpy as np

from keras_spanbert.files import replacing


def plot_losses(path: str, rows: list[dict], unigram: dict[str, float]) -> None:
    """Plots held-out cross-entropy over the steps, as PNG."""
    figure, axes = _figure()
    steps = [row["step"] for row in rows]
    for name, color in [("mlm", "C0"), ("sbo", "C1")]:
        label = name.upper()
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


def _figure():
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), dpi=120, layout="constrained")
    return figure, figure.subplots()


def _save(figure, path):
    with replacing(path, "wb") as file:
        figure.savefig(file, format="png")
