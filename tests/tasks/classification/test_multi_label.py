"""The text classifier with several labels per text."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny_classifier
from tiny_classifier import WORDS, examples, multi_hot
from tiny_classifier import build_multi_label as build
from tiny_classifier import multi_label_rows as rows

import keras_spanbert as ks


@pytest.fixture(scope="module")
def trained():
    """A trained model that finds words in texts. Tests must not change it."""
    model = build()
    model.compile(ks.AdamW(5e-3, global_clipnorm=None))
    model.fit(*rows(192), batch_size=16, epochs=12, verbose=0)
    return model


def test_fit_learns_labels(trained):
    texts, labels = rows(40, seed=1)
    found = trained.classify(texts)
    assert np.mean([answer["labels"] == names for answer, names in zip(found, labels)]) > 0.6
    for answer in found:
        assert list(answer["scores"]) == WORDS
        chosen = [name for name, score in answer["scores"].items() if score >= 0.5]
        assert answer["labels"] == chosen  # In the order of the model.
        highest = max(answer["scores"].values())
        assert answer["score"] == answer["scores"][answer["label"]] == highest
    assert trained.classify(texts[0])["labels"] == found[0]["labels"]


@pytest.mark.every_backend
def test_class_needs_a_probability_of_a_half():
    accuracy = keras.saving.get_registered_object("keras_spanbert>binary_accuracy")
    labels, logits = np.array([[1, 0, 1], [1, 1, 1]]), np.array([[0.1, -0.1, 0.0], [9, 0.4, -9]])
    found = keras.ops.convert_to_numpy(accuracy(labels, keras.ops.array(logits, "float32")))
    np.testing.assert_allclose(found, [1.0, 2 / 3], rtol=1e-6)


def test_invalid_weights_are_refused(trained):
    x, y, weights = ["w1", "w2"], multi_hot([["w1"], []]), np.ones((2, 13))
    with pytest.raises(ValueError, match=r"number for each row.* shape \(2, 13\) for 2 rows"):
        trained.evaluate(x, y, sample_weight=weights)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"shape \(2, 13\) for 2 rows"):
        trained.evaluate(tf.data.Dataset.from_tensor_slices((x, y, weights)).batch(2))
    negative = tf.data.Dataset.from_tensor_slices((x, y, [1.0, -1.0])).batch(2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be finite and at least 0"):
        trained.evaluate(negative)
    with pytest.raises(ValueError, match="must be None for this .* Use `sample_weight`"):
        trained.fit(x, y, class_weight={1: 2.0})


def test_scores_of_decisions(trained):
    texts, labels = rows(30, seed=4)
    labels[0] = ["w5", "w6"] if labels[0] != ["w5", "w6"] else []
    given = examples(texts, labels)
    gold = multi_hot(labels)
    found = multi_hot([answer["labels"] for answer in trained.classify(texts)])
    right, marked = (gold & found).sum(axis=0), gold.sum(axis=0) + found.sum(axis=0)
    expected = {
        "micro_f1": 200.0 * right.sum() / marked.sum(),
        "macro_f1": 100.0 * np.mean(2.0 * right / np.maximum(marked, 1)),
        "accuracy": 100.0 * np.mean([np.array_equal(a, b) for a, b in zip(gold, found)]),
    }
    scores = trained.evaluate_texts(given)
    assert scores == pytest.approx({**expected, "score": expected["micro_f1"], "total": 30})
    for name, value in expected.items():
        scores = trained.evaluate_texts(given, selection_metric=name)
        assert scores["score"] == pytest.approx(value)
    with pytest.raises(ValueError, match="micro_f1 or macro_f1 or accuracy here. Received: .*'f1'"):
        trained.evaluate_texts(given, selection_metric="f1")
    with pytest.raises(ValueError, match="classes of sst-2, 0, 1. .*several of them per text"):
        build(["0", "1"]).evaluate_texts(given, "sst-2")


def test_other_classifier_type_is_initialized(trained, tmp_path, caplog):
    def load(name="preset", **arguments):
        return ks.SpanBertTextClassifier.from_preset(tmp_path / name, **arguments)

    trained.save_to_preset(tmp_path / "preset")
    for same in [{"class_names": WORDS}, {"class_names": None}, {"num_classes": None}]:
        assert load(**same).class_names == WORDS and not load(**same).untrained_heads()
    assert load(num_classes=2).multi_label
    one = load(multi_label=False)
    assert not one.multi_label and one.class_names == WORDS
    assert one.untrained_heads() == ["classifier"] and "or of another kind" in caplog.text
    one.save_to_preset(tmp_path / "single")
    several = load("single", class_names=WORDS, multi_label=True)
    assert several.multi_label and several.untrained_heads() == ["classifier"]


def test_single_class_is_not_regression():
    model = build(["spam"])
    assert not model.is_regression
    model.fit(["w1", "w2"], [["spam"], []], verbose=0)
    (found,) = model.classify(["w1"])
    assert found["label"] == "spam" and found["labels"] in ([], ["spam"])


@pytest.mark.once("tensorflow")
def test_served_label_has_the_largest_logit(trained):
    kernel, bias = trained.classifier.get_weights()
    # The sigmoids of these logits are all 1.
    trained.classifier.set_weights([kernel, bias + np.linspace(50.0, 90.0, 13, dtype="float32")])
    serve, _ = trained.serving_endpoints()["serving_default"]
    found = serve(tf.constant(["w1", "w2 w3"]))["label"].numpy()
    best = [answer["label"] for answer in trained.classify(["w1", "w2 w3"])]
    assert [label.decode() for label in found] == best == trained.class_names[-1:] * 2
    trained.classifier.set_weights([kernel, bias])


@pytest.mark.once("tensorflow")
@pytest.mark.parametrize("labels, rows", [(WORDS, rows), (None, tiny_classifier.rows)])
def test_saved_model_equals_classify(tmp_path, labels, rows):
    model = build(labels) if labels else tiny_classifier.build()
    ks.serving.export_saved_model(model, str(tmp_path / "served"))
    served = tf.saved_model.load(str(tmp_path / "served")).signatures
    texts = [*rows(30)[0], "", "w1 \u00e9", "w2 " * 200]
    pairs = [*texts[1:], ""]
    given = {"text": tf.constant(texts), "text_pair": tf.constant(pairs)}
    for found, expected in [
        (served["serving_default"](text=given["text"]), model.classify(texts)),
        (served["pairs"](**given), model.classify(texts, pairs)),
    ]:
        assert [x.decode() for x in found["label"].numpy()] == [x["label"] for x in expected]
        scores = [list(answer["scores"].values()) for answer in expected]
        np.testing.assert_allclose(found["scores"], scores, atol=1e-5)
        np.testing.assert_allclose(found["score"], np.max(scores, axis=1), atol=1e-5)
        if labels:
            names = [[x.decode() for x in row if x] for row in found["labels"].numpy()]
            assert names == [answer["labels"] for answer in expected] and any(names)
            assert found["labels"].shape == (33, 13)
    nothing = served["serving_default"](text=tf.constant([], tf.string))
    assert nothing["scores"].shape[0] == 0
