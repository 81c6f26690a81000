"""The text classifier, against the released one, and as its users call it."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_spanbert as ks

WORDS = "good fine dull long film hours".split()
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]


def build(num_classes=2, class_names=None, **kwargs):
    keras.utils.set_random_seed(2)
    backbone = ks.SpanBertBackbone(
        len(VOCABULARY), 1, 2, 16, 32, dropout=0.0, max_sequence_length=24
    )
    preprocessor = ks.SpanBertTextClassifierPreprocessor(ks.SpanBertTokenizer(VOCABULARY), 24)
    return ks.SpanBertTextClassifier(backbone, num_classes, preprocessor, class_names, **kwargs)


def rows(count):
    """Texts that are good where they have one of two words."""
    generator = np.random.default_rng(0)
    texts, labels = [], []
    for _ in range(count):
        is_good = bool(generator.integers(2))
        word = generator.choice(WORDS[:2] if is_good else WORDS[2:4])
        rest = generator.choice(WORDS[4:], int(generator.integers(1, 18)))
        texts.append(" ".join([word, *rest]))
        labels.append("good" if is_good else "bad")
    return texts, labels


@pytest.fixture(scope="module")
def trained():
    """A model that tells good from bad; tests leave it as it is."""
    model = build(class_names=["bad", "good"], dropout=0.0)
    model.compile(ks.AdamW(1e-2))
    model.fit(*rows(192), batch_size=16, epochs=6, verbose=0)
    return model


@pytest.fixture(scope="module")
def expected(shared_data):
    return json.loads(
        (shared_data / "reference/finetuning/classification/expected.json").read_text()
    )


@pytest.mark.parametrize(
    "num_classes, group", [(1, "sts-b/dev"), (2, "mrpc/dev"), (3, "mnli/dev_matched")]
)
def test_logits_and_loss_are_the_released_ones(shared_data, expected, num_classes, group):
    folder = shared_data / "reference" / "finetuning" / "classification"
    features = np.load(folder / "features.npz")
    task, split = group.split("/")
    names = expected["tasks"][task]["labels"] if num_classes > 1 else None
    model = ks.SpanBertTextClassifier.from_preset(
        str(folder / f"model_{num_classes}_labels"), class_names=names
    )
    assert not model.untrained_heads()
    examples = [
        {"text": row["text_a"], "text_pair": row["text_b"], "label": row["label"]}
        for row in expected["tasks"][task]["sets"][split]
    ]
    inputs, labels, _ = model.preprocess(examples)
    np.testing.assert_array_equal(inputs["token_ids"], features[f"{group}/128/model_ids"])
    logits = keras.ops.convert_to_numpy(model(inputs))
    np.testing.assert_allclose(logits, features[f"{group}/128/logits"], atol=1e-4)
    evaluated = expected["evaluation"][f"{group}/128"]
    loss = model.evaluate(examples, batch_size=len(examples), verbose=0, return_dict=True)["loss"]
    assert loss == pytest.approx(evaluated["loss"], abs=1e-4)
    if num_classes > 1:
        np.testing.assert_array_equal(np.argmax(logits, axis=1), evaluated["predictions"])


def test_fit_learns_the_classes_of_texts(trained):
    found = trained.classify(["good film", "dull film hours hours hours"])
    assert [answer["label"] for answer in found] == ["good", "bad"]
    for answer in found:
        assert sum(answer["scores"].values()) == pytest.approx(1.0)
        assert answer["score"] == max(answer["scores"].values())
        assert list(answer["scores"]) == ["bad", "good"]
    assert trained.classify("good film")["score"] == pytest.approx(found[0]["score"], abs=1e-5)


def test_answers_do_not_depend_on_the_other_texts(trained):
    texts, _ = rows(9)
    together = trained.classify(texts, batch_size=4)
    for text, answer in zip(texts, together):
        assert trained.classify(text)["score"] == pytest.approx(answer["score"], abs=1e-5)


@pytest.mark.once
def test_labels_are_names_or_numbers_in_any_container(trained):
    texts, labels = rows(6)
    numbers = [int(label == "good") for label in labels]
    given = [labels, np.array(labels), np.array(labels, dtype=object), numbers, np.array(numbers)]
    for values in given:
        np.testing.assert_array_equal(trained.preprocess(texts, values)[1], numbers)
    examples = [{"text": text, "label": label} for text, label in zip(texts, labels)]
    np.testing.assert_array_equal(trained.preprocess(examples)[1], numbers)


def test_batches_of_strings_are_evaluated_as_rows_of_them(trained):
    texts, labels = rows(10)
    one_by_one = trained.evaluate(texts, labels, batch_size=4, verbose=0)
    dataset = tf.data.Dataset.from_tensor_slices((texts, labels)).batch(4)
    np.testing.assert_allclose(trained.evaluate(dataset, verbose=0), one_by_one, rtol=1e-4)
    examples = [{"text": text, "label": label} for text, label in zip(texts, labels)]
    batches = (examples[i : i + 4] for i in range(0, 10, 4))
    found = trained.evaluate(batches, steps=3, verbose=0)
    np.testing.assert_allclose(found, one_by_one, rtol=1e-4)
    arrays = trained.preprocess(texts, labels)
    np.testing.assert_allclose(
        trained.evaluate(*arrays[:2], batch_size=4, verbose=0), one_by_one, rtol=1e-4
    )


@pytest.mark.once
def test_scores_are_those_of_the_predictions(trained):
    texts, labels = rows(20)
    labels[0] = "good" if labels[0] == "bad" else "bad"
    examples = [{"text": text, "label": label} for text, label in zip(texts, labels)]
    scores = trained.evaluate_texts(examples)
    found = [answer["label"] for answer in trained.classify(texts)]
    right = sum(a == b for a, b in zip(found, labels))
    assert scores["accuracy"] == pytest.approx(100.0 * right / 20)
    assert scores["score"] == pytest.approx((scores["accuracy"] + scores["f1"]) / 2)
    assert scores["total"] == 20
    with pytest.raises(ValueError, match="classes of rte"):
        trained.evaluate_texts(examples, "rte")


@pytest.mark.once
def test_scores_of_a_benchmark_go_by_the_names_of_classes():
    model = build(class_names=["not_entailment", "entailment"])  # Not the order of GLUE's.
    texts, labels = rows(10)
    names = ["entailment" if label == "good" else "not_entailment" for label in labels]
    found = [answer["label"] for answer in model.classify(texts)]
    scores = model.evaluate_texts([{"text": t, "label": n} for t, n in zip(texts, names)], "rte")
    assert scores["accuracy"] == 10.0 * sum(a == b for a, b in zip(found, names))


def test_regression_gives_numbers():
    model = build(num_classes=1)
    texts, labels = rows(8)
    values = [float(label == "good") for label in labels]
    model.fit(texts, values, verbose=0)
    found = model.classify(texts)
    assert all(answer.keys() == {"score"} for answer in found)
    examples = [{"text": text, "label": value} for text, value in zip(texts, values)]
    expected = np.corrcoef(values, [answer["score"] for answer in found])[0, 1]
    assert model.evaluate_texts(examples)["pearson"] == pytest.approx(100 * expected, abs=0.01)
    with pytest.raises(ValueError, match="finite numbers"):
        model.fit(texts, labels)
    # A constant has no correlation: no score to choose a model by.
    same = [{**example, "label": 1.0} for example in examples]
    scores = model.evaluate_texts(same)
    assert np.isnan(scores["pearson"]) and scores["score"] == 0.0
    scores = model.evaluate_texts(examples[:1])
    assert np.isnan(scores["spearman"]) and scores["score"] == 0.0
    with pytest.raises(ValueError, match="classes of sst-2, 0, 1. Received: a number"):
        model.evaluate_texts(examples, "sst-2")


@pytest.mark.once
@pytest.mark.parametrize(
    "labels", [np.eye(2), ["good", "odd"], [0, 2], [0, -1], [0.5, 1.0], ["good", None]]
)
def test_a_label_of_no_class_is_told(trained, labels):
    with pytest.raises(ValueError, match="one of the model's 2: bad, good"):
        trained.evaluate(["good film", "dull film"], labels)


@pytest.mark.once
def test_labels_must_be_there_and_as_many(trained):
    with pytest.raises(ValueError, match="must have labels"):
        trained.fit(["good film"])
    with pytest.raises(ValueError, match="a value for each row"):
        trained.fit(["good film"], ["good", "bad"])


@pytest.mark.once
def test_a_text_of_100_000_characters_is_cut(trained):
    assert trained.classify([]) == []
    (found,) = trained.classify(["good " + "film " * 20_000])
    assert found["label"] in ("good", "bad")


def test_presets_have_classes_and_head(trained, tmp_path):
    trained.save_to_preset(tmp_path / "preset")
    texts, _ = rows(4)
    loaded = ks.SpanBertTextClassifier.from_preset(str(tmp_path / "preset"))
    assert loaded.class_names == ["bad", "good"]
    np.testing.assert_allclose(loaded.logits_of(texts), trained.logits_of(texts), atol=1e-5)
    # The same labels, in whatever way they are given, are the same head.
    for given in [{"num_classes": 2}, {"class_names": ["bad", "good"]}]:
        assert not ks.SpanBertTextClassifier.from_preset(
            str(tmp_path / "preset"), **given
        ).untrained_heads()


@pytest.mark.once
def test_other_classes_have_a_fresh_layer_over_the_same_pooler(trained, tmp_path, caplog):
    trained.save_to_preset(tmp_path / "preset")
    other = ks.SpanBertTextClassifier.from_preset(
        str(tmp_path / "preset"), class_names=["a", "b", "c"]
    )
    assert other.untrained_heads() == ["classifier"] and "starts fresh" in caplog.text
    assert other.classify("good")["label"] in ("a", "b", "c")
    for mine, old in zip(other.pooler.get_weights(), trained.pooler.get_weights()):
        np.testing.assert_array_equal(mine, old)


@pytest.mark.once
def test_the_number_of_classes_must_be_known(tmp_path):
    model = build()
    model.backbone.save_to_preset(tmp_path / "preset")
    model.preprocessor.save_to_preset(tmp_path / "preset")
    with pytest.raises(ValueError, match="`num_classes` must be given"):
        ks.SpanBertTextClassifier.from_preset(str(tmp_path / "preset"))
    fresh = ks.SpanBertTextClassifier.from_preset(str(tmp_path / "preset"), num_classes=2)
    assert fresh.untrained_heads() == ["pooler", "classifier"]


@pytest.mark.once
@pytest.mark.parametrize(
    "arguments, rule",
    [
        ({"num_classes": 0}, "at least 1"),
        ({"num_classes": 3, "class_names": ["a", "b"]}, "as many as `num_classes`"),
        ({"class_names": ["a", "a"]}, "a name once"),
        ({"class_names": "ab"}, "list of strings"),
        ({"num_classes": 2, "dropout": 1.0}, "`dropout` must be in"),
    ],
)
def test_arguments_that_make_no_sense_are_told(arguments, rule):
    with pytest.raises(ValueError, match=rule):
        build(**{"num_classes": None, **arguments})


@pytest.mark.once
def test_folders_of_transformers_keep_the_names_of_labels(trained, tmp_path):
    ks.checkpoints.to_huggingface(trained, str(tmp_path / "bert"))
    config = json.loads((tmp_path / "bert" / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["id2label"] == {"0": "bad", "1": "good"}
    again = ks.SpanBertTextClassifier.from_preset(str(tmp_path / "bert"))
    texts, _ = rows(4)
    assert again.class_names == ["bad", "good"] and again.dropout == trained.dropout == 0.0
    np.testing.assert_allclose(again.logits_of(texts), trained.logits_of(texts), atol=1e-5)
    report = ks.checkpoints.convert(str(tmp_path / "bert"), str(tmp_path / "converted"))
    assert "0 left unused, 0 started fresh" in report
    task = json.loads((tmp_path / "converted" / "task.json").read_text())
    assert task["class_name"] == "SpanBertTextClassifier"


@pytest.mark.once("tensorflow")
def test_saved_model_gives_the_answers_of_the_library(trained, tmp_path):
    ks.serving.export_saved_model(trained, str(tmp_path / "served"))
    served = tf.saved_model.load(str(tmp_path / "served")).signatures
    texts, _ = rows(30)
    texts += ["", "good \u00e9", "film " * 200]
    pairs = [*texts[1:], ""]
    for found, expected in [
        (served["serving_default"](text=tf.constant(texts)), trained.classify(texts)),
        (
            served["pairs"](text=tf.constant(texts), text_pair=tf.constant(pairs)),
            trained.classify(texts, pairs),
        ),
    ]:
        labels = [label.decode() for label in found["label"].numpy()]
        assert labels == [answer["label"] for answer in expected]
        scores = [list(answer["scores"].values()) for answer in expected]
        np.testing.assert_allclose(found["scores"], scores, atol=1e-5)
        np.testing.assert_allclose(found["score"], np.max(scores, axis=1), atol=1e-5)
    nothing = served["serving_default"](text=tf.constant([], tf.string))
    assert nothing["scores"].shape == (0, 2)


def test_mixed_precision_trains():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = build()
    finally:
        keras.config.set_dtype_policy("float32")
    texts, labels = rows(8)
    numbers = [int(label == "good") for label in labels]
    assert np.isfinite(model.fit(texts, numbers, verbose=0).history["loss"][0])
