import itertools
import time

import numpy as np
import pytest
import tensorflow as tf
import tensorflow.experimental.numpy as tnp
from comparisons import assert_close

from keras_spanbert.metrics.entities import read_tags
from keras_spanbert.tasks.token_classification.decoding import (
    best_labels,
    entities,
    is_of_entities,
    log_probabilities,
    scheme,
)

LABELS = ["O", "B-a", "I-a", "B-b", "I-b"]


def exhaustive_best(scores, rules):
    """Returns the highest sum of a valid sequence, by trying all sequences."""
    best = -np.inf
    for path in itertools.product(range(len(rules.names)), repeat=len(scores)):
        pairs = zip((rules.outside, *path), path)
        if all(rules.goes_on[a, b] or not rules.is_bound[b] for a, b in pairs):
            best = max(best, sum(row[label] for row, label in zip(scores, path)))
    return best


def test_labels_inside_an_entity_follow_others_of_its_type():
    rules = scheme(LABELS)
    pairs = [(LABELS[i], LABELS[j]) for i, j in np.argwhere(rules.goes_on)]
    assert pairs == [("B-a", "I-a"), ("I-a", "I-a"), ("B-b", "I-b"), ("I-b", "I-b")]
    assert rules.is_bound.tolist() == [False, False, True, False, True]
    # Without B-a, an entity may begin with I-a.
    assert scheme(["O", "I-a", "B-b", "I-b"]).is_bound.tolist() == [False, False, False, True]


def test_other_labels_have_no_order():
    labels = ["NN", "VB", "I-x"]
    rules = scheme(labels)
    assert not rules.is_bound.any() and rules.names == [*labels, "O"]
    logits = np.array([[0.0, 0.0, 5.0], [0.0, 0.0, 5.0], [5.0, 0.0, 0.0]])
    scores = log_probabilities(np, logits, rules)
    assert scores[0, 3] == -np.inf and np.exp(scores).sum() == pytest.approx(3.0)
    labels = best_labels(np, scores, np.array([3], "int32"), rules)
    found = entities(np, scores, labels, np.array([3], "int32"), rules)
    # Each word is its own span.
    assert [rules.kinds[kind] for kind in found.kind] == ["I-x", "I-x", "NN"]
    assert found.first.tolist() == found.last.tolist() == [0, 1, 2]


IOBES, BILOU = (["O", *(f"{p}-a" for p in prefixes)] for prefixes in ["BIES", "BILU"])


def test_prefixes_of_bilou_are_those_of_iobes():
    assert is_of_entities(BILOU) and is_of_entities(["O", "U-a"])
    assert not is_of_entities([*BILOU, "M-a"]) and not is_of_entities(["U", "L-"])
    ours, theirs = scheme(BILOU), scheme(IOBES)
    assert ours.names == BILOU and ours.kinds == ["a"]
    for name in ["kind", "goes_on", "is_bound", "before"]:
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


@pytest.mark.parametrize("labels", [LABELS, [*IOBES[1:], "O"], BILOU, ["B-a", "I-a"]])
def test_best_valid_sequence_is_found(labels):
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
            assert total == pytest.approx(exhaustive_best(scores[rows], rules), abs=1e-9)
        expected = [found, *entities(np, scores, found, sizes, rules)]
        assert_close(list(in_graph(scores, sizes)), expected)


@pytest.mark.parametrize("names, strict", [(LABELS, True), (["I-a", "I-b"], False)])
def test_entities_equal_those_of_the_metric(names, strict):
    rules, rng = scheme(names), np.random.default_rng(1)
    sizes = np.array([0, 30, 1, 0, 40], "int32")
    scores = log_probabilities(np, rng.normal(size=(71, len(names))) * 3, rules)
    labels = best_labels(np, scores, sizes, rules)
    found = entities(np, scores, labels, sizes, rules)
    starts = np.cumsum(sizes) - sizes
    expected = [
        (text, start + first, start + end - 1, kind)
        for text, (start, size) in enumerate(zip(starts, sizes))
        for kind, first, end in read_tags(
            [rules.names[i] for i in labels[start : start + size]], strict
        )
    ]
    kinds = [rules.kinds[kind] for kind in found.kind]
    assert list(zip(found.text, found.first, found.last, kinds)) == expected and expected
    for first, last, score in zip(found.first, found.last, found.score):
        words = np.arange(first, last + 1)
        assert score == pytest.approx(np.exp(scores[words, labels[words]]).mean())


def test_decoding_has_no_loop_over_words():
    rules, rng = scheme(LABELS), np.random.default_rng(2)
    scores = log_probabilities(np, rng.normal(size=(100_000, 5)), rules)
    begin = time.process_time()
    best_labels(np, scores, np.array([100_000], "int32"), rules)
    assert time.process_time() - begin < 2.0  # Usually 0.2 s. A loop over words would take longer.
