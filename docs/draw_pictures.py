"""Draws the model, clusters and learning curves: `python docs/draw_pictures.py [FOLDER]`.

The clusters and curves are those of presets in `saved_models/`.
"""

import pathlib
import sys

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from scipy import stats

import keras_spanbert as ks
from keras_spanbert import files

ROOT = pathlib.Path(__file__).parent.parent
PRESETS = ROOT / "saved_models"
COLORS = ["#8ec1e8", "#f7b267", "#b5dd9c", "#e6b3d8", "#d9cf7c", "#b9c0ca", "#9fd8cf"]
PLAIN, EDGE, MLM, SBO = "#f2f2f2", "#8a8a8a", "#2a78b5", "#c0392b"
STORY = (
    "Anna met her brother Tom at the station in Leeds. He had lost his coat, and she gave him "
    "hers. The train to York left at noon. An old sailor sat by the window and told them about "
    "his ship."
)
DPI = 160


def canvas(width, height):
    """Returns a figure and axes whose unit is an inch."""
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    return figure, axes


def box(axes, x, y, width, height, text, color=PLAIN, edge=EDGE, **font):
    axes.add_patch(
        FancyBboxPatch(
            (x, y), width, height, "round,pad=0,rounding_size=0.06",
            facecolor=color, edgecolor=edge, linewidth=1.2,
        )
    )  # fmt: skip
    font = {"fontsize": 11.5, **font}
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", **font)


def arrow(axes, start, end, color=EDGE, **style):
    style = {"linewidth": 1.3, "mutation_scale": 11, **style}
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", color=color, **style))


def draw_model(path):
    """Draws the encoder with its two heads, and what each head reads to predict one token."""
    tokens = ["Slow", "[MASK]", "[MASK]", "[MASK]", "to", "the"]
    width, step = 0.95, 1.1
    figure, axes = canvas(0.3 + step * len(tokens) + 0.15, 4.65)
    centers = [0.3 + step * i + width / 2 for i in range(len(tokens))]
    for i, (center, token) in enumerate(zip(centers, tokens)):
        color = COLORS[0] if token == "[MASK]" else PLAIN
        box(axes, center - width / 2, 0.2, width, 0.4, token, color, family="monospace")
        arrow(axes, (center, 0.62), (center, 0.93))
        arrow(axes, (center, 1.47), (center, 1.73))
        box(axes, center - 0.2, 1.75, 0.4, 0.4, f"$x_{i + 1}$")
    box(axes, 0.3, 0.95, step * len(tokens) - 0.15, 0.5, "encoder: SpanBertBackbone")
    masked, left, right = centers[2], centers[0], centers[4]
    box(axes, 0.3, 3.1, 2.6, 0.5, "MLM head", edge=MLM, color="white")
    box(axes, 3.6, 3.1, 3.15, 0.5, "SBO head: SpanBoundaryHead", edge=SBO, color="white")
    arrow(axes, (masked, 2.17), (1.7, 3.08), MLM)
    for center, end in [(left, 4.1), (right, 5.0)]:
        arrow(axes, (center, 2.17), (end, 3.08), SBO)
    axes.text(5.85, 2.72, "offset 1", color=SBO, ha="left", va="center", fontsize=11.5)
    arrow(axes, (6.1, 2.82), (6.1, 3.08), SBO)
    for x, color in [(1.6, MLM), (5.175, SBO)]:
        arrow(axes, (x, 3.62), (x, 3.93), color)
        box(axes, x - 0.5, 3.95, 1.0, 0.42, "carry", COLORS[0], family="monospace")
    figure.savefig(path, dpi=DPI, facecolor="white")


def draw_clusters(path):
    """Draws the clusters that the coreference preset finds in a story, one color for each."""
    resolver = ks.SpanBertCoreferenceResolver.from_preset(
        str(PRESETS / "coreference-litbank"), dtype="float32"
    )
    clusters = [c for c in resolver.resolve(STORY)["clusters"] if len(c) > 1]
    colors = {}  # By character. Shorter mentions are drawn over longer ones.
    mentions = [(m, number) for number, cluster in enumerate(clusters) for m in cluster]
    for mention, number in sorted(mentions, key=lambda x: x[0]["start"] - x[0]["end"]):
        for i in range(mention["start"], mention["end"]):
            colors[i] = number
    width, character, line = 58, 0.125, 0.5
    lines, start = [[]], 0
    for word in STORY.split(" "):
        if lines[-1] and start + len(word) - lines[-1][0] > width:
            lines.append([])
        lines[-1].extend(range(start, start + len(word) + 1))
        start += len(word) + 1
    figure, axes = canvas(width * character + 0.5, line * len(lines) + 0.75)
    for row, places in enumerate(lines):
        y = line * (len(lines) - row) + 0.25
        for i in places[:-1]:
            x = 0.25 + character * (i - places[0])
            if i in colors:
                axes.add_patch(
                    FancyBboxPatch(
                        (x, y - 0.17), character, 0.34, "square,pad=0",
                        facecolor=COLORS[colors[i] % len(COLORS)], linewidth=0,
                    )
                )  # fmt: skip
            axes.text(
                x + character / 2, y, STORY[i], ha="center", va="center_baseline",
                family="monospace", fontsize=14,
            )  # fmt: skip
    x = 0.25
    for number, cluster in enumerate(clusters):
        text = f"{cluster[0]['text']}: {len(cluster)} mentions"
        box(axes, x, 0.15, 0.2, 0.2, "", COLORS[number % len(COLORS)])
        axes.text(x + 0.28, 0.25, text, va="center", fontsize=10.5, color="#444444")
        x += 0.55 + 0.085 * len(text)
    figure.savefig(path, dpi=DPI, facecolor="white")


def draw_evidence(path):
    """Draws F1 of each start after fine-tuning: each seed, and the mean with its 95% interval."""
    figure = Figure(figsize=(9, 2.7), layout="constrained")
    rows = files.read_csv(str(ROOT / "docs" / "evidence" / "fine_tuning.csv"))
    starts = list(dict.fromkeys(row["start"] for row in rows))
    titles = {
        "squad5k": "SQuAD, from 5,017 questions",
        "entities": "LitBank entities",
    }
    for axes, (task, title) in zip(figure.subplots(1, 2, sharey=True), titles.items()):
        for i, (start, color) in enumerate(zip(starts, ["0.4", MLM, "#2f9e62", SBO], strict=True)):
            found = [row for row in rows if (row["start"], row["task"]) == (start, task)]
            seeds = [float(row["f1"]) for row in found]
            width = stats.t.ppf(0.975, len(seeds) - 1) * stats.sem(seeds)
            axes.errorbar(np.mean(seeds), i, xerr=width, color=color, fmt="o", capsize=4)
            axes.plot(seeds, [i + 0.28] * len(seeds), "o", color="white", mec=color, ms=4.5)
        axes.set(title=title, xlabel="F1 (%)", ylim=(len(starts) - 0.4, -0.5))
        axes.set_yticks(range(len(starts)), starts)
        axes.grid(axis="x", color="0.9")
    figure.savefig(path, dpi=DPI, facecolor="white")


PICTURES = {
    "model.png": draw_model,
    "clusters.png": draw_clusters,
    "evidence.png": draw_evidence,
}


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs"
    for name, draw in PICTURES.items():
        draw(folder / name)
        print(f"Wrote {folder / name}")
