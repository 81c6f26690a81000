"""Labels that are already arrays are checked as labels of strings are, on every backend."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny_pretrainer
from batch_streams import KINDS, Batches, stream
from tiny_tasks import TASKS

SETTINGS = {"verbose": 0, "batch_size": 4}
# Task: output, labels that are refused, message.
WRONG = {
    "texts": (None, [2, -1, 0.5, np.nan], "one of the model's 2: bad, good.* Received: {} at 3"),
    "texts_with_several_labels": (None, [2, -1, 0.5], "a 0 or 1 for each of the model's 13 cl"),
    "questions": ("end", [24, -1], "`end` must be .* a token in its window. Received: {} at 3"),
    "choices": (None, [4, -1], "one of its question's choices, from 0. Received: {} at 3"),
    "relations": (None, [3, -1], "one of the model's 3: no_relation, .* Received: {} at 3"),
    "words": (None, [5, -1], "one of the model's 5: O, .* Received: {} at 3, "),
    "pretraining": ("sbo", [tiny_pretrainer.V, -1], "`sbo` must be ids below .*: {} at 3, "),
}  # fmt: skip


def build(name):
    """Returns a model and `(x, y, sample_weight)`, arrays of ten rows."""
    if name == "pretraining":
        model = tiny_pretrainer.build()
        return model, tiny_pretrainer.arrays(model, tiny_pretrainer.texts(10))
    task = TASKS[name]
    model = task.build()
    return model, model.preprocess(*task.forms["columns"])


@pytest.fixture(scope="module", params=WRONG)
def task(request):
    return request.param, *build(request.param)


def with_label(batch, output, value):
    """Returns arrays in which a label of row 3 with a weight has another value."""
    x, y, sample_weight = batch
    labels = np.array(y if output is None else y[output], "float32")
    place = 3
    if labels.ndim > 1:
        weights = sample_weight if output is None else sample_weight[output]
        place = 3, 0 if weights is None else int(np.flatnonzero(weights[3])[0])
    labels[place] = value
    labels = labels.astype("int32") if np.all(labels == np.floor(labels)) else labels
    return x, labels if output is None else {**y, output: labels}, sample_weight


def test_labels_outside_of_the_classes_are_refused(task):
    name, model, batch = task
    output, values, message = WRONG[name]
    for value in values:
        x, y, sample_weight = with_label(batch, output, value)
        match = message.format(f"{value:g}")
        for method in [model.fit, model.evaluate]:
            with pytest.raises(ValueError, match=match):
                method(x, y, sample_weight=sample_weight, **SETTINGS)
        with pytest.raises(ValueError, match=match):
            model.fit(*batch[:2], validation_data=(x, y, sample_weight), **SETTINGS)
        for method in [model.train_on_batch, model.test_on_batch]:
            with pytest.raises(ValueError, match=match):
                method(x, y, sample_weight)


def test_labels_in_streams_are_checked(task):
    name, model, batch = task
    output, values, message = WRONG[name]
    wrong = keras.utils.pack_x_y_sample_weight(*with_label(batch, output, values[0]))
    match = message.split(" Received")[0].split(".*")[0].replace("'", r"\\?'")
    for kind, error in zip(KINDS, [tf.errors.InvalidArgumentError, ValueError]):
        with pytest.raises(error, match=match):
            model.fit(stream(kind, [wrong]), verbose=0)


@pytest.mark.once("torch")
def test_arrays_from_other_processes_are_not_checked():
    model, batch = build("texts")
    rows = Batches([batch], use_multiprocessing=True)
    assert model.preprocess_stream("py_dataset", rows) is rows


@pytest.mark.once("jax")  # The others refuse -1 themselves, whatever its weight.
def test_labels_without_weight_are_not_checked(task):
    """Padding of labels may be -1."""
    name, model, batch = task
    output = WRONG[name][0]
    x, y, _ = with_label(batch, output, -1)
    labels = y if output is None else y[output]
    shape = labels.shape if name == "words" else labels.shape[:1]
    weights = np.zeros(shape) if output is None else {n: np.zeros(y[n].shape) for n in y}
    model.evaluate(x, y, sample_weight=weights, **SETTINGS)
    model.predict(tf.data.Dataset.from_tensor_slices((x, y)).batch(4), verbose=0)


@pytest.mark.once("torch")
def test_labels_of_other_losses_are_not_checked():
    model, (x, y, _) = build("texts")

    def fit(loss, labels):
        model.compile("sgd", weighted_metrics=[], loss=loss)
        model.fit(x, labels, **SETTINGS)

    is_at_3 = np.arange(10) == 3
    fit(keras.losses.CategoricalCrossentropy(True), np.eye(2)[y] * 0.5)
    fit(keras.losses.SparseCategoricalCrossentropy(True, -7), np.where(is_at_3, -7, y))
    with pytest.raises(ValueError, match="Received: 2 at 3"):
        fit("sparse_categorical_crossentropy", np.where(is_at_3, 2, y))


@pytest.mark.once("torch")
def test_labels_of_arrays_can_be_lists_and_are_no_names():
    model, (x, y, _) = build("texts")
    assert model.evaluate(x, y.tolist(), **SETTINGS) == model.evaluate(x, y, **SETTINGS)
    for names in [["bad"] * 10, np.array([b"bad"] * 10, object)]:
        with pytest.raises(ValueError, match="2: bad, good.* Received: 'bad'"):
            model.fit(x, names, **SETTINGS)
    answerer, (x, y, _) = build("questions")
    expected = answerer.evaluate(x, y, **SETTINGS)
    assert answerer.evaluate(x, [y["start"], y["end"]], **SETTINGS) == expected


@pytest.mark.once("torch")
def test_datasets_have_batches_and_may_have_none():
    model, _ = build("texts")
    rows = tf.data.Dataset.from_tensor_slices((["a", "b"], [0, 1]))
    with pytest.raises(ValueError, match="must have batches of rows: call its `batch`. Received"):
        model.fit(rows, verbose=0)
    model.fit(rows.batch(2).map(lambda x, y: (x, y, None)), verbose=0)
