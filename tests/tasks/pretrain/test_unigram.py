"""The scores of a model that ignores the context."""

import numpy as np
import pytest

from keras_spanbert.tasks.pretrain.objectives import unigram_entropies


def batch(mlm_ids, mlm_weights, sbo_ids, sbo_weights):
    y = {"mlm": np.array([mlm_ids]), "sbo": np.array([sbo_ids])}
    return None, y, {"mlm": np.array([mlm_weights]), "sbo": np.array([sbo_weights])}


def test_unigram_entropies_by_hand():
    # A quarter is added to each: 13/28, 9/28, 5/28, 1/28.
    counts = np.array([3, 2, 1, 0])
    dataset = [
        batch([0, 1, 3], [1.0, 1.0, 0.0], [2, 0, 0], [1.0, 0.0, 0.0]),
        batch([3, 0, 0], [1.0, 0.0, 0.0], [3, 1, 0], [1.0, 1.0, 0.0]),
    ]
    entropies = unigram_entropies(counts, dataset)
    assert entropies == {
        "mlm": pytest.approx(-np.log(13 * 9 * 1 / 28**3) / 3),
        "sbo": pytest.approx(-np.log(5 * 1 * 9 / 28**3) / 3),
    }


def test_baseline_without_targets_and_of_pairs():
    # Short held-out blocks may have no span with both neighbours.
    dataset = [batch([0, 1], [1.0, 1.0], [0, 0], [0.0, 0.0])]
    entropies = unigram_entropies(np.array([1, 1]), dataset)
    assert entropies == {"mlm": pytest.approx(np.log(2)), "sbo": 0.0}
    y = {"mlm": np.array([[0, 1]]), "nsp": np.array([1, 0, 0])}
    weights = {"mlm": np.array([[1.0, 0.0]]), "nsp": np.array([1.0, 1.0, 0.0])}
    entropies = unigram_entropies(np.array([1, 1]), [(None, y, weights)])
    assert entropies == {"mlm": pytest.approx(np.log(2)), "nsp": pytest.approx(np.log(2))}
