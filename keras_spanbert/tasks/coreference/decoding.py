"""From antecedents to clusters, and the loss of antecedents."""

from collections.abc import Sequence

import numpy as np
from keras import ops


def marginal_loss(scores, antecedents, labels):
    """How unlikely the right antecedents are, all of a span's together, in nats.

    Args:
        scores: float `[..., K, 1 + A]`, that of no antecedent first, -inf for none.
        antecedents: int `[..., K, A]`.
        labels: int `[..., K]`, each span's gold cluster, 0 for none.

    Returns:
        float `[..., K]`.

    Reference:
        [Lee et al. 2017](https://arxiv.org/abs/1707.07045), section 4.
    """
    shape = ops.shape(antecedents)
    flat = ops.reshape(antecedents, (*shape[:-2], shape[-2] * shape[-1]))
    of_antecedents = ops.reshape(ops.take_along_axis(labels, flat, axis=-1), shape)
    is_right = (of_antecedents == labels[..., None]) & (labels[..., None] > 0)
    is_right = is_right & (scores[..., 1:] > -np.inf)
    has_none = ops.logical_not(ops.any(is_right, axis=-1, keepdims=True))
    is_right = ops.concatenate([has_none, is_right], axis=-1)
    right = ops.logsumexp(ops.where(is_right, scores, -np.inf), axis=-1)
    return ops.logsumexp(scores, axis=-1) - right


def clusters_of(spans: Sequence, scores: np.ndarray, antecedents: np.ndarray) -> list:
    """The clusters that the best antecedents make.

    Args:
        spans: list of `(start, end)`, in order.
        scores: float `[K, 1 + A]`, that of no antecedent first.
        antecedents: int `[K, A]`.

    Returns:
        List of clusters, lists of spans.
    """
    clusters, cluster_of = [], {}
    for span, best in enumerate(scores.argmax(axis=1)):
        if best == 0:
            continue
        antecedent = int(antecedents[span, best - 1])
        if antecedent not in cluster_of:
            cluster_of[antecedent] = len(clusters)
            clusters.append([spans[antecedent]])
        cluster_of[span] = cluster_of[antecedent]
        clusters[cluster_of[span]].append(spans[span])
    return clusters
