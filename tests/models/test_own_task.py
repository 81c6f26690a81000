"""User-defined tasks support everything that the included tasks support."""

import keras
import numpy as np
import pytest
from batch_streams import KINDS
from batch_streams import stream as stream_of
from own_task import build, examples
from torch.utils.data import DataLoader

from keras_spanbert.models.batches import unpack

ROWS = examples(7)
LABELS = [row["similarity"] for row in ROWS]
PARTS = [slice(i, i + 2) for i in range(0, 7, 2)]  # The last one has a single row.


def columns(part=slice(None)):
    return {name: [row[name] for row in ROWS[part]] for name in ["left", "right"]}


@pytest.fixture(scope="module")
def model():
    """A model with learning rate 0, which training does not change."""
    model = build()
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=keras.backend.backend() == "tensorflow")
    return model


@pytest.fixture(scope="module")
def expected(model):
    """The loss and outputs computed from arrays."""
    inputs, labels = model.preprocessor.call(ROWS)
    outputs = model.predict(inputs, verbose=0)
    return np.mean((outputs - labels) ** 2), outputs


@pytest.mark.parametrize("x, y", [(ROWS, None), (ROWS, LABELS), (columns(), np.array(LABELS))])
def test_rows(model, expected, x, y):
    loss, outputs = expected
    np.testing.assert_allclose(model.predict(x, verbose=0), outputs, atol=1e-5)
    assert model.evaluate(x, y, batch_size=7, verbose=0) == pytest.approx(loss, rel=1e-5)
    history = model.fit(x, y, batch_size=7, validation_data=(x, y), verbose=0).history
    np.testing.assert_allclose([history["loss"], history["val_loss"]], loss, rtol=1e-5)


BATCHES = {
    "examples": [ROWS[part] for part in PARTS],
    "examples and labels": [(ROWS[part], np.array(LABELS[part])) for part in PARTS],
    "columns": [(columns(part), np.array(LABELS[part])) for part in PARTS],
}


@pytest.mark.once("torch")
@pytest.mark.parametrize(
    "kind, form",
    [(kind, form) for kind in KINDS for form in BATCHES if (kind, form[:2]) != ("dataset", "ex")],
)
def test_batches(model, expected, kind, form):
    loss, outputs = expected

    def stream():
        return stream_of(kind, BATCHES[form])

    ends = {} if kind in ("dataset", "py_dataset", "data_loader") else {"steps": len(PARTS)}
    np.testing.assert_allclose(model.predict(stream(), verbose=0, **ends), outputs, atol=1e-5)
    assert model.evaluate(stream(), verbose=0, **ends) == pytest.approx(loss, rel=0.1)
    steps = {"steps_per_epoch": len(PARTS)} if ends else {}
    history = model.fit(stream(), verbose=0, **steps).history
    assert history["loss"][0] == pytest.approx(loss, rel=0.1)


@pytest.mark.once
def test_tuples_collated_by_a_data_loader(model, expected):
    loss, outputs = expected
    inputs = [({"left": row["left"], "right": row["right"]},) for row in ROWS]
    predicted = model.predict(DataLoader(inputs, batch_size=3), verbose=0)
    np.testing.assert_allclose(predicted, outputs, atol=1e-5)
    labelled = [(*x, np.float32(y)) for x, y in zip(inputs, LABELS)]
    found = model.evaluate(DataLoader(labelled, batch_size=7), verbose=0)
    assert found == pytest.approx(loss, rel=1e-5)


@pytest.mark.once
def test_list_of_dicts_is_rows_if_they_share_a_key():
    x, y = {"question": ["a", "b"]}, {"text": ["c", "d"]}
    assert unpack([x, y]) == unpack((x, y)) == (x, y, None)  # PyTorch converts the tuple to a list.
    rows = [{"left": "a", "right": "b"}, {"left": "c"}]
    assert unpack(rows) == (rows, None, None)
    assert unpack(rows[:1]) == (rows[:1], None, None)
    assert unpack([{"token_ids": 1}]) == ({"token_ids": 1}, None, None)
