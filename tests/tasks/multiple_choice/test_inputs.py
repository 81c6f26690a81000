"""`fit`, `evaluate` and `predict` on whatever `keras.Model.fit` takes."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from batch_streams import KINDS, stream
from tiny_chooser import build, examples

SIZE = 4
ROWS = examples(10, seed=1)
PADDED = [[*row["choices"], *[""] * (4 - len(row["choices"]))] for row in ROWS]
X = {"prompt": [row["prompt"] for row in ROWS], "choices": PADDED}
LABELS = [row["label"] for row in ROWS]
PARTS = [slice(i, i + SIZE) for i in range(0, 10, SIZE)]
QUIET = {"verbose": 0, "batch_size": 16}


def arrays(x):
    return {name: np.array(column) for name, column in x.items()}


def rows(columns, part):
    return {name: column[part] for name, column in columns.items()}


@pytest.fixture(scope="module")
def model():
    """Tests train it at a learning rate of 0."""
    model = build()
    # Tracing takes longer than these few steps.
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=keras.backend.backend() == "tensorflow")
    return model


@pytest.fixture(scope="module")
def expected(model):
    """The loss over all questions and their logits."""
    loss = model.evaluate(ROWS, return_dict=True, **QUIET)["loss"]
    return loss, model.predict(ROWS, **QUIET)


@pytest.mark.parametrize(
    "x",
    [
        {"prompt": X["prompt"], "choices": [row["choices"] for row in ROWS]},
        arrays(X),
        {name: tf.constant(column) for name, column in X.items()},
        {**arrays(X), "context": [""] * 10},
    ],
)
def test_columns_in_any_container(model, expected, x):
    evaluated = model.evaluate(x, LABELS, return_dict=True, **QUIET)["loss"]
    assert evaluated == pytest.approx(expected[0], rel=1e-5)
    np.testing.assert_allclose(model.predict(x, **QUIET), expected[1], atol=1e-5)


def test_examples_hold_their_labels(model, expected):
    history = model.fit(ROWS, validation_data=(ROWS,), **QUIET).history
    found = [history["loss"][0], history["val_loss"][0]]
    np.testing.assert_allclose(found, expected[0], rtol=1e-5)
    without = [{**row, "label": None} for row in ROWS]
    with pytest.raises(ValueError, match="must have labels to train or evaluate on"):
        model.fit(without, **QUIET)
    history = model.fit(without, np.array(LABELS), validation_split=0.4, **QUIET).history
    last = model.evaluate(ROWS[6:], return_dict=True, **QUIET)["loss"]
    assert history["val_loss"][0] == pytest.approx(last, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["strings", "arrays", "examples"])
def test_batches_of_any_kind(model, expected, kind, form):
    if form == "examples":
        if kind == "dataset":
            pytest.skip("A dataset holds tensors")
        batches = [ROWS[part] for part in PARTS]
    else:
        batches = [(rows(arrays(X), part), np.array(LABELS[part])) for part in PARTS]
    if form == "arrays":
        batches = [model.preprocess(*batch)[:2] for batch in batches]
    ends = {} if kind in ("dataset", "py_dataset", "data_loader") else {"steps": len(PARTS)}
    steps = {"steps_per_epoch": 3} if ends else {}
    evaluated = model.evaluate(stream(kind, batches), verbose=0, return_dict=True, **ends)
    np.testing.assert_allclose(evaluated["loss"], expected[0], rtol=0.2)  # Batches differ in size.
    history = model.fit(stream(kind, batches), verbose=0, **steps).history
    np.testing.assert_allclose(history["loss"], evaluated["loss"], rtol=1e-5)


def test_questions_may_have_weights(model):
    weights = np.zeros(10)
    weights[5] = 2.0
    alone = model.evaluate(ROWS[5:6], return_dict=True, **QUIET)
    weighted = model.evaluate(ROWS, sample_weight=weights, return_dict=True, **QUIET)
    assert weighted["loss"] == pytest.approx(alone["loss"], rel=1e-4)
    assert weighted["accuracy"] == alone["accuracy"]


def test_arrays_without_a_mask_are_all_choices(model):
    x = model.preprocess(examples(4, choices=3))[0]
    without = {name: array for name, array in x.items() if name != "choice_mask"}
    np.testing.assert_allclose(model.predict(without, **QUIET), model.predict(x, **QUIET))


@pytest.mark.parametrize(
    "x, y, message",
    [
        ("text", [0], "Received: x='text', of type str"),
        ([], [], r"Received: x=\[\], of type list"),
        (["text"], [0], '"prompt" and "choices".* of type list'),
        ({"prompt": ["a"]}, [0], '"prompt" and "choices".* of type dict'),
        (X, None, "labels to train or evaluate on. Received: y=None"),
        (X, LABELS[1:], "`y` must have a value for each row. Received: 9 for 10 rows"),
    ],
)
def test_mistake_is_named(model, x, y, message):
    x = arrays(x) if x is X else x
    with pytest.raises(ValueError, match=message):
        model.fit(x, y, verbose=0)
