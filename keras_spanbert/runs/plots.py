"""Plots of a run, as PNG files."""

import math

import numpy as np

from keras_spanbert.files import atomic_write


def plot_losses(path: str, rows: list[dict], unigram: dict[str, float]) -> None:
    """Plots the cross-entropy of the history's rows, and of a model that ignores the context."""
    figure, (axes,) = _figure()
    steps = [row["step"] for row in rows]
    for i, name in enumerate(unigram):
        color, label = f"C{i}", name.upper()
        training = [row.get(f"{name}_cross_entropy", math.nan) for row in rows]
        held_out = [row[f"val_{name}_cross_entropy"] for row in rows]
        axes.plot(steps, training, f"{color}:", label=f"{label}, training")
        axes.plot(steps, held_out, color, marker=".", label=f"{label}, held out")
        axes.axhline(unigram[name], color=color, lw=0.8, ls="--", label=f"{label}, unigram")
    unit = "nats per token, per pair for NSP" if "nsp" in unigram else "nats per token"
    axes.set(title="Pretraining", xlabel="steps", ylabel=f"cross-entropy ({unit})")
    axes.legend()
    _save(figure, path)


def plot_scores(
    path: str, rows: list[dict], title: str, scores: dict[str, str], loss_unit: str
) -> None:
    """Plots the history's training loss and, below it, its scores on held-out data.

    `scores` maps the names of scores in percent to labels. The rows may lack some.
    """
    found = [name for name in scores if name in rows[0]]
    figure, axes = _figure(panels=2 if found else 1)
    steps = [row["step"] for row in rows]
    axes[0].plot(steps, [row["loss"] for row in rows], "C0", marker=".")
    axes[0].set(title=title, ylabel=f"training loss ({loss_unit})")
    for i, name in enumerate(found):
        # Lines with equal scores have different widths, so that all stay visible.
        width = 1.5 + 1.5 * (len(found) - 1 - i)
        values = [row[name] for row in rows]
        axes[1].plot(steps, values, f"C{i + 1}", lw=width, marker=".", label=scores[name])
    if found:
        axes[1].set_ylabel("held-out scores (percent)")
        axes[1].legend()
    axes[-1].set_xlabel("steps")
    _save(figure, path)


def plot_span_lengths(path: str, lengths: np.ndarray, probabilities: np.ndarray) -> None:
    """Plots the shares of drawn span lengths, and the probabilities of 1, 2, ... words."""
    figure, (axes,) = _figure()
    words = np.arange(1, len(probabilities) + 1)
    counts = np.bincount(np.ravel(lengths), minlength=len(words) + 1)[1:]
    label = f"drawn ({counts.sum():,} spans)"
    axes.bar(words, counts / counts.sum(), color="C0", alpha=0.6, label=label)
    axes.plot(words, probabilities, "C1o-", label="probability")
    mean, expected = np.mean(lengths), words @ probabilities
    title = f"Span lengths, mean {mean:.2f} drawn, {expected:.2f} expected"
    axes.set(title=title, xticks=words, xlabel="span length (words)", ylabel="share of spans")
    axes.legend()
    _save(figure, path)


def _figure(panels=1):
    """Returns a figure and a list of panels, one above the other, with a shared x-axis."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5.0), dpi=120, layout="constrained")
    return figure, list(figure.subplots(panels, sharex=True, squeeze=False)[:, 0])


def _save(figure, path):
    with atomic_write(path, "wb") as file:
        figure.savefig(file, format="png")
