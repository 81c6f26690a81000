"""Builds clusters from antecedents, and computes the losses.

`xp` is `numpy` or `tensorflow.experimental.numpy`.
"""

import collections

import numpy as np
from keras import ops

from keras_spanbert.layers.array_functions import (
    append_end,
    cumsum,
    fixed_point,
    int32,
    range_like,
    scatter_add,
    scatter_min,
    select,
    size,
    take,
    unique_ids,
)


def marginal_loss(scores, antecedents, labels):
    """Returns the negative log-likelihood of the right antecedents of each span, in nats.

    Args:
        scores: float `[..., K, 1 + A]`. The first is the score of no antecedent, and
            the score of a missing antecedent is -inf.
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
    """Returns the binary cross-entropy of each span being a gold mention or not, in nats.

    Takes the scores `[..., K]` and gold clusters `[..., K]`, 0 for none.

    Reference:
        [Xu and Choi 2021](https://arxiv.org/abs/2109.00185), support of singletons.
    """
    return ops.softplus(ops.where(labels > 0, -scores, scores))


def extract_spans(
    row: dict, first_token: int = 0, index=None, min_link_score: float | None = None, xp=np
) -> dict:
    """Returns the spans of a result of `inference.run`, each with its best antecedent.

    Args:
        row: dict.
        first_token: int, the first token of the chunk. Defaults to `0`.
        index: int `[M + K]`, the numbers of the spans in the document. Defaults to
            `None`: a whole document.
        min_link_score: float. Antecedents with a lower link score are dropped.
            Defaults to `None`: no minimum.

    Returns:
        Dict of arrays `[K]`: `starts` and `ends`, tokens of the document,
        `mention_scores`, `best_antecedents` (-1 for none) and `link_scores`, their
        probabilities among all antecedents and none.
    """
    antecedents = row["top_antecedents"]
    scores = row["top_antecedent_scores"]
    place = xp.argmax(scores, axis=1)[:, None]  # 0 for none.
    with_none = xp.concatenate([-xp.ones_like(antecedents[:, :1]), antecedents], axis=1)
    best = xp.take_along_axis(with_none, place, axis=1)[:, 0]
    link_scores = 1 / xp.sum(xp.exp(scores - xp.max(scores, axis=1, keepdims=True)), axis=1)
    if min_link_score is not None:
        best = xp.where(link_scores < min_link_score, -1, best)
    return {
        "starts": row["top_span_starts"] + first_token,
        "ends": row["top_span_ends"] + first_token,
        "mention_scores": row["top_span_mention_scores"],
        "best_antecedents": best if index is None else xp.where(best < 0, -1, index[best]),
        "link_scores": link_scores,
    }


def cluster_mentions(spans: dict, word_of, singletons: bool, given: bool = False) -> list[dict]:
    """Returns the clusters of a document: see `token_to_word_clusters`.

    A cluster is a dict from the `(first, last)` word of mentions to their scores.
    """
    found = token_to_word_clusters(spans, word_of, singletons, given)
    clusters = collections.defaultdict(dict)
    for span in np.flatnonzero(found["cluster"] >= 0):
        mentions = clusters[int(found["cluster"][span])]
        place = int(found["first"][span]), int(found["last"][span])
        score = float(spans["mention_scores"][span])
        mentions[place] = max(score, mentions.get(place, score))
    return [clusters[number] for number in sorted(clusters)]


def mention_links(spans: dict, word_of, singletons: bool, given: bool = False) -> dict:
    """Returns the links within clusters, from a mention to its antecedent and the link's score.

    Mentions are the `(first, last)` words of `cluster_mentions`. The first mention of a
    cluster has no link. If spans are the same words, the one with the highest score counts.
    """
    found = token_to_word_clusters(spans, word_of, singletons, given)
    places, cluster = [*zip(found["first"].tolist(), found["last"].tolist())], found["cluster"]
    links, firsts = {}, {}
    for span in np.flatnonzero(cluster >= 0):
        place, antecedent = places[span], spans["best_antecedents"][span]
        is_first = firsts.setdefault(int(cluster[span]), place) == place
        if is_first or antecedent < 0 or cluster[antecedent] != cluster[span]:
            continue
        link = places[antecedent], float(spans["link_scores"][span])
        if link[0] != place and link[1] > links.get(place, (None, -1.0))[1]:
            links[place] = link
    return links


def token_to_word_clusters(
    spans: dict, word_of, singletons: bool, given: bool = False, xp=np
) -> dict:
    """Returns the clusters of spans in words, with each mention in only one of them.

    A span of separators alone is no mention. If two spans are the same words, the one
    in the earlier cluster counts. Clusters are in the order of their first links, and
    those of one mention follow.

    Args:
        spans: dict of arrays `[K]`, from `extract_spans`.
        word_of: int32 `[T]`, the word of each token, -1 for a separator. Without
            words, the number of each token.
        singletons: bool. Whether a span without a cluster that is more likely a mention
            than not is a cluster of one.
        given: bool. Whether all spans are known to be mentions. Defaults to `False`.

    Returns:
        Dict of int32 `[K]`: `first`, `last`, the words of each span; `cluster`, a
        number that increases in the order of the clusters, -1 for no mention; and
        `same`, the first span of the cluster that is the same words.
    """
    best = int32(xp, spans["best_antecedents"])
    first, last = _token_to_word(word_of, xp)
    first, last = take(xp, first, spans["starts"]), take(xp, last, spans["ends"])
    span, num_spans = range_like(xp, best), size(xp, best)
    never = xp.ones_like(span) * (2 * num_spans)  # A place in the order after all others.

    # === Clusters, in order of their first links; those of one mention follow ===
    root = xp.where(best < 0, span, best)
    (root,) = fixed_point(xp, lambda root: [take(xp, root, root)], [root])
    first_link = scatter_min(xp, never, root, xp.where(best < 0, never, span))
    order = take(xp, first_link, root)
    is_alone = order == never
    order = xp.where(is_alone, num_spans + span, order)
    is_single = is_alone & ((spans["mention_scores"] > 0) | given) & singletons
    is_mention = (first <= last) & (is_single | ~is_alone)

    # === The same words, in the first of their clusters ===
    places = [xp.asarray(x, dtype=np.int64) for x in (first, last)]
    words = unique_ids(xp, places[0] * (1 << 32) + places[1])
    order = xp.where(is_mention, order, never)
    is_mention = is_mention & (order == take(xp, scatter_min(xp, never, words, order), words))
    same = scatter_min(xp, never, words, xp.where(is_mention, span, never))
    same = take(xp, same, words)
    if not singletons:
        is_new = int32(xp, is_mention & (same == span))
        sizes = scatter_add(xp, xp.zeros_like(span)[:, None], root, is_new)[:, 0]
        is_mention = is_mention & (take(xp, sizes, root) > 1)
    cluster = xp.where(is_mention, order, -xp.ones_like(order))
    return {"first": first, "last": last, "cluster": cluster, "same": same}


def _token_to_word(word_of, xp):
    """Returns the first word at or after each token, and the last one at or before it."""
    is_word = int32(xp, word_of >= 0)
    words = select(xp, word_of, word_of >= 0)
    num_words = cumsum(xp, is_word)
    following = take(xp, append_end(xp, words, size(xp, word_of)), num_words - is_word)
    before = take(xp, xp.concatenate([-xp.ones_like(word_of[:1]), words], axis=0), num_words)
    return following, before
