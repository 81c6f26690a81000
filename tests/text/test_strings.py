"""Strings in any container, and values that are not strings."""

import numpy as np
import pytest
import tensorflow as tf

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
        lambda texts: Series(texts),
    ],
)
def test_strings_in_any_container_become_a_list(container):
    assert as_strings("x", container(TEXTS)) == TEXTS


@pytest.mark.parametrize(
    "value, received",
    [
        ("Ann", "x='Ann', of type str"),
        (["Ann", None], r"x\[1\]=None, of type NoneType"),
        (np.array([TEXTS]), "x=array.*, of type ndarray"),
    ],
)
def test_invalid_strings_are_named(value, received):
    with pytest.raises(ValueError, match=f"must be a (list of )?strings?. Received: {received}"):
        as_strings("x", value)


def test_only_lone_surrogates_are_replaced():
    assert replace_surrogates("a\ud800é\udc00") == "a\ufffdé\ufffd"
    assert replace_surrogates("é漢😀") == "é漢😀"
