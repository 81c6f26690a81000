"""Mean, spread and interval of runs' scores."""

import numpy as np
import pytest
import scipy.stats

from keras_spanbert.runs.statistics import summary


def test_mean_and_deviation_are_those_worked_out_by_hand():
    found = summary([1.0, 2.0, 6.0])
    # Squares of the differences from 3: 4 + 1 + 9, over 2.
    assert found["mean"] == 3.0
    assert found["standard_deviation"] == pytest.approx(7.0**0.5)


@pytest.mark.parametrize(
    "values, interval",
    [
        # A sample has the same value twice in a quarter of the cases.
        ([3.0, 5.0], [3.0, 5.0]),
        # Thrice the same in one of 27, 3.7%: more than the 2.5% that are cut off.
        ([1.0, 2.0, 6.0], [1.0, 6.0]),
        # No 1 in 33% of the samples; three or more in 5.8%, four or more in 0.7%.
        ([0.0, 0.0, 0.0, 0.0, 1.0], [0.0, 0.6]),
        ([7.0, 7.0, 7.0], [7.0, 7.0]),
    ],
)
def test_interval_is_the_one_worked_out_by_hand(values, interval):
    for seed in range(3):
        assert summary(values, seed)["interval"] == pytest.approx(interval)


def test_interval_is_that_of_scipy():
    values = np.random.default_rng(1).normal(70.0, 2.0, 11)
    theirs = scipy.stats.bootstrap(
        (values,), np.mean, n_resamples=50_000, method="percentile", rng=np.random.default_rng(2)
    ).confidence_interval
    assert summary(values)["interval"] == pytest.approx([theirs.low, theirs.high], abs=0.05)
    assert summary(values)["standard_deviation"] == pytest.approx(np.std(values, ddof=1))


def test_seed_alone_decides():
    values = np.random.default_rng(1).normal(70.0, 2.0, 23)
    assert summary(values, 1) == summary(values.tolist(), 1)
    assert summary(values, 1)["interval"] != summary(values, 2)["interval"]


def test_one_value_has_no_spread():
    assert summary([64.2]) == {"mean": 64.2, "standard_deviation": None, "interval": None}
