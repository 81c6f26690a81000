"""`fit`, `evaluate` and `predict` on whatever `keras.Model.fit` takes."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from batch_streams import KINDS, stream
from tiny_answerer import build, examples

SIZE = 4
QUESTIONS, CONTEXTS, ANSWERS = examples(10, seed=1)
CONTEXTS[1] = " ".join([CONTEXTS[1]] * 4)  # Of several windows.
ANSWERS[2] = None
X = {"question": QUESTIONS, "context": CONTEXTS}
COLUMNS = {
    "text": [answer["text"] if answer else "" for answer in ANSWERS],
    "answer_start": [answer["answer_start"] if answer else -1 for answer in ANSWERS],
}
PARTS = [slice(i, i + SIZE) for i in range(0, 10, SIZE)]


def rows(columns, part):
    return {name: column[part] for name, column in columns.items()}


def evaluate(model, *args, **kwargs):
    return model.evaluate(*args, **{**kwargs, "verbose": 0, "return_dict": True})["loss"]


@pytest.fixture(scope="module")
def model():
    """Tests train it at a learning rate of 0."""
    model = build()
    # Tracing takes longer than these few steps.
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=keras.backend.backend() == "tensorflow")
    return model


@pytest.fixture(scope="module")
def expected(model):
    """The loss over all windows and their logits."""
    loss = evaluate(model, X, ANSWERS, batch_size=64, verbose=0)
    return loss, model.predict(X, batch_size=64, verbose=0)["start"]


@pytest.mark.parametrize("container", [list, tuple, np.array, tf.constant])
def test_rows_of_strings_in_any_container(model, expected, container):
    x = {name: container(column) for name, column in X.items()}
    arguments = {"batch_size": 64, "verbose": 0}
    assert evaluate(model, x, ANSWERS, **arguments) == pytest.approx(expected[0], rel=1e-5)
    np.testing.assert_allclose(model.predict(x, **arguments)["start"], expected[1], atol=1e-5)
    history = model.fit(x, COLUMNS, validation_data=(x, ANSWERS), **arguments).history
    losses = [history["loss"][0], history["val_loss"][0]]
    np.testing.assert_allclose(losses, expected[0], rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("are_strings", [True, False])
def test_batches_of_any_kind(model, expected, kind, are_strings):
    batches = [(rows(X, part), rows(COLUMNS, part)) for part in PARTS]
    if not are_strings:
        batches = [model.preprocess(*batch)[:2] for batch in batches]
    ends = {} if kind in ("dataset", "py_dataset", "data_loader") else {"steps": len(PARTS)}
    _, outputs = expected
    predicted = model.predict(stream(kind, batches), verbose=0, **ends)["start"]
    np.testing.assert_allclose(predicted, outputs, atol=1e-5)
    evaluated = evaluate(model, stream(kind, batches), verbose=0, **ends)
    steps = {"steps_per_epoch": 3, "validation_steps": 3} if ends else {}
    history = model.fit(
        stream(kind, batches), validation_data=stream(kind, batches), verbose=0, **steps
    ).history
    np.testing.assert_allclose(evaluated, expected[0], rtol=0.2)  # Batches differ in size.
    np.testing.assert_allclose(history["loss"] + history["val_loss"], evaluated, rtol=1e-5)


def test_answers_may_be_rows_of_batches(model):
    batches = [(rows(X, part), ANSWERS[part]) for part in PARTS]
    by_rows = evaluate(model, stream("py_dataset", batches), verbose=0)
    batches = [(x, rows(COLUMNS, part)) for (x, _), part in zip(batches, PARTS)]
    assert by_rows == evaluate(model, stream("py_dataset", batches), verbose=0)


def test_validation_split_holds_out_the_last_questions(model):
    history = model.fit(X, ANSWERS, validation_split=0.4, batch_size=64, verbose=0).history
    last = evaluate(model, rows(X, slice(6, None)), ANSWERS[6:], batch_size=64, verbose=0)
    assert history["val_loss"][0] == pytest.approx(last, rel=1e-5)


def test_a_questions_weight_is_its_windows(model):
    weights = np.zeros(10)
    weights[5] = 1.0  # Of one window.
    one = evaluate(model, rows(X, slice(5, 6)), ANSWERS[5:6], verbose=0)
    windows = len(model.preprocessor.windows(QUESTIONS, CONTEXTS)["token_ids"])
    assert windows > 10
    weighted = evaluate(model, X, ANSWERS, 64, sample_weight=weights, verbose=0)
    assert weighted == pytest.approx(one / windows, rel=1e-4)


@pytest.mark.parametrize(
    "x, y, message",
    [
        ("text", ANSWERS, "Received: x='text', of type str"),
        (None, None, "Received: x=None"),
        ([], [], r"Received: x=\[\], of type list"),
        ({}, [], r"Received: x=\{\}, of type dict"),
        ({"question": [], "context": []}, [], "one row or more"),
        (QUESTIONS, ANSWERS, '"question" and "context", lists .* of type list'),
        (X, None, "labels to train or evaluate on. Received: y=None"),
        (X, ["ann"] * 10, r"\{'text': string, .* Received: answers\[0\]='ann'"),
        (X, [{"text": "ann"}] * 10, r"Received: answers\[0\]=\{'text': 'ann'\}"),
        (X, "ann", "`answers` must be a list .* Received: 'ann', of type str"),
        ({**X, "question": "who"}, ANSWERS, "`questions` must be a list .* questions='who'"),
        (tf.data.Dataset.from_tensors(QUESTIONS), None, '"question" and "context"'),
    ],
)
def test_x_or_y_of_another_kind_is_named_with_the_rule(model, x, y, message):
    for method in [model.fit, model.evaluate]:
        with pytest.raises(ValueError, match=message):
            method(x, y, verbose=0)


@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_strings_without_labels_are_named(model, kind):
    for method in [model.evaluate, model.fit]:
        with pytest.raises(ValueError, match="labels to train or evaluate on. Received: y=None"):
            method(stream(kind, [X]), verbose=0)


def test_methods_of_one_batch_name_strings(model):
    for method in [model.train_on_batch, model.test_on_batch, model.predict_on_batch]:
        with pytest.raises(ValueError, match="a dict of the model's arrays.* x={'question'"):
            method(X)


def test_weights_that_do_not_fit_the_questions_are_named(model):
    with pytest.raises(ValueError, match=r"shape \(3,\) for 10 questions"):
        model.fit(X, ANSWERS, sample_weight=[1.0] * 3, verbose=0)
