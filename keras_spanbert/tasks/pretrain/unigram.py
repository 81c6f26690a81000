"""What a model that ignores the context would reach."""

import numpy as np


def unigram_log_probabilities(counts: np.ndarray) -> np.ndarray:
    """Log-probabilities (nats) of tokens by their counts `[V]`."""
    # One more in all, shared by the vocabulary, so that tokens unseen in training
    # have a probability.
    counts = np.asarray(counts)
    return np.log((counts + 1.0 / len(counts)) / (counts.sum() + 1.0))


def unigram_entropies(counts: np.ndarray, dataset) -> dict[str, float]:
    """Cross-entropy of the targets under the corpus's unigram distribution.

    What a model that ignores the context would reach: nats a token.

    Args:
        counts: int `[V]`. Counts of the tokens in the training documents.
        dataset: iterable of `(x, y, sample_weight)`, as the preprocessor gives.

    Returns:
        Dict with `mlm` and `sbo`.
    """
    log_probabilities = unigram_log_probabilities(counts)
    sums = {"mlm": 0.0, "sbo": 0.0}
    weights = {"mlm": 0.0, "sbo": 0.0}
    for _, y, sample_weight in dataset:
        for name in sums:
            weight = np.asarray(sample_weight[name])
            sums[name] -= float(np.sum(weight * log_probabilities[np.asarray(y[name])]))
            weights[name] += float(np.sum(weight))
    return {name: sums[name] / max(weights[name], 1.0) for name in sums}
