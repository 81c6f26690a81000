"""The pretrainer's objectives: names, inputs, and scores without context."""

import collections

import numpy as np

# All objectives: masked language model, span boundaries, next sentence.
OBJECTIVES = ("mlm", "sbo", "nsp")
# Inputs `[B, M]` of the heads. MLM takes only the first.
MASK_INPUTS = ("mask_positions", "span_left", "span_right", "span_offsets")
# Arguments that choose objectives, and their defaults.
CHOICES = {"span_boundary": True, "next_sentence": False}


def choices(names) -> dict[str, bool]:
    """Returns the arguments that choose the objectives with these names."""
    return {"span_boundary": "sbo" in names, "next_sentence": "nsp" in names}


def unigram_log_probabilities(counts: np.ndarray) -> np.ndarray:
    """Returns the log-probabilities (nats) of tokens with counts `[V]`."""
    # Adds a total count of one, shared by the vocabulary, so that tokens that do not
    # occur in training have a probability.
    counts = np.asarray(counts)
    return np.log((counts + 1.0 / len(counts)) / (counts.sum() + 1.0))


def unigram_entropies(counts: np.ndarray, dataset) -> dict[str, float]:
    """Returns the cross-entropies, by name, of a model that ignores the context.

    They are in nats per token, and for `nsp` per row. `counts` `[V]` are of the training documents.
    `dataset` yields the preprocessor's results.
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
