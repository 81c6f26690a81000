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


def mention_loss(scores, labels):
    """How unlikely it is that spans are mentions, or are not, as the gold says, in nats.

    It is the binary cross-entropy of the scores of the spans that are kept.

    Args:
        scores: float `[..., K]`.
        labels: int `[..., K]`, each span's gold cluster, 0 for none.

    Returns:
        float `[..., K]`.

    Reference:
        [Xu and Choi 2021](https://arxiv.org/abs/2109.00185), support of singletons.
    """
    return ops.softplus(ops.where(labels > 0, -scores, scores))


class Clusters:
    """The clusters that spans and their antecedents make, as these come, in order.

    `members` are lists of spans, `number_of` is the cluster of each that is in one.
    """

    def __init__(self):
        self.members = []
        self.number_of = {}

    def link(self, span, antecedent) -> None:
        """Puts a span into the cluster of another one."""
        if antecedent not in self.number_of:
            self.number_of[antecedent] = len(self.members)
            self.members.append([antecedent])
        self.number_of[span] = self.number_of[antecedent]
        self.members[self.number_of[span]].append(span)

    def add_alone(self, span) -> None:
        """Makes a cluster of one span."""
        self.number_of[span] = len(self.members)
        self.members.append([span])


def best_antecedents(scores: np.ndarray, antecedents: np.ndarray) -> np.ndarray:
    """The best antecedent of each span, -1 for none.

    Args:
        scores: float `[K, 1 + A]`, that of no antecedent first.
        antecedents: int `[K, A]`.
    """
    best = scores.argmax(axis=1)
    with_none = np.concatenate([np.full_like(antecedents[:, :1], -1), antecedents], axis=1)
    return with_none[np.arange(len(best)), best]


def clusters_of(
    spans: Sequence, best: Sequence[int], mention_scores: np.ndarray | None = None
) -> list:
    """The clusters that the best antecedents make.

    Args:
        spans: list of `(start, end)`, in order.
        best: int `[K]`, of `best_antecedents`.
        mention_scores: float `[K]`. With these, a span that is in no cluster and
            more likely a mention than not is a cluster of one. Defaults to
            `None`: no such clusters.

    Returns:
        List of clusters, lists of spans.
    """
    clusters = Clusters()
    for span, antecedent in enumerate(best):
        if antecedent >= 0:
            clusters.link(span, int(antecedent))
    if mention_scores is not None:
        for span in np.flatnonzero(mention_scores > 0).tolist():
            if span not in clusters.number_of:
                clusters.add_alone(span)
    return [[spans[span] for span in cluster] for cluster in clusters.members]
