"""Batches of user-defined tasks. tests/tasks/test_inputs.py tests all other inputs."""

import keras
import numpy as np
import pytest
from own_task import build, examples
from torch.utils.data import DataLoader

from keras_spanbert.models.fit_strings import unpack


@pytest.mark.once
def test_tuples_collated_by_a_data_loader():
    rows, model = examples(7), build()
    model.compile("sgd", run_eagerly=keras.backend.backend() == "tensorflow")
    inputs = [({"left": row["left"], "right": row["right"]},) for row in rows]
    predicted = model.predict(DataLoader(inputs, batch_size=3), verbose=0)
    np.testing.assert_allclose(predicted, model.predict(rows, verbose=0), atol=1e-5)
    labelled = [(*x, np.float32(row["similarity"])) for x, row in zip(inputs, rows)]
    found = model.evaluate(DataLoader(labelled, batch_size=7), verbose=0)
    assert found == pytest.approx(model.evaluate(rows, verbose=0), rel=1e-5)


@pytest.mark.once
def test_list_of_dicts_is_rows_if_they_share_a_key():
    x, y = {"question": ["a", "b"]}, {"text": ["c", "d"]}
    assert unpack([x, y]) == unpack((x, y)) == (x, y, None)  # PyTorch converts the tuple to a list.
    rows = [{"left": "a", "right": "b"}, {"left": "c"}]
    assert unpack(rows) == (rows, None, None)
    assert unpack(rows[:1]) == (rows[:1], None, None)
    assert unpack([{"token_ids": 1}]) == ({"token_ids": 1}, None, None)
