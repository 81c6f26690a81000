"""Micro and macro F1 computed by hand. scikit-learn 1.9.1 gives the same results."""

import numpy as np
import pytest

from keras_spanbert.metrics.counts import accuracy_and_macro_f1, f1_scores


def test_scores_computed_by_hand():
    labels = np.array([[1, 0, 1, 0], [0, 0, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]])
    predictions = np.array([[1, 0, 0, 0], [0, 0, 1, 0], [1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 0, 0]])
    # Per class: 6/6, 0/2, 2/4, and 0 for the class that never occurs.
    expected = {"micro_f1": 8 / 12, "macro_f1": 1.5 / 4}
    assert f1_scores(labels, predictions) == pytest.approx(expected)
    nothing = np.zeros((2, 3), bool)
    assert f1_scores(nothing, nothing) == {"micro_f1": 0.0, "macro_f1": 0.0}
    # Class 2 does not occur, so the mean is over 4/6, 2/3 and 2/3.
    found = accuracy_and_macro_f1(np.array([0, 0, 0, 1, 3, 3]), np.array([0, 0, 1, 1, 3, 0]))
    assert found == pytest.approx({"accuracy": 4 / 6, "macro_f1": 2 / 3})
