"""`fit`, `evaluate` and `predict` with all input types of `keras.Model.fit`."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny_pretrainer
from batch_streams import stream

import keras_spanbert as ks

SIZE = 6
TEXTS = tiny_pretrainer.texts(11, 8)
BATCHES = [TEXTS[i : i + SIZE] for i in range(0, len(TEXTS), SIZE)]
ONCE = pytest.mark.once("torch")


def build():
    keras.utils.set_random_seed(3)
    model = tiny_pretrainer.build(13)
    # Tracing would take longer than these steps.
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=tiny_pretrainer.IS_TENSORFLOW)
    return model


@pytest.fixture(scope="module")
def model():
    """A model with learning rate 0, which training does not change."""
    return build()


@pytest.fixture(scope="module")
def expected(model):
    """Returns the losses of an evaluation and of two epochs, and the outputs."""
    losses = model.evaluate(TEXTS, batch_size=SIZE, verbose=0, return_dict=True)
    history = fit(model, TEXTS, batch_size=SIZE, epochs=2, shuffle=False)
    assert len(set(history["mlm_loss"])) == 2
    return losses, history["mlm_loss"], model.predict(TEXTS, batch_size=SIZE, verbose=0)["mlm"]


def fit(model, *args, **kwargs):
    """Returns the history of the first steps."""
    model.steps_so_far = 0
    model.optimizer.iterations.assign(0)
    return model.fit(*args, verbose=0, **kwargs).history


@pytest.mark.parametrize("kind", ["rows", pytest.param("py_dataset", marks=ONCE)])
@pytest.mark.torch_first
def test_strings_of_any_type(model, expected, kind):
    def make():
        return tf.constant(TEXTS) if kind == "rows" else stream(kind, BATCHES)

    evaluated, trained, predicted = expected
    size = {"batch_size": SIZE} if kind == "rows" else {}
    losses = model.evaluate(make(), verbose=0, return_dict=True, **size)
    np.testing.assert_allclose(losses["mlm_loss"], evaluated["mlm_loss"], rtol=1e-5)
    arguments = {"epochs": 2, "validation_data": make(), "shuffle": False}
    history = fit(model, make(), **arguments, **size)
    np.testing.assert_allclose(history["mlm_loss"], trained[:2], rtol=1e-5)
    np.testing.assert_allclose(history["val_loss"][0], evaluated["loss"], rtol=1e-5)
    outputs = model.predict(make(), verbose=0, **size)["mlm"]
    np.testing.assert_allclose(outputs, predicted, atol=1e-5)


@ONCE
@pytest.mark.parametrize("kind", ["rows", "returned", "dataset", "py_dataset"])
def test_masked_arrays_of_any_type(model, kind):
    masked = x, y, sample_weight = tiny_pretrainer.arrays(model, TEXTS)
    loss = model.test_on_batch(*masked, return_dict=True)["loss"]
    assert model.train_on_batch(*masked, return_dict=True)["loss"] == pytest.approx(loss)
    outputs = model.predict_on_batch(x)["mlm"]

    def make():
        return masked if kind in ("rows", "returned") else stream(kind, [masked])

    if kind == "rows":
        given, rest = [x, y], {"sample_weight": sample_weight, "batch_size": len(TEXTS)}
    else:
        given, rest = [make()], {"batch_size": len(TEXTS)} if kind == "returned" else {}
    history = fit(model, *given, validation_data=make(), shuffle=False, **rest)
    np.testing.assert_allclose([history["loss"][0], history["val_loss"][0]], loss, rtol=1e-5)
    predicted = model.predict(x if kind == "rows" else make(), verbose=0)["mlm"]
    np.testing.assert_allclose(predicted, outputs, atol=1e-5)


@ONCE
def test_strings_are_masked_without_tensorflow(model, monkeypatch):
    """Checks that masks are reproducible and new in each epoch."""
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    losses = [model.evaluate(TEXTS, batch_size=SIZE, verbose=0) for _ in range(2)]
    assert losses[0] == losses[1]
    arguments = {"batch_size": SIZE, "epochs": 2}
    first, again = (fit(model, TEXTS, **arguments, shuffle=False)["mlm_loss"] for _ in range(2))
    assert first == again and first[0] != first[1]
    keras.utils.set_random_seed(0)
    shuffled = fit(model, TEXTS, **arguments)["mlm_loss"]
    assert shuffled[0] != first[0] and shuffled[1] != first[1]
    keras.utils.set_random_seed(0)
    assert fit(model, TEXTS, **arguments)["mlm_loss"] == shuffled


@ONCE
@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # Keras cannot know its size.
def test_datasets_of_unknown_size(model, expected):
    dataset = stream("dataset", BATCHES).filter(lambda *batch: True)
    losses = model.evaluate(dataset, verbose=0, return_dict=True)
    assert losses["loss"] == pytest.approx(expected[0]["loss"], rel=1e-5)
    assert len(model.predict(dataset, verbose=0)["mlm"]) == len(TEXTS)
    history = fit(model, dataset, shuffle=False)
    assert history["mlm_loss"] == pytest.approx(expected[1][:1], rel=1e-5)


@ONCE
@pytest.mark.parametrize("kind", ["rows", "dataset"])
def test_strings_without_linguistic_spans_are_refused(kind):
    model = build()
    tokenizer = model.preprocessor.tokenizer
    model.preprocessor = ks.SpanBertPretrainerPreprocessor(tokenizer, 13, scheme="entity")
    x = TEXTS if kind == "rows" else stream(kind, BATCHES)
    with pytest.raises(ValueError, match="`scheme='entity'` requires `span_marks`"):
        model.evaluate(x, verbose=0)


@pytest.mark.torch_first
def test_accumulated_gradients_do_not_change_the_masks_of_a_batch():
    model = build()
    model.compile(ks.AdamW(1e-3, gradient_accumulation_steps=2))
    texts = ["the of and to in a is that"] * 4
    for epochs in [1, 2]:
        model.fit(texts, batch_size=1, epochs=epochs, verbose=0)
    assert model.steps_so_far == 12
    assert int(keras.ops.convert_to_numpy(model.optimizer.iterations)) == 6
