import itertools
import time

import numpy as np
import pytest
import tensorflow as tf
import tensorflow.experimental.numpy as tnp

from keras_spanbert.metrics.entities import read_tags
from keras_spanbert.tasks.token_classification.decoding import (
    best_labels,
    entities,
    log_probabilities,
    scheme,
)

LABELS = ["O", "B-a", "I-a", "B-b", "I-b"]


def scores_of(*rows, labels=LABELS):
    """Logarithms of probabilities, of which rows name the highest; the others share the rest."""
    scores = []
    for row in rows:
        rest = (1.0 - sum(row.values())) / (len(labels) - len(row))
        scores.append([np.log(row.get(label, rest)) for label in labels])
    return np.array(scores)


def decode(scores, sizes, labels=LABELS):
    rules = scheme(labels)
    return [rules.names[i] for i in best_labels(np, scores, np.array(sizes, "int32"), rules)]


def best_of_all(scores, rules):
    """The highest sum that a valid sequence has, of all sequences."""
    best = -np.inf
    for path in itertools.product(range(len(rules.names)), repeat=len(scores)):
        pairs = zip((rules.outside, *path), path)
        if all(rules.goes_on[a, b] or not rules.is_bound[b] for a, b in pairs):
            best = max(best, sum(row[label] for row, label in zip(scores, path)))
    return best


def test_labels_within_an_entity_stand_behind_its_beginning():
    scores = scores_of({"B-a": 0.9}, {"I-b": 0.5, "I-a": 0.4}, {"I-a": 0.9}, {"O": 0.9})
    assert decode(scores, [4]) == ["B-a", "I-a", "I-a", "O"]


def test_beginning_is_found_where_what_follows_is_sure_enough():
    follows = {"I-a": 0.9}
    assert decode(scores_of({"O": 0.6, "B-a": 0.3}, follows), [2]) == ["B-a", "I-a"]
    assert decode(scores_of({"O": 0.98, "B-a": 0.001}, follows), [2]) == ["O", "O"]


def test_no_entity_goes_from_one_text_into_the_next():
    row = {"I-a": 0.6, "B-a": 0.3}
    scores = scores_of({"B-a": 0.9}, row, row)
    assert decode(scores, [1, 0, 2]) == ["B-a", "B-a", "I-a"]
    assert decode(scores, [3]) == ["B-a", "I-a", "I-a"]


def test_type_that_no_label_begins_begins_with_those_inside():
    labels = ["O", "I-a", "B-b", "I-b"]
    scores = scores_of({"I-a": 0.9}, {"I-b": 0.9}, labels=labels)
    assert decode(scores, [2], labels)[0] == "I-a"


def test_labels_of_no_entities_have_no_order():
    labels = ["NN", "VB", "I-x"]
    rules = scheme(labels)
    assert not rules.is_bound.any() and rules.names == [*labels, "O"]
    logits = np.array([[0.0, 0.0, 5.0], [0.0, 0.0, 5.0], [5.0, 0.0, 0.0]])
    scores = log_probabilities(np, logits, rules)
    assert scores[0, 3] == -np.inf and np.exp(scores).sum() == pytest.approx(3.0)
    labels = best_labels(np, scores, np.array([3], "int32"), rules)
    found = entities(np, scores, labels, np.array([3], "int32"), rules)
    # Each word is one.
    assert [rules.kinds[kind] for kind in found.kind] == ["I-x", "I-x", "NN"]
    assert found.first.tolist() == found.last.tolist() == [0, 1, 2]


@pytest.mark.parametrize("labels", [LABELS, ["B-a", "I-a", "E-a", "S-a", "O"], ["B-a", "I-a"]])
def test_of_all_valid_sequences_it_is_the_best_in_graphs_too(labels):
    rules, rng = scheme(labels), np.random.default_rng(0)

    def both(scores, sizes):
        found = best_labels(tnp, scores, sizes, rules)
        return found, *entities(tnp, scores, found, sizes, rules)

    signature = [
        tf.TensorSpec([None, len(rules.names)], tf.float64),
        tf.TensorSpec([None], "int32"),
    ]
    in_graph = tf.function(both, input_signature=signature, autograph=False)
    for scale, _ in itertools.product([0.3, 2.0, 8.0], range(8)):
        sizes = rng.integers(0, 6, size=rng.integers(0, 4)).astype("int32")
        logits = rng.normal(size=(sizes.sum(), len(labels))) * scale
        scores = log_probabilities(np, logits, rules)
        found = best_labels(np, scores, sizes, rules)
        for begin, size in zip(np.cumsum(sizes) - sizes, sizes):
            rows = slice(begin, begin + size)
            total = scores[rows][np.arange(size), found[rows]].sum()
            assert total == pytest.approx(best_of_all(scores[rows], rules), abs=1e-9)
        expected = [found, *entities(np, scores, found, sizes, rules)]
        for one, other in zip(in_graph(scores, sizes), expected):
            np.testing.assert_allclose(one.numpy(), other)


def test_entities_are_those_that_the_metric_reads():
    rules, rng = scheme(LABELS), np.random.default_rng(1)
    sizes = np.array([0, 30, 1, 0, 40], "int32")
    scores = log_probabilities(np, rng.normal(size=(71, 5)) * 3, rules)
    labels = best_labels(np, scores, sizes, rules)
    found = entities(np, scores, labels, sizes, rules)
    starts = np.cumsum(sizes) - sizes
    expected = [
        (text, start + first, start + end - 1, kind)
        for text, (start, size) in enumerate(zip(starts, sizes))
        for kind, first, end in read_tags(
            [rules.names[i] for i in labels[start : start + size]], strict=True
        )
    ]
    kinds = [rules.kinds[kind] for kind in found.kind]
    assert list(zip(found.text, found.first, found.last, kinds)) == expected and expected
    for first, last, score in zip(found.first, found.last, found.score):
        words = np.arange(first, last + 1)
        assert score == pytest.approx(np.exp(scores[words, labels[words]]).mean())


def test_text_of_many_words_takes_no_time_a_word():
    rules, rng = scheme(LABELS), np.random.default_rng(2)
    scores = log_probabilities(np, rng.normal(size=(100_000, 5)), rules)
    begin = time.perf_counter()
    best_labels(np, scores, np.array([100_000], "int32"), rules)
    assert time.perf_counter() - begin < 2.0  # A loop over words takes longer; 0.2 s.
