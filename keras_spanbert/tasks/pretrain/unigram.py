"""What a model that ignores the context would reach."""

import collections

import numpy as np


def unigram_log_probabilities(counts: np.ndarray) -> np.ndarray:
    """Log-probabilities (nats) of tokens by their counts `[V]`."""
    # One more in all, shared by the vocabulary, so that tokens unseen in training
    # have a probability.
    counts = np.asarray(counts)
    return np.log((counts + 1.0 / len(counts)) / (counts.sum() + 1.0))


def unigram_entropies(counts: np.ndarray, dataset) -> dict[str, float]:
    """Cross-entropy of the targets under the corpus's unigram distribution.

    What a model that ignores the context would reach: nats a token. Of pairs,
    half of which are random, it is a coin's, ln 2 a row.

    Args:
        counts: int `[V]`. Counts of the tokens in the training documents.
        dataset: iterable of `(x, y, sample_weight)`, as the preprocessor gives.

    Returns:
        Dict with `mlm`, `sbo` and `nsp`, those that the dataset has labels of; 0
        where their weights are.
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
