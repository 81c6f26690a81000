"""Batches of user-defined tasks. tests/tasks/test_inputs.py tests all other inputs."""

import grain
import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny_answerer
from own_task import build, examples
from torch.utils.data import DataLoader

from keras_spanbert.data.batches import Batches
from keras_spanbert.models.fit_strings import kind_of, unpack


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
    assert unpack((x, y)) == (x, y, None)
    for pair in [[x, y], [{"token_ids": 1}, {"start": 2}]]:
        with pytest.raises(ValueError, match=r"`\(x, y\)` must be a tuple.* Received: \[\{"):
            unpack(pair)
    rows = [{"left": "a", "right": "b"}, {"left": "c"}]
    assert unpack(rows) == (rows, None, None)
    assert unpack(rows[:1]) == (rows[:1], None, None)
    assert unpack([{"token_ids": 1}]) == ({"token_ids": 1}, None, None)


@pytest.mark.once("torch")
def test_pairs_of_dicts_in_batches():
    """PyTorch returns the tuple of a batch as a list. From other streams, a list is refused."""
    model = tiny_answerer.build()
    model.compile("sgd")
    questions, contexts, answers = tiny_answerer.examples(4)
    x = {"question": questions, "context": contexts}
    y = {name: [answer[name] for answer in answers] for name in answers[0]}
    loss = model.evaluate(x, y, batch_size=100, verbose=0, return_dict=True)["loss"]
    loader = DataLoader([(x, y)], batch_size=None)
    assert model.evaluate(loader, verbose=0, return_dict=True)["loss"] == pytest.approx(loss)
    for fit in [
        lambda: model.fit(iter([[x, y]]), verbose=0),
        lambda: model.fit(x, answers, validation_data=[x, y], verbose=0),
    ]:
        with pytest.raises(ValueError, match=r"`\(x, y\)` must be a tuple"):
            fit()


@pytest.mark.once
def test_kinds_of_data():
    arrays, rows = {"token_ids": np.ones((2, 3))}, [{"left": "a"}]
    dataset = tf.data.Dataset.from_tensor_slices(["a", "b"])
    kinds = {
        "arrays": [arrays, (arrays, [0, 1]), (arrays,)],
        "rows": ["a", ["a"], ("a", "b"), rows, {"left": ["a"]}, [arrays], None, 3, ()],
        "dataset": [dataset],
        "py_dataset": [Batches((np.ones(3),), 2, 1)],
        "data_loader": [DataLoader(["a"])],
        "iterator": [iter(["a"]), (x for x in "ab")],
        "grain": [grain.MapDataset.source(["a"])],
    }
    for kind, values in kinds.items():
        assert [kind_of(value) for value in values] == [kind] * len(values)
