"""Computes the cross-entropy of a model that ignores the context."""

import collections

import numpy as np


def unigram_log_probabilities(counts: np.ndarray) -> np.ndarray:
    """Returns the log-probabilities (nats) of tokens with counts `[V]`."""
    # Adds a total count of one, shared by the vocabulary, so that tokens that do not
    # occur in training have a probability.
    counts = np.asarray(counts)
    return np.log((counts + 1.0 / len(counts)) / (counts.sum() + 1.0))


def unigram_entropies(counts: np.ndarray, dataset) -> dict[str, float]:
    """Returns the cross-entropy of the targets under the corpus's unigram distribution.

    This is the result of a model that ignores the context, in nats per token. For
    `nsp`, it is ln 2 nats per row, because half of the pairs are random.

    Args:
        counts: int `[V]`. Counts of the tokens in the training documents.
        dataset: iterable of `(x, y, sample_weight)` from the preprocessor.

    Returns:
        Dict with those of `mlm`, `sbo` and `nsp` that the dataset has labels for. 0
        if the weights are 0.
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
