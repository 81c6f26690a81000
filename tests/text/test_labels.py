"""Labels as numbers."""

import numpy as np
import pytest

from keras_spanbert.tasks.classification.preprocessor import label_rows
from keras_spanbert.text.labels import as_labels


@pytest.mark.parametrize("labels", [[3_000_000_000, 1], [-(2**31) - 1, 1], [10**20, 1]])
def test_large_integers_are_values_of_a_regression(labels):
    found = as_labels(labels, None)
    assert found.dtype == "float32" and found.tolist() == np.array(labels, "float32").tolist()


def test_integers_stay_integers_if_they_fit():
    assert as_labels([2**31 - 1, -(2**31), True], None).dtype == "int32"


def test_numbers_beyond_float32_are_refused():
    with pytest.raises(ValueError, match="finite number.*Received: 1e[+]300 at 1"):
        as_labels([0.5, 1e300], None)


STARS = ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize(
    ("names", "labels", "expected"),
    [
        (STARS, [1, 2, 5], [0, 1, 4]),
        (STARS, ["1", "2", "5"], [0, 1, 4]),
        (STARS, [0, 1], "s 5: 1, 2, 3, 4, 5, as a string or an integer"),
        (["0", "1", "10", "2"], [2, 10, 0], [3, 2, 0]),
        (["-1", "0", "1"], [-1, 0, 1], [0, 1, 2]),
        (["bad", "1", "02"], [0, 1, 2], [0, 1, 2]),
        (["1", "bad"], ["1", "bad"], [0, 1]),
        (["1", "bad"], [1, 0], "1, bad, as a string, because an integer could be"),
    ],
)  # fmt: skip
def test_integers_are_names_if_all_names_are_integers(names, labels, expected):
    if isinstance(expected, list):
        assert as_labels(labels, names).tolist() == expected
        assert as_labels(np.array(labels), names).tolist() == expected
    else:
        with pytest.raises(ValueError, match=expected):
            as_labels(labels, names)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float32"])
def test_rows_of_labels_have_any_dtype(dtype):
    labels = np.array([[0, 1, 1], [0, 0, 0]], dtype)
    names = ["a", "b", "c"]
    assert label_rows(labels, names).tolist() == labels.astype(int).tolist()
