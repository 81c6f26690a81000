"""Draws masked spans and how SBO predicts them: `python docs/draw_spans.py [FILE.png]`.

The masks are those that `SpanMasking` gives for the sentence below.
"""

import pathlib
import sys

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

import keras_spanbert as ks

TOKENS = "[CLS] Slow rivers carry sand to the sea , where tides build is ##lands . [SEP]".split()
SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# More than the usual 15%, so that one sentence shows two spans.
MASK_RATE, SEED = 0.4, 127
SPAN_COLORS = ["#8ec1e8", "#f7b267"]
PLAIN, EDGE, BOUNDARY = "#f2f2f2", "#b0b0b0", "#c0392b"
CHARACTER, PADDING, GAP, HEIGHT = 0.108, 0.16, 0.08, 0.44  # In inches, as the axes are.
INPUT_Y, TARGET_Y = 1.2, 2.6


def mask_sentence():
    """Draws the masks of the sentence, and the tokens as the model reads them."""
    vocabulary = [*SPECIAL_TOKENS, *sorted(set(TOKENS) - set(SPECIAL_TOKENS))]
    masking = ks.SpanMasking.from_tokenizer(ks.SpanBertTokenizer(vocabulary), mask_rate=MASK_RATE)
    masks = masking([[vocabulary.index(token) for token in TOKENS]], seed=SEED)
    masks = {name: np.asarray(value)[0] for name, value in masks.items()}
    return masks, [vocabulary[i] for i in masks["token_ids"]]


def replacement_text(tokens, originals):
    if set(tokens) == {"[MASK]"}:
        return "mask tokens"
    return "kept" if tokens == originals else "random tokens"


def draw(path):
    masks, read = mask_sentence()
    count = int(masks["mask_weights"].sum())
    spans = {}  # By their boundaries, the slots of their tokens.
    for slot in range(count):
        spans.setdefault((masks["span_left"][slot], masks["span_right"][slot]), []).append(slot)

    widths = [CHARACTER * max(map(len, pair)) + PADDING for pair in zip(TOKENS, read)]
    left = np.cumsum([0.2, *(width + GAP for width in widths)])
    centers = left[:-1] + np.array(widths) / 2
    figure = Figure(figsize=(left[-1] + 0.13, 3.7))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, left[-1] + 0.13), ylim=(0, 3.7))
    axes.axis("off")

    def box(i, y, text, color, edge=EDGE, line=1.0):
        shape = FancyBboxPatch(
            (left[i], y), widths[i], HEIGHT, "round,pad=0,rounding_size=0.06",
            facecolor=color, edgecolor=edge, linewidth=line,
        )  # fmt: skip
        axes.add_patch(shape)
        axes.text(
            centers[i], y + HEIGHT / 2, text, ha="center", va="center_baseline",
            family="monospace", fontsize=12.5,
        )  # fmt: skip

    colors = dict.fromkeys(range(len(TOKENS)), PLAIN)
    for color, slots in zip(SPAN_COLORS, spans.values()):
        colors.update((int(masks["mask_positions"][slot]), color) for slot in slots)
    shown, shown_slots = max(spans.items(), key=lambda item: len(item[1]))
    boundaries = {i for pair in spans for i in pair}
    for i, token in enumerate(read):
        box(i, INPUT_Y, token, colors[i], *([BOUNDARY, 2.5] if i in boundaries else []))
    for name, i in zip(["left", "right"], shown):
        axes.text(
            centers[i], INPUT_Y - 0.13, f"{name} boundary", color=BOUNDARY, ha="center",
            va="top", fontsize=12.5,
        )  # fmt: skip

    # === Targets: the true tokens of every span, and for one span what SBO predicts them from ===
    for slots in spans.values():
        places = [int(masks["mask_positions"][slot]) for slot in slots]
        for i in places:
            box(i, TARGET_Y, TOKENS[i], "white", colors[i], 2.0)
        axes.text(
            (centers[places[0]] + centers[places[-1]]) / 2, INPUT_Y - 0.13,
            replacement_text([read[i] for i in places], [TOKENS[i] for i in places]), ha="center",
            va="top", fontsize=12.5, style="italic", color="#555555",
        )  # fmt: skip
    for slot in shown_slots:
        i, offset = int(masks["mask_positions"][slot]), int(masks["span_offsets"][slot])
        axes.text(
            centers[i], TARGET_Y + HEIGHT + 0.1, f"offset {offset}", ha="center", va="bottom",
            fontsize=12.5, color=BOUNDARY,
        )  # fmt: skip
        for boundary, bend in zip(shown, [-0.08, 0.08]):
            arrow = FancyArrowPatch(
                (centers[boundary], INPUT_Y + HEIGHT + 0.03),
                (centers[i], TARGET_Y - 0.03),
                connectionstyle=f"arc3,rad={bend}",
                arrowstyle="-|>", mutation_scale=11, color=BOUNDARY, linewidth=1.1, alpha=0.75,
            )  # fmt: skip
            axes.add_patch(arrow)

    # === Words around it ===
    for y, text in [(TARGET_Y, "predicted"), (INPUT_Y, "read")]:
        axes.text(0.2, y + HEIGHT + 0.1, text, fontsize=12.5, style="italic", color="#555555")
    axes.text(
        0.2, 0.1,
        "MLM predicts a token from the encoder's vector at its own place.\n"
        "SBO predicts it from the vectors of the two boundary tokens and its offset.",
        fontsize=12.5, color="#333333",
    )  # fmt: skip
    figure.savefig(path, dpi=160, facecolor="white")


if __name__ == "__main__":
    path = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "spans.png"
    draw(path)
    print(f"Wrote {path}")
