"""Mean, standard deviation and interval of the scores of runs."""

import numpy as np
import pytest

from keras_spanbert.runs.statistics import summary


@pytest.mark.parametrize(
    "values, interval",
    [
        # A quarter of the samples have the same value twice.
        ([3.0, 5.0], [3.0, 5.0]),
        # Three equal values have probability 1/27 = 3.7%, more than 2.5%.
        ([1.0, 2.0, 6.0], [1.0, 6.0]),
        # 33% of the samples have no 1, 5.8% have three or more, and 0.7% have four or more.
        ([0.0, 0.0, 0.0, 0.0, 1.0], [0.0, 0.6]),
        ([7.0, 7.0, 7.0], [7.0, 7.0]),
    ],
)
def test_interval_computed_by_hand(values, interval):
    for seed in range(3):
        assert summary(values, seed)["interval"] == pytest.approx(interval)


def test_interval_depends_only_on_the_seed():
    values = np.random.default_rng(1).normal(70.0, 2.0, 23)
    assert summary(values, 1) == summary(values.tolist(), 1)
    assert summary(values, 1)["interval"] != summary(values, 2)["interval"]
    assert summary([64.2]) == {"mean": 64.2, "standard_deviation": None, "interval": None}
