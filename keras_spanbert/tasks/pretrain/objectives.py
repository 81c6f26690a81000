"""The pretrainer's objectives: their names, inputs and metrics."""

import keras

from keras_spanbert.training.losses import sparse_crossentropy

# All objectives: masked language model, span boundaries, next sentence.
OBJECTIVES = ("mlm", "sbo", "nsp")
# Inputs of the SBO and MLM heads, in addition to the encoded sequence.
SBO_INPUTS = ("span_left", "span_right", "span_offsets")
# Arguments that choose objectives, and their defaults.
CHOICES = {"span_boundary": True, "next_sentence": False}


def mask_inputs(span_boundary: bool) -> tuple[str, ...]:
    """Returns the names of the inputs `[B, M]`."""
    return ("mask_positions", *(SBO_INPUTS if span_boundary else ()))


def choices(names) -> dict[str, bool]:
    """Returns the arguments that choose the objectives with these names."""
    return {"span_boundary": "sbo" in names, "next_sentence": "nsp" in names}


def metrics(names) -> dict[str, list]:
    """Returns cross-entropy (nats) and accuracy metrics. Histories always have `mlm_accuracy`."""
    # If there are several outputs, Keras puts the output's name before the metric's.
    prefix = "" if len(names) > 1 else f"{names[0]}_"
    return {
        name: [
            keras.metrics.MeanMetricWrapper(
                sparse_crossentropy, name=f"{prefix}cross_entropy", from_logits=True
            ),
            keras.metrics.SparseCategoricalAccuracy(name=f"{prefix}accuracy"),
        ]
        for name in names
    }


def describe(row: dict) -> str:
    """Returns the text that a run shows for the objectives in a row of its history."""
    shown = {
        name: f"{name.upper()} {row[f'val_{name}_cross_entropy']:.3f}"
        for name in OBJECTIVES
        if f"val_{name}_cross_entropy" in row
    }
    of_rows = [f"{shown.pop('nsp')} nats per row"] if "nsp" in shown else []
    return "  ".join([f"held-out {'  '.join(shown.values())} nats per token", *of_rows])
