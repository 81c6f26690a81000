"""The text classifier, compared with the released one, and its public methods."""

import json

import keras
import numpy as np
import pytest
from comparisons import assert_rows
from tiny_classifier import build, examples, rows

import keras_spanbert as ks
from keras_spanbert.models.classifier import names_in


@pytest.fixture(scope="module")
def trained():
    """A trained classifier of good and bad. Tests must not change it."""
    model = build()
    model.compile(ks.AdamW(5e-3))
    model.fit(*rows(192), batch_size=16, epochs=6, verbose=0)
    return model


@pytest.mark.usefixtures("untraced")
def test_class_weight_by_name_equals_sample_weight():
    texts, labels = rows(12)
    losses = []
    for weights in [
        {"class_weight": {"good": 3.0, "bad": 0.5}},
        {"class_weight": {1: np.array(3.0), np.int64(0): 0.5}},
        {"sample_weight": [3.0 if label == "good" else 0.5 for label in labels]},
    ]:
        model = build()
        model.compile(keras.optimizers.SGD(0.0))
        losses += model.fit(texts, labels, batch_size=12, verbose=0, **weights).history["loss"]
    np.testing.assert_allclose(losses[:2], losses[2], rtol=1e-5)
    for weights, message in [
        ({"fine": 2.0}, "one of the model's 2: bad, good, .*Received: 'fine' at `class_weight`"),
        ({2: 2.0}, "one of the model's 2: bad, good, .*Received: 2 at `class_weight`"),
        ({"good": 2.0, 1: 2.0}, "must be a dict from different classes"),
        ({"good": float("nan")}, r"`class_weight\['good'\]` must be a finite number of at .*=nan"),
        ({"good": -1.0}, "must be a finite number of at least 0"),
        ({"good": 10**400}, "must be a finite number of at least 0"),
        ([1.0, 2.0], r"`class_weight` must be a dict. Received: class_weight=\[1.0, 2.0\]"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.fit(texts, labels, class_weight=weights)
    with pytest.raises(ValueError, match="None for this SpanBertTextClassifier.* Use `sample_"):
        build(num_classes=1).fit(texts, [0.0] * 12, class_weight={0: 2.0})


@pytest.mark.every_backend
@pytest.mark.parametrize(
    "num_classes, group", [(1, "sts-b/dev"), (2, "mrpc/dev"), (3, "mnli/dev_matched")]
)
def test_logits_and_loss_equal_the_released_code(finetuning, num_classes, group):
    folder, expected, features = finetuning("classification")
    task, split = group.split("/")
    names = expected["tasks"][task]["labels"] if num_classes > 1 else None
    model = ks.SpanBertTextClassifier.from_preset(
        str(folder / f"model_{num_classes}_labels"), class_names=names
    )
    assert not model.untrained_heads()
    given = [
        {"text": row["text_a"], "text_pair": row["text_b"], "label": row["label"]}
        for row in expected["tasks"][task]["sets"][split]
    ]
    inputs = model.preprocess(given)[0]
    np.testing.assert_array_equal(inputs["token_ids"], features[f"{group}/128/model_ids"])
    logits = keras.ops.convert_to_numpy(model(inputs))
    np.testing.assert_allclose(logits, features[f"{group}/128/logits"], atol=1e-4)
    evaluated = expected["evaluation"][f"{group}/128"]
    loss = model.evaluate(given, batch_size=len(given), verbose=0, return_dict=True)["loss"]
    assert loss == pytest.approx(evaluated["loss"], abs=1e-4)
    if num_classes > 1:
        np.testing.assert_array_equal(np.argmax(logits, axis=1), evaluated["predictions"])


def test_rows_equal_the_released_script(finetuning, cased_tokenizer):
    _, expected, features = finetuning("classification")
    groups = sorted({name.rsplit("/", 1)[0] for name in features})
    assert len(groups) == 40
    for group in groups:
        task, split, length = group.split("/")
        rows = expected["tasks"][task]["sets"][split]
        preprocessor = ks.SpanBertTextClassifierPreprocessor(cased_tokenizer, int(length))
        texts, pairs = [row["text_a"] for row in rows], [row["text_b"] or "" for row in rows]
        assert_rows(preprocessor.inputs(texts, pairs), features, f"{group}/")


def test_blank_second_text_reserves_its_separator():
    tokenizer = ks.SpanBertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"])
    preprocessor = ks.SpanBertTextClassifierPreprocessor(tokenizer, sequence_length=8)
    for second, size in [("", 8), (" ", 7)]:
        assert preprocessor.inputs(["a b c d e f a"], [second])["padding_mask"].sum() == size


def test_fit_learns_classes(trained):
    texts, labels = rows(40, seed=1)
    found = trained.classify(texts)
    assert np.mean([answer["label"] == label for answer, label in zip(found, labels)]) > 0.9
    for answer in found:
        assert sum(answer["scores"].values()) == pytest.approx(1.0)
        assert answer["score"] == answer["scores"][answer["label"]]
        assert list(answer["scores"]) == ["bad", "good"]


def f1(found, labels, name):
    right = sum(a == b == name for a, b in zip(found, labels))
    return 200.0 * right / (found + labels).count(name)


def test_scores_of_predictions(trained):
    texts, labels = rows(20)
    labels[0] = "good" if labels[0] == "bad" else "bad"
    given = examples(texts, labels)
    scores = trained.evaluate_texts(given)
    found = [answer["label"] for answer in trained.classify(texts)]
    right = sum(a == b for a, b in zip(found, labels))
    assert scores["score"] == scores["accuracy"] == pytest.approx(100.0 * right / 20)
    assert scores["total"] == 20
    # F1 is for the second class, and macro F1 is the mean of both.
    by_class = [f1(found, labels, name) for name in ["bad", "good"]]
    assert scores["f1"] == pytest.approx(by_class[1])
    macro = trained.evaluate_texts(given, selection_metric="macro_f1")
    assert macro["score"] == macro["macro_f1"] == pytest.approx(np.mean(by_class))
    with pytest.raises(ValueError, match="`selection_metric` must be accuracy or macro_f1"):
        trained.evaluate_texts(given, selection_metric="f1")
    with pytest.raises(ValueError, match="classes of rte"):
        trained.evaluate_texts(given, "rte")


def test_benchmark_scores_use_class_names_and_their_mean():
    model = build(class_names=["1", "0"])  # Differs from the order of GLUE.
    texts, labels = rows(10)
    names = [str(int(label == "good")) for label in labels]
    given = examples(texts, names)
    scores = model.evaluate_texts(given, "mrpc")
    found = [answer["label"] for answer in model.classify(texts)]
    assert scores["accuracy"] == 10.0 * sum(a == b for a, b in zip(found, names))
    assert scores["f1"] == pytest.approx(f1(found, names, "1"))
    assert scores.keys() == {"accuracy", "f1", "score", "total"}
    assert scores["score"] == pytest.approx((scores["accuracy"] + scores["f1"]) / 2)
    with pytest.raises(ValueError, match="`selection_metric` must be None"):
        model.evaluate_texts(given, "mrpc", selection_metric="accuracy")


@pytest.mark.usefixtures("untraced")
def test_regression_gives_numbers():
    model = build(num_classes=1)
    assert (model.loss_unit, build().loss_unit) == ("squared error", "nats")  # In plots.
    texts, labels = rows(8)
    values = [float(label == "good") for label in labels]
    model.fit(texts, values, verbose=0)
    found = model.classify(texts)
    assert all(answer.keys() == {"score"} for answer in found)
    given = examples(texts, values)
    expected = np.corrcoef(values, [answer["score"] for answer in found])[0, 1]
    assert model.evaluate_texts(given)["pearson"] == pytest.approx(100 * expected, abs=0.01)
    with pytest.raises(ValueError, match="a finite number, .* Received: 'good' at 0"):
        model.fit(texts, labels)
    # Rows without weight count only in the number of rows.
    weighted = model.evaluate(texts, values, sample_weight=[1.0, 2.0] + [0.0] * 6, verbose=0)
    of_two = model.evaluate(texts[:2], values[:2], sample_weight=[1.0, 2.0], verbose=0)
    assert weighted == pytest.approx(of_two * 2 / 8, rel=1e-5)
    # The correlation of a constant is undefined, so there is no score.
    scores = model.evaluate_texts(examples(texts, [1.0] * 8))
    assert np.isnan(scores["pearson"]) and scores["score"] == 0.0
    scores = model.evaluate_texts(given[:1])
    assert np.isnan(scores["spearman"]) and scores["score"] == 0.0
    with pytest.raises(ValueError, match="classes of sst-2, 0, 1. Received: a number"):
        model.evaluate_texts(given, "sst-2")


def test_one_pair_is_classified_as_in_a_list(trained):
    pairs = [["w1 w5", "w2 w4"], ["w3 w6", "w1 w1"]]
    expected = trained.classify([a for a, _ in pairs], [b for _, b in pairs])
    assert [trained.classify(*pair)["scores"] for pair in pairs] == [
        pytest.approx(answer["scores"], abs=1e-5) for answer in expected
    ]
    alone = trained.classify(pairs[0][0])["scores"]
    assert alone != pytest.approx(expected[0]["scores"], rel=1e-4, abs=0.0)


def test_names_of_a_checkpoint_are_in_the_order_of_their_numbers():
    assert names_in({"num_labels": 2, "id2label": {"1": "b", 0: "a"}}) == ["a", "b"]
    assert names_in({"num_labels": 2, "id2label": {"1": "b", "2": "c"}}) is None


@pytest.mark.parametrize(
    "names, is_new",
    [("no yes", False), ("LABEL_0 LABEL_1", False), ("1 0", True), ("LABEL_1 LABEL_0", True)],
)
def test_numbers_in_another_order_are_other_labels(tmp_path, caplog, names, is_new):
    """Label names of numbers alone can be replaced, but not exchanged."""
    build(class_names=["0", "1"]).save_to_preset(tmp_path)
    caplog.clear()
    model = ks.SpanBertTextClassifier.from_preset(tmp_path, class_names=names.split())
    assert model.class_names == names.split()
    message = "The classifier of the new SpanBertTextClassifier starts from random"
    assert (message in caplog.text) == is_new


def test_name_of_a_regression_is_kept_in_files_only(tmp_path):
    """`transformers` names the number of a regression, and so did earlier presets."""
    model = build(num_classes=1)
    ks.checkpoints.to_huggingface(model, tmp_path / "folder")
    config = json.loads((tmp_path / "folder" / "config.json").read_text())
    config |= {"id2label": {"0": "stars"}, "label2id": {"stars": 0}}
    (tmp_path / "folder" / "config.json").write_text(json.dumps(config))
    again = ks.SpanBertTextClassifier.from_preset(tmp_path / "folder")
    again.save_to_preset(tmp_path / "preset")
    for path in ["folder", "preset"]:
        again = ks.SpanBertTextClassifier.from_preset(tmp_path / path)
        assert again.is_regression and again.class_names == ["stars"]
        with pytest.raises(ValueError, match="at least two names"):
            ks.SpanBertTextClassifier.from_preset(tmp_path / path, class_names=["a"])
