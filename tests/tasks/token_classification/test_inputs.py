"""`fit`, `evaluate` and `predict` on whatever `keras.Model.fit` takes."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from batch_streams import KINDS
from batch_streams import stream as stream_of
from tiny_tagger import LABELS, build, examples

from keras_spanbert.metrics.entities import read_tags

SENTENCES = examples(10, seed=1)
SENTENCES[1] = {name: column * 6 for name, column in SENTENCES[1].items()}  # Of several windows.
WORDS, TAGS = ([sentence[name] for sentence in SENTENCES] for name in ["words", "tags"])
TEXTS = [" ".join(words) for words in WORDS]


def spans(words, tags):
    """The entities of a text, in characters."""
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    return [
        {"start": int(ends[i] - len(words[i])), "end": int(ends[j - 1]), "label": label}
        for label, i, j in read_tags(tags)
    ]


SPANS = [spans(*row) for row in zip(WORDS, TAGS)]
PARTS = [slice(i, i + 4) for i in range(0, 10, 4)]


def evaluate(model, *args, **kwargs):
    return model.evaluate(*args, **{**kwargs, "verbose": 0, "return_dict": True})["loss"]


@pytest.fixture(scope="module")
def model():
    """Tests train it at a learning rate of 0."""
    model = build()
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=keras.backend.backend() == "tensorflow")
    return model


@pytest.fixture(scope="module")
def expected(model):
    """The loss over all words and the windows' logits."""
    return evaluate(model, WORDS, TAGS, batch_size=64), model.predict(WORDS, verbose=0)


def test_loss_is_the_mean_over_words(model, expected):
    windows = model.preprocessor.windows(WORDS)
    logits = np.asarray(expected[1], "float64")
    odds = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    losses = [
        -np.log(odds[w, p, LABELS.index(TAGS[windows["example_index"][w]][word])])
        for w, p in np.argwhere(windows["is_label"])
        for word in [windows["word_index"][w, p]]
    ]
    assert len(losses) == sum(map(len, WORDS))
    assert expected[0] == pytest.approx(np.mean(losses), rel=1e-4)


@pytest.mark.parametrize(
    "x, y",
    [
        (SENTENCES, None),
        (WORDS, [[LABELS.index(tag) for tag in tags] for tags in TAGS]),
        ({"words": WORDS}, TAGS),
        (TEXTS, SPANS),
        ([{"text": text, "entities": found} for text, found in zip(TEXTS, SPANS)], None),
        (tf.ragged.constant(WORDS), tf.ragged.constant(TAGS)),
    ],
)
def test_rows_in_any_container(model, expected, x, y):
    assert evaluate(model, x, y, batch_size=64) == pytest.approx(expected[0], rel=1e-5)
    np.testing.assert_allclose(model.predict(x, verbose=0), expected[1], atol=1e-5)
    history = model.fit(x, y, batch_size=64, validation_data=(x, y), verbose=0).history
    losses = [history["loss"][0], history["val_loss"][0]]
    np.testing.assert_allclose(losses, expected[0], rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("are_words", [True, False])
def test_batches_of_any_kind(model, expected, kind, are_words):
    batches = [({"words": WORDS[part]}, TAGS[part]) for part in PARTS]
    if not are_words:
        batches = [model.preprocess(*batch) for batch in batches]

    def stream(kind, batches):
        if kind == "dataset" and are_words:
            columns = tf.ragged.constant(WORDS), tf.ragged.constant(TAGS)
            return tf.data.Dataset.from_tensor_slices(columns).batch(4)
        return stream_of(kind, batches)

    ends = {} if kind in ("dataset", "py_dataset", "data_loader") else {"steps": len(PARTS)}
    predicted = model.predict(stream(kind, batches), verbose=0, **ends)
    np.testing.assert_allclose(predicted, expected[1], atol=1e-5)
    evaluated = evaluate(model, stream(kind, batches), **ends)
    steps = {"steps_per_epoch": 3} if ends else {}
    history = model.fit(stream(kind, batches), verbose=0, **steps).history
    np.testing.assert_allclose(evaluated, expected[0], rtol=0.2)  # Batches differ in size.
    np.testing.assert_allclose(history["loss"], evaluated, rtol=1e-5)


def test_a_texts_weight_is_its_words(model):
    weights = np.zeros(10)
    weights[5] = 2.0
    alone = evaluate(model, WORDS[5:6], TAGS[5:6])
    weighted = evaluate(model, WORDS, TAGS, batch_size=64, sample_weight=weights)
    assert weighted == pytest.approx(alone, rel=1e-4)


def test_validation_split_holds_out_the_last_texts(model):
    history = model.fit(WORDS, TAGS, validation_split=0.4, batch_size=64, verbose=0).history
    last = evaluate(model, WORDS[6:], TAGS[6:], batch_size=64)
    assert history["val_loss"][0] == pytest.approx(last, rel=1e-5)


@pytest.mark.once
def test_padding_of_words_needs_no_label(model):
    dense = {"words": np.array([["bob", "met"], ["ann", ""]])}
    one = evaluate(model, dense, np.array([["B-person", "O"], ["B-person", ""]]))
    assert one == pytest.approx(
        evaluate(model, [["bob", "met"], ["ann"]], [["B-person", "O"], ["B-person"]]), rel=1e-5
    )


@pytest.mark.once
@pytest.mark.parametrize(
    "x, y, message",
    [
        ("bob", None, "Received: x='bob', of type str"),
        ([], [], r"Received: x=\[\], of type list"),
        (WORDS, None, "labels to train or evaluate on. Received: y=None"),
        (["bob met"], [["O"]], r"An entity must be {'start', 'end', 'label'}.*'O' in text 0"),
        (["bob met"], "O", "a list of lists of entities, where `x` are strings. Received: 'O'"),
        (WORDS, TAGS[:3], "a list of labels for each of the 10 lists of words"),
        (WORDS, "O", "a list of labels for each of the 10 lists of words. Received: 'O'"),
        ([["bob", "met"]], [["O"]], r"a label for each word. Received: \['O'\] for 2 words in te"),
        ([["bob"]], [["B-x"]], "one of the model's 5: O, B-p.* 'B-x' at word 0 of text 0"),
        ([["bob"]], [[5]], "Received: 5 at word 0 of text 0"),
        ([["bob"]], [[None]], "Received: None at word 0 of text 0"),
    ],
)
def test_x_or_y_of_another_kind_is_named_with_the_rule(model, x, y, message):
    for method in [model.fit, model.evaluate]:
        with pytest.raises(ValueError, match=message):
            method(x, y, verbose=0)


@pytest.mark.once
def test_weights_that_do_not_fit_the_texts_are_named(model):
    with pytest.raises(ValueError, match=r"shape \(3,\) for 10 texts"):
        model.fit(WORDS, TAGS, sample_weight=[1.0] * 3, verbose=0)
