"""Strings in any container, and what is no string."""

import numpy as np
import pytest
import tensorflow as tf

from keras_spanbert.models.strings import as_strings, well_formed

TEXTS = ["Ann", "é漢😀"]


class Series:
    """A column of a table, as libraries for tables have them: no array, but made into one."""

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
def test_strings_of_any_container_are_a_list(container):
    assert as_strings(x=container(TEXTS)) == TEXTS


@pytest.mark.parametrize(
    "value, received",
    [
        ("Ann", "x='Ann', of type str"),
        (b"Ann", "x=b'Ann', of type bytes"),
        (None, "x=None, of type NoneType"),
        (["Ann", None], r"x\[1\]=None, of type NoneType"),
        ([b"Ann"], r"x\[0\]=b'Ann', of type bytes"),
        ([TEXTS], r"x\[0\]=\['Ann', .*, of type list"),
        (np.array([TEXTS]), "x=array.*, of type ndarray"),
        (np.array([1, 2]), r"x=array\(\[1, 2\]\), of type ndarray"),
        (np.array(["Ann", None], object), "x=array.*, of type ndarray"),
    ],
)
def test_what_is_no_list_of_strings_is_named(value, received):
    with pytest.raises(ValueError, match=f"`x` must be a list of strings. Received: {received}"):
        as_strings(x=value)


def test_lone_surrogates_alone_are_replaced():
    assert well_formed("a\ud800é\udc00") == "a\ufffdé\ufffd"
    assert well_formed("é漢😀") == "é漢😀"
