"""Comparison of nests of arrays, tensors, variables and other values of any backend."""

import keras
import numpy as np


def assert_close(found, expected, atol=0.0, rtol=1e-7, message=""):
    """Checks that two nests have equal strings, and numbers within the tolerances."""
    pairs = zip(keras.tree.flatten(found), keras.tree.flatten(expected), strict=True)
    for one, other in pairs:
        if other is None or isinstance(other, (str, int)):
            assert one == other, message
        else:
            one, other = map(keras.ops.convert_to_numpy, (one, other))
            np.testing.assert_allclose(one, other, rtol, atol, err_msg=message)


def assert_rows(found, features, group=""):
    """Checks that a preprocessor gives the rows of a released script, as int32."""
    names = {"token_ids": "input_ids", "segment_ids": "segment_ids", "padding_mask": "input_mask"}
    for name, theirs in names.items():
        assert found[name].dtype == np.int32
        np.testing.assert_array_equal(found[name], features[group + theirs], group + name)
