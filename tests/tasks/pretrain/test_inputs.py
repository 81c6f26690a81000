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


@pytest.mark.parametrize(
    "kind", ["rows", pytest.param("py_dataset", marks=ONCE), pytest.param("dataset", marks=ONCE)]
)
@pytest.mark.torch_first
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_strings_of_any_type(model, expected, kind):
    def make():
        batches = tf.constant(TEXTS) if kind == "rows" else stream(kind, BATCHES)
        # Keras cannot know the size of a filtered dataset.
        return batches.filter(lambda *batch: True) if kind == "dataset" else batches

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


@pytest.mark.torch_first
def test_accumulated_gradients_do_not_change_the_masks_of_a_batch():
    model = build()
    model.compile(ks.AdamW(1e-3, gradient_accumulation_steps=2))
    texts = ["the of and to in a is that"] * 4
    for epochs in [1, 2]:
        model.fit(texts, batch_size=1, epochs=epochs, verbose=0)
    assert model.steps_so_far == 12
    assert int(keras.ops.convert_to_numpy(model.optimizer.iterations)) == 6
