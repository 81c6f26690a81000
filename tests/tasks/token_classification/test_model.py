import numpy as np
import pytest
from tiny_tagger import build, examples, train
from tiny_tasks import with_large_weights

import keras_spanbert as ks
from keras_spanbert.data.conll import to_iob2
from keras_spanbert.metrics.entities import read_tags


@pytest.fixture(scope="module")
def trained():
    """A trained tagger. Tests must not change it."""
    return train()


@pytest.fixture(scope="module")
def reference(finetuning):
    """The reference model, features and expected outputs."""
    folder, expected, features = finetuning("token_classification")
    model = ks.SpanBertTokenClassifier.from_preset(str(folder / "model"))
    model.preprocessor = ks.SpanBertTokenClassifierPreprocessor(model.preprocessor.tokenizer, 64)
    return model, features, expected


@pytest.mark.every_backend
def test_logits_and_loss_equal_the_reference(reference):
    model, features, expected = reference
    assert model.labels == expected["labels"]
    inputs = model.preprocessor.inputs([x["words"] for x in expected["sentences"]])
    np.testing.assert_array_equal(inputs["token_ids"], features["model_ids"])
    logits = model.predict(inputs, verbose=0)
    np.testing.assert_allclose(logits, features["logits"], atol=1e-4)
    labels = features["label_ids"]
    loss = model.evaluate(
        inputs, np.maximum(labels, 0), sample_weight=labels >= 0, verbose=0, return_dict=True
    )["loss"]
    assert loss == pytest.approx(expected["loss"], abs=1e-4)


def test_word_labels_equal_the_reference(reference):
    model, features, expected = reference
    sentences = [
        {name: sentence[name] for name in ["words", "tags"]}
        for sentence, mask in zip(expected["sentences"], features["input_mask"])
        if mask.sum() < 64  # The reference truncates longer texts.
    ]
    inputs, labels, weights = model.preprocess(sentences)
    rows = np.flatnonzero(features["input_mask"].sum(axis=1) < 64)
    np.testing.assert_array_equal(inputs["token_ids"], features["model_ids"][rows])
    found = np.where(weights > 0, labels, -100)
    np.testing.assert_array_equal(found, features["label_ids"][rows])
    assert len(rows) > 5


def test_fit_learns_to_find_entities(trained):
    sentences = examples(100, seed=1)
    scores = trained.evaluate_entities(sentences)
    assert scores["f1"] > 95.0 and scores["accuracy"] > 95.0 and scores["total"] == 100
    assert set(scores["by_type"]) == {"person", "place"}
    predicted = trained.predict_tags([sentence["words"] for sentence in sentences])
    gold = [sentence["tags"] for sentence in sentences]
    by_hand = ks.metrics.entities(gold, predicted)
    assert {name: scores[name] for name in by_hand} == by_hand
    assert trained.untrained_heads() == []
    # All entities are complete, so the strict score is the same.
    assert trained.evaluate_entities(sentences, strict=True) == scores
    assert trained.describe({"loss": 1.0, "f1": 50.0, "accuracy": 90.0}) == "loss 1.000  F1 50.00"


def test_entities_are_exact_slices_of_short_and_long_texts(trained):
    text = "annie met  bob,in new york."
    found = trained.tag(text)
    assert [(x["text"], x["label"]) for x in found] == [
        ("annie", "person"), ("bob", "person"), ("new york", "place"),
    ]  # fmt: skip
    for entity in found:
        assert text[entity["start"] : entity["end"]] == entity["text"]
        assert 0.5 < entity["score"] <= 1.0
    assert [len(x) for x in trained.tag([text, "", " "])] == [3, 0, 0]
    words = ["old"] * 150 + ["new", "york"] + ["old"] * 150 + ["bob"]
    (by_words,) = trained.tag([words])
    assert [(x["text"], x["start"]) for x in by_words] == [("new york", 150), ("bob", 302)]
    by_text = trained.tag(" ".join(words))
    assert [(x["text"], x["start"]) for x in by_text] == [("new york", 600), ("bob", 1209)]


def test_entities_of_words_count_words_and_words_without_tokens_are_outside(trained):
    found = trained.tag([["annie", "met", "new", "york"], []])
    assert [{**x, "score": 0} for x in found[0]] == [
        {"text": "annie", "label": "person", "start": 0, "end": 1, "score": 0},
        {"text": "new york", "label": "place", "start": 2, "end": 4, "score": 0},
    ]
    assert found[1] == []
    (tags,) = trained.predict_tags([["bob", "\u200b", "", "new", "\u200b", "york"]])
    assert tags[:4] == ["B-person", "O", "O", "B-place"] and tags[4] == "O"
    assert tags[5] in ("O", "B-place", "B-person")


def test_labels_in_bilou_give_whole_entities(tmp_path):
    labels = ["O", *(f"{p}-{kind}" for kind in ["person", "place"] for p in "BILU")]
    model = with_large_weights(build(labels=labels))
    ks.checkpoints.to_huggingface(model, tmp_path / "bert")
    model = ks.SpanBertTokenClassifier.from_preset(tmp_path / "bert")
    assert model.labels == labels and model.is_of_entities and model.kinds == ["person", "place"]
    words = [example["words"] for example in examples(30)]
    tags = model.predict_tags(words)
    assert {"U-person", "B-place", "L-place"} < {tag for row in tags for tag in row}
    for found, row in zip(model.tag(words), tags):
        places = [(x["label"], x["start"], x["end"]) for x in found]
        assert places == list(read_tags(row))
    # The tags of a file may have other prefixes.
    for given in [tags, [to_iob2(row) for row in tags]]:
        rows = [{"words": row, "tags": found} for row, found in zip(words, given)]
        scores = model.evaluate_entities(rows)
        assert scores["f1"] == scores["accuracy"] == 100.0


def test_weights_of_classes_are_refused(trained):
    with pytest.raises(ValueError, match="must be None for this .* Use `sample_weight`"):
        trained.fit([["bob", "met"]], [["O", "O"]], class_weight={0: 2.0})
