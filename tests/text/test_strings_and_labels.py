"""Strings and labels in any container, and values that are neither."""

import numpy as np
import pytest
import tensorflow as tf

from keras_spanbert.tasks.classification.preprocessor import label_rows
from keras_spanbert.text.labels import as_labels
from keras_spanbert.text.strings import as_strings, replace_surrogates

TEXTS = ["Ann", "é漢😀"]


class Series:
    """A column like those of dataframe libraries, which can be converted to an array."""

    dtype = "string"

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, object)


@pytest.mark.parametrize(
    "container",
    [
        list,
        tuple,
        np.array,
        lambda texts: np.array(texts, object),
        lambda texts: np.array([text.encode() for text in texts]),
        lambda texts: np.array([text.encode() for text in texts], object),
        tf.constant,
        lambda texts: np.array(texts, np.dtypes.StringDType()),
        Series,
    ],
)
def test_strings_in_any_container_become_a_list(container):
    assert as_strings("x", container(TEXTS)) == TEXTS


def test_invalid_strings_are_named():
    for value, received in [
        ("Ann", "x='Ann', of type str"),
        (["Ann", None], r"x\[1\]=None, of type NoneType"),
        (np.array([TEXTS]), "x=array.*, of type ndarray"),
    ]:
        message = f"must be a (list of )?strings?. Received: {received}"
        with pytest.raises(ValueError, match=message):
            as_strings("x", value)


def test_only_lone_surrogates_are_replaced():
    assert replace_surrogates("a\ud800é\udc00") == "a\ufffdé\ufffd"
    assert replace_surrogates("é漢😀") == "é漢😀"


# === Labels as numbers ===
def test_large_integers_are_values_of_a_regression():
    for labels in [[3_000_000_000, 1], [-(2**31) - 1, 1], [10**20, 1]]:
        found = as_labels(labels, None)
        assert found.dtype == "float32" and found.tolist() == np.array(labels, "float32").tolist()
    assert as_labels([2**31 - 1, -(2**31), True], None).dtype == "int32"
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


def test_rows_of_labels_have_any_dtype():
    for dtype in ["bool", "uint8", "int64", "float32"]:
        labels = np.array([[0, 1, 1], [0, 0, 0]], dtype)
        assert label_rows(labels, ["a", "b", "c"]).tolist() == labels.astype(int).tolist()
