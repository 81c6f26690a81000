"""`fit`, `evaluate` and `predict` on whatever `keras.Model.fit` takes."""

import copy
import pickle
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from batch_streams import KINDS, stream

import keras_spanbert as ks

WORDS = "the of and to in a is that for it with as was on be by at this from not".split()
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
L, SIZE = 13, 6
TEXTS = [" ".join(row) for row in np.random.default_rng(0).choice(WORDS, [11, 8])]
BATCHES = [TEXTS[i : i + SIZE] for i in range(0, len(TEXTS), SIZE)]


def build():
    keras.utils.set_random_seed(3)
    preprocessor = ks.SpanBertPretrainerPreprocessor(
        ks.SpanBertTokenizer(VOCABULARY), sequence_length=L, mask_rate=0.3, seed=1
    )
    backbone = ks.SpanBertBackbone(
        len(VOCABULARY), 1, 2, 10, 14, dropout=0.0, max_sequence_length=L
    )
    model = ks.SpanBertPretrainer(backbone, preprocessor, position_dim=3)
    # Tracing takes longer than these few steps.
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=keras.backend.backend() == "tensorflow")
    return model


@pytest.fixture(scope="module")
def model():
    """Tests train it at a learning rate of 0."""
    return build()


@pytest.fixture(scope="module")
def expected(model):
    """The losses of an evaluation and of the first two epochs, and outputs."""
    losses = model.evaluate(TEXTS, batch_size=SIZE, verbose=0, return_dict=True)
    history = fit(model, TEXTS, batch_size=SIZE, epochs=2)
    assert len(set(history["mlm_loss"])) == 2
    return losses, history["mlm_loss"], model.predict(TEXTS, batch_size=SIZE, verbose=0)["mlm"]


def fit(model, *args, **kwargs):
    """The history of the model's first steps."""
    model._steps_so_far = 0
    model.optimizer.iterations.assign(0)
    return model.fit(*args, verbose=0, **kwargs).history


def check(model, make, expected, **kwargs):
    evaluated, trained, predicted = expected
    # Keras warns where it does not know when batches end.
    ends = hasattr(make(), "__next__")
    steps = {"steps": len(BATCHES)} if ends else {}
    losses = model.evaluate(make(), verbose=0, return_dict=True, **steps, **kwargs)
    np.testing.assert_allclose(losses["mlm_loss"], evaluated["mlm_loss"], rtol=1e-5)
    epochs = 1 if ends else 2
    kwargs.update(
        {"steps_per_epoch": len(BATCHES), "validation_steps": len(BATCHES)} if ends else {}
    )
    history = fit(model, make(), epochs=epochs, validation_data=make(), shuffle=False, **kwargs)
    np.testing.assert_allclose(history["mlm_loss"], trained[:epochs], rtol=1e-5)
    np.testing.assert_allclose(history["val_loss"][0], evaluated["loss"], rtol=1e-5)
    size = {"batch_size": kwargs.get("batch_size")}
    outputs = model.predict(make(), verbose=0, **size, **steps)["mlm"]
    np.testing.assert_allclose(outputs, predicted, atol=1e-5)


def test_rows_of_strings_in_a_tensor(model, expected):
    check(model, lambda: tf.constant(TEXTS), expected, batch_size=SIZE)


@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_strings_of_any_kind(model, expected, kind):
    check(model, lambda: stream(kind, BATCHES), expected)


def saved_and_loaded(model, folder):
    model.save(folder / "pretrainer.keras")
    return keras.saving.load_model(folder / "pretrainer.keras")


COPIES = [
    saved_and_loaded,
    lambda model, folder: copy.deepcopy(model),
    lambda model, folder: pickle.loads(pickle.dumps(model)),
]


@pytest.mark.parametrize("copied", COPIES)
def test_copies_take_strings(model, expected, copied, tmp_path):
    model.optimizer.build(model.trainable_variables)
    copy_of_it = copied(model, tmp_path)
    losses = copy_of_it.evaluate(TEXTS, batch_size=SIZE, verbose=0, return_dict=True)
    assert losses["loss"] == pytest.approx(expected[0]["loss"], rel=1e-5)


@pytest.mark.parametrize("kind", ["dataset", "generator"])
def test_batches_of_strings_may_be_the_first_of_a_tuple(model, expected, kind):
    batches = stream(kind, [(batch,) for batch in BATCHES])
    losses = model.evaluate(batches, steps=len(BATCHES), verbose=0, return_dict=True)
    assert losses["loss"] == pytest.approx(expected[0]["loss"], rel=1e-5)


@pytest.mark.parametrize("kind", [*KINDS, "rows", "returned"])
def test_masked_arrays_of_any_kind(model, kind):
    masked = model.preprocessor(TEXTS, seed=5)
    masked = keras.tree.map_structure(keras.ops.convert_to_numpy, masked)
    x, y, sample_weight = masked
    losses = model.test_on_batch(x, y, sample_weight, return_dict=True)
    outputs = model.predict_on_batch(x)["mlm"]

    def make():
        if kind in ("rows", "returned"):
            return masked
        return stream(kind, [masked])

    if kind == "rows":
        given, rest = [x, y], {"sample_weight": sample_weight, "batch_size": len(TEXTS)}
    else:
        given, rest = [make()], {"batch_size": len(TEXTS)} if kind == "returned" else {}
    steps = {}
    if hasattr(given[0], "__next__"):
        rest, steps = {"steps_per_epoch": 1, "validation_steps": 1}, {"steps": 1}
    history = fit(model, *given, validation_data=make(), shuffle=False, **rest)
    np.testing.assert_allclose(history["loss"][0], losses["loss"], rtol=1e-5)
    np.testing.assert_allclose(history["val_loss"][0], losses["loss"], rtol=1e-5)
    predicted = model.predict(x if kind == "rows" else make(), verbose=0, **steps)["mlm"]
    np.testing.assert_allclose(predicted, outputs, atol=1e-5)


def test_validation_split_holds_out_the_last_rows(model):
    history = fit(model, TEXTS, validation_split=0.3, validation_batch_size=2)
    last = model.evaluate(TEXTS[7:], batch_size=2, verbose=0, return_dict=True)
    assert history["val_loss"][0] == pytest.approx(last["loss"], rel=1e-5)


def test_shuffle_gives_rows_in_random_order(model, expected):
    history = fit(model, TEXTS, batch_size=SIZE, shuffle=True)
    assert abs(history["mlm_loss"][0] - expected[1][0]) > 1e-4


def test_lone_surrogate_in_a_row_counts_as_the_replacement_character(model):
    clean, broken = ([f"{text} {mark}a" for text in TEXTS] for mark in ["\ufffd", "\ud800"])
    losses = [
        model.evaluate(texts, verbose=0, steps=1) for texts in [clean, broken, iter([broken])]
    ]
    np.testing.assert_allclose(losses[1:], losses[:1] * 2, rtol=1e-6)


def test_strings_are_masked_without_tensorflow(model, monkeypatch):
    """Other masks of the same distribution, which are the same again."""
    if keras.backend.backend() == "tensorflow":
        pytest.skip("The backend itself")
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    losses = [model.evaluate(TEXTS, batch_size=SIZE, verbose=0) for _ in range(2)]
    assert losses[0] == losses[1]
    histories = []
    for _ in range(2):
        history = fit(model, TEXTS, batch_size=SIZE, epochs=2)
        histories.append(history["mlm_loss"])
    assert histories[0] == histories[1] and histories[0][0] != histories[0][1]


@pytest.mark.parametrize(
    "x, message",
    [
        (None, "Received: x=None, of type NoneType"),
        ("text", "one row or more .* Received: x='text', of type str"),
        (b"text", "Received: x=b'text', of type bytes"),
        ([], r"Received: x=\[\], of type list"),
        (7, "Received: x=7, of type int"),
        (["a", 7], r"`x` must be a list of strings. Received: x\[1\]=7, of type int"),
        (["a", b"b"], r"Received: x\[1\]=b'b', of type bytes"),
        (np.ones([2, 3]), "`x` must be a list of strings. Received: .* of type ndarray"),
        (tf.data.Dataset.from_tensors([7]), "batches `.B.` of strings, .* Received: element_spec"),
        (tf.data.Dataset.from_tensors("a"), "batches `.B.` of strings, .* Received: element_spec"),
        (iter([[7]]), r"`x` must be a list of strings. Received: x=7"),
    ],
)
def test_x_of_another_kind_is_named_with_the_rule(model, x, message):
    for method in [model.fit, model.evaluate]:
        with pytest.raises(ValueError, match=message):
            method(x, verbose=0)
        if hasattr(x, "__next__"):
            break


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"x": TEXTS, "y": [1] * 11}, r"`y` and `sample_weight` must be None. Received: y=\[1, 1"),
        ({"x": iter(BATCHES), "y": [1]}, "Batches hold .* Received: x of type list_iterator"),
        ({"x": iter(BATCHES), "validation_split": 0.5}, "x of type list_iterator"),
        ({"x": TEXTS, "validation_split": 1.5}, "validation_split=1.5 of 11 rows"),
        ({"x": TEXTS, "validation_data": "text"}, "Received: x='text', of type str"),
    ],
)
def test_arguments_that_do_not_go_together_are_named(model, arguments, message):
    with pytest.raises(ValueError, match=message):
        model.fit(**arguments, verbose=0)


@pytest.mark.parametrize("make", [lambda: TEXTS, lambda: iter(BATCHES)])
def test_strings_without_a_preprocessor_are_refused(make):
    model = build()
    model.preprocessor = None
    with pytest.raises(ValueError, match="Strings need a preprocessor"):
        model.fit(make(), verbose=0)
