"""The official metrics of coreference: MUC, B-cubed, CEAF-phi4 and their average, and LEA."""

import collections
import operator

import numpy as np

from keras_spanbert.checks import accepts_datasets


@accepts_datasets
def coreference(gold, predicted) -> dict:
    """Scores clusters of mentions like the official scorer of CoNLL-2012, v8.01.

    Two mentions match if their starts and ends are equal. Singletons count on both sides in all
    scores except MUC, which counts links. Repeated mentions are treated as in the official scorer:
    if a predicted mention is in `gold`, only its first occurrence in the text counts. Repetitions
    of other mentions all count. Unlike the official scorer, this function neither refuses files
    with more than ten repetitions nor truncates percentages to two digits.

    Args:
        gold: list of documents. A document is a list of clusters, a cluster is a
            list of mentions, and a mention is a pair of integers `(start, end)`,
            both inclusive, in words or in tokens.
        predicted: the same, for the same documents in the same order.

    Returns:
        Dict of `muc`, `b_cubed`, `ceaf_e`, `lea` and `mentions` (detection), each
        `{"precision", "recall", "f1"}` in percent, from numerators and denominators summed over
        documents; 0 if a denominator is 0. `average_f1` is the mean of the first three's `f1`.

    Raises:
        ValueError: if there are no documents, `gold` and `predicted` differ in
            their number, or a mention is not such a pair.

    Example:
    ```python
    gold = [[[(0, 0), (4, 5), (9, 9)], [(2, 2), (7, 7)]]]
    predicted = [[[(0, 0), (4, 5)], [(2, 2), (7, 7), (9, 9)]]]
    keras_spanbert.metrics.coreference(gold, predicted)["average_f1"]
    ```

    Reference:
        [Pradhan et al. 2014](https://aclanthology.org/P14-2006/); [Moosavi and Strube
        2016](https://aclanthology.org/P16-1060/) for LEA, where a singleton is linked to itself.
    """
    gold, predicted = _documents("gold", gold), _documents("predicted", predicted)
    if not gold:
        raise ValueError("`gold` must contain documents. Received: none")
    if len(gold) != len(predicted):
        raise ValueError(
            "`gold` and `predicted` must have the same documents. Received: "
            f"{len(gold)} and {len(predicted)} of them"
        )
    documents = [_Document(*pair) for pair in zip(gold, predicted)]
    scores = {
        name: _percentages(*np.sum([count(document) for document in documents], axis=0).tolist())
        for name, count in MEASURES.items()
    }
    average = sum(scores[name]["f1"] for name in ["muc", "b_cubed", "ceaf_e"]) / 3
    return {**scores, "average_f1": average}


def _documents(name, documents):
    """Returns documents as lists of clusters of tuples, in the order of the text."""
    # The official scorer's order: at each word, mentions of a single word come first, then the
    # mentions that start there, the longest first.
    return [
        sorted(filter(None, clusters), key=lambda c: min((s, s != e, -e) for s, e in c))
        for clusters in _checked(documents, name, "documents", "clusters", "mentions")
    ]


def _checked(value, place, *kinds):
    """Returns nested lists of these kinds, with each mention as a tuple."""
    if not kinds:
        return _mention(value, place)
    if not isinstance(value, (list, tuple, np.ndarray)):
        raise ValueError(
            "`gold` and `predicted` must be lists of documents, which are lists of clusters, which "
            f"are lists of mentions. Received: {place}={value!r:.80}, which is not a list of "
            f"{kinds[0]}"
        )
    return [_checked(item, f"{place}[{i}]", *kinds[1:]) for i, item in enumerate(value)]


def _mention(mention, place):
    try:
        start, end = map(operator.index, mention)
    except (TypeError, ValueError):
        start, end = 0, -1
    if not 0 <= start <= end:
        raise ValueError(
            "A mention must be a pair of integers, its start and its end, which is not before it. "
            f"Received: {place}={mention!r:.80}"
        )
    return start, end


class _Document:
    """The gold and predicted clusters of a document, and the last cluster of each mention.

    `predicted` has no gold mentions that occurred before.
    """

    def __init__(self, gold, predicted):
        self.gold = gold
        self.gold_of = _cluster_of(gold)
        self.predicted = []
        found = set()
        for cluster in predicted:
            kept = []
            for mention in cluster:
                if mention not in found:
                    kept.append(mention)
                    if mention in self.gold_of:
                        found.add(mention)
            if kept:
                self.predicted.append(kept)
        self.predicted_of = _cluster_of(self.predicted)


def _cluster_of(clusters):
    return {mention: i for i, cluster in enumerate(clusters) for mention in cluster}


def _count_common(clusters, other_of):
    """Counts the mentions that clusters share with clusters of the other side, by their numbers."""
    pairs = ((i, mention) for i, cluster in enumerate(clusters) for mention in cluster)
    return collections.Counter((i, other_of[m]) for i, m in pairs if m in other_of)


def _num_mentions(clusters):
    return sum(map(len, clusters))


# A measure returns numerator and denominator of recall, then of precision. They are summed over
# documents.
def _muc(document):
    common = _count_common(document.predicted, document.gold_of)
    links = common.total() - len(common)
    sides = document.gold, document.predicted
    golds, predictions = (_num_mentions(clusters) - len(clusters) for clusters in sides)
    return links, golds, links, predictions


def _b_cubed(document):
    # Sets, because a repeated mention counts once in each gold cluster.
    in_gold = _count_common(map(set, document.gold), document.predicted_of)
    recall = precision = 0.0
    for (p, g), number in _count_common(document.predicted, document.gold_of).items():
        recall += number * in_gold[g, p] / len(document.gold[g])
        precision += number * in_gold[g, p] / len(document.predicted[p])
    return recall, _num_mentions(document.gold), precision, _num_mentions(document.predicted)


def _ceaf_e(document):
    similarities = {
        (g, p): 2.0 * number / (len(document.gold[g]) + len(document.predicted[p]))
        for (g, p), number in _count_common(document.gold, document.predicted_of).items()
    }
    best = _best_assignment(similarities)
    return best, len(document.gold), best, len(document.predicted)


def _best_assignment(similarities):
    """Returns the largest sum of similarities `{(i, j): s}` with at most one `j` per `i`."""
    # Importing these packages takes longer than scoring most documents.
    from scipy import sparse
    from scipy.sparse import csgraph

    if not similarities:
        return 0.0
    rows, columns = np.array([*similarities]).T
    # Each `i` also gets a column of its own, so that it can stay unmatched. SciPy reads a weight
    # of 0 as no edge, so all weights are raised by 1. This does not change the best matching,
    # because each `i` takes exactly one column.
    own = np.arange(rows.max() + 1)
    weights = 1.0 + np.append([*similarities.values()], np.zeros(len(own)))
    pairs = np.append(rows, own), np.append(columns, columns.max() + 1 + own)
    graph = sparse.csr_array((weights, pairs))
    best = csgraph.min_weight_full_bipartite_matching(graph, maximize=True)
    return sum(similarities.get(pair, 0.0) for pair in zip(*(side.tolist() for side in best)))


def _lea(document):
    recall = _count_links(document.gold, document.predicted_of, document.predicted)
    precision = _count_links(document.predicted, document.gold_of, document.gold)
    return recall, _num_mentions(document.gold), precision, _num_mentions(document.predicted)


def _count_links(clusters, other_of, others):
    """Returns the sum of the clusters' sizes, each times the share of its links in the others."""
    resolved = 0.0
    for (i, other), number in _count_common(clusters, other_of).items():
        if len(clusters[i]) == 1:
            resolved += len(others[other]) == 1
        else:
            resolved += number * (number - 1) / (len(clusters[i]) - 1)
    return resolved


def _mentions(document):
    matched = len(document.gold_of.keys() & document.predicted_of.keys())
    return matched, len(document.gold_of), matched, len(document.predicted_of)


MEASURES = {
    "muc": _muc, "b_cubed": _b_cubed, "ceaf_e": _ceaf_e, "lea": _lea, "mentions": _mentions
}  # fmt: skip


def _percentages(recall_part, recall_whole, precision_part, precision_whole):
    recall = recall_part / recall_whole if recall_whole else 0.0
    precision = precision_part / precision_whole if precision_whole else 0.0
    f1 = 2.0 * precision * recall / (precision + recall) if precision + recall else 0.0
    return {"precision": 100.0 * precision, "recall": 100.0 * recall, "f1": 100.0 * f1}
