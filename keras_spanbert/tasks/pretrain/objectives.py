"""The pretrainer's objectives: names, inputs, metrics, and scores without context."""

import collections

import keras
import numpy as np

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


def unigram_log_probabilities(counts: np.ndarray) -> np.ndarray:
    """Returns the log-probabilities (nats) of tokens with counts `[V]`."""
    # Adds a total count of one, shared by the vocabulary, so that tokens that do not
    # occur in training have a probability.
    counts = np.asarray(counts)
    return np.log((counts + 1.0 / len(counts)) / (counts.sum() + 1.0))


def unigram_entropies(counts: np.ndarray, dataset) -> dict[str, float]:
    """Returns the cross-entropy of the targets, by name, under the corpus's unigram distribution.

    This is the result of a model that ignores the context, in nats per token, and for `nsp` per
    row. `counts` `[V]` are of the training documents, and `dataset` yields the preprocessor's
    results.
    """
    log_probabilities = {"nsp": np.log([0.5, 0.5])}
    of_tokens = unigram_log_probabilities(counts)
    sums, weights = collections.Counter(), collections.Counter()
    for _, y, sample_weight in dataset:
        for name, labels in y.items():
            weight = np.asarray(sample_weight[name])
            found = log_probabilities.get(name, of_tokens)[np.asarray(labels)]
            sums[name] -= float(np.sum(weight * found))
            weights[name] += float(np.sum(weight))
    return {name: sums[name] / max(weights[name], 1.0) for name in sums}
