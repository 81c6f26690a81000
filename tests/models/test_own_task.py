"""Batches of user-defined tasks. tests/tasks/test_inputs.py tests all other inputs."""

import grain
import numpy as np
import pytest
import tensorflow as tf
from torch.utils.data import DataLoader

from keras_spanbert.data.batches import Batches
from keras_spanbert.models.fit_strings import kind_of, unpack


@pytest.mark.once
def test_list_of_dicts_is_rows_if_they_share_a_key():
    x, y = {"question": ["a", "b"]}, {"text": ["c", "d"]}
    assert unpack((x, y)) == (x, y, None)
    for pair in [[x, y], [{"token_ids": 1}, {"start": 2}]]:
        with pytest.raises(ValueError, match=r"`\(x, y\)` must be a tuple.* Received: \[\{"):
            unpack(pair)
    rows = [{"left": "a", "right": "b"}, {"left": "c"}]
    assert unpack(rows) == (rows, None, None)
    assert unpack(rows[:1]) == (rows[:1], None, None)
    assert unpack([{"token_ids": 1}]) == ({"token_ids": 1}, None, None)


@pytest.mark.once
def test_kinds_of_data():
    arrays, rows = {"token_ids": np.ones((2, 3))}, [{"left": "a"}]
    dataset = tf.data.Dataset.from_tensor_slices(["a", "b"])
    kinds = {
        "arrays": [arrays, (arrays, [0, 1]), (arrays,)],
        "rows": ["a", ["a"], ("a", "b"), rows, {"left": ["a"]}, [arrays], None, 3, ()],
        "dataset": [dataset],
        "py_dataset": [Batches((np.ones(3),), 2, 1)],
        "stream": [DataLoader(["a"]), iter(["a"]), (x for x in "ab"), grain.MapDataset.source("a")],
    }
    for kind, values in kinds.items():
        assert [kind_of(value) for value in values] == [kind] * len(values)
