import json

import keras
import numpy as np
import pytest
from tiny_tagger import LABELS, VOCABULARY, build, examples, train

import keras_spanbert as ks


@pytest.fixture(scope="module")
def trained():
    """Tests leave it as it is."""
    return train()


@pytest.fixture(scope="module")
def reference(shared_data):
    """The reference's model, features, and what it is expected to give."""
    folder = shared_data / "reference" / "finetuning" / "token_classification"
    with np.load(folder / "features.npz") as file:
        features = dict(file)
    expected = json.loads((folder / "expected.json").read_text())
    model = ks.SpanBertTokenClassifier.from_preset(str(folder / "model"))
    model.preprocessor = ks.SpanBertTokenClassifierPreprocessor(model.preprocessor.tokenizer, 64)
    return model, features, expected


def test_logits_and_loss_are_those_of_the_reference(reference):
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


@pytest.mark.once
def test_labels_of_words_are_those_of_the_reference(reference):
    model, features, expected = reference
    sentences = [
        {name: sentence[name] for name in ["words", "tags"]}
        for sentence, mask in zip(expected["sentences"], features["input_mask"])
        if mask.sum() < 64  # What is longer is cut in the reference.
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
    # Whole entities alone: the strict score is the same.
    assert trained.evaluate_entities(sentences, strict=True) == scores


def test_entities_are_exact_slices_of_texts(trained):
    text = "annie met  bob,in new york."
    found = trained.tag(text)
    assert [(x["text"], x["label"]) for x in found] == [
        ("annie", "person"), ("bob", "person"), ("new york", "place"),
    ]  # fmt: skip
    for entity in found:
        assert text[entity["start"] : entity["end"]] == entity["text"]
        assert 0.5 < entity["score"] <= 1.0
    assert [len(x) for x in trained.tag([text, "", " "])] == [3, 0, 0]


@pytest.mark.once
def test_entities_of_words_count_words(trained):
    found = trained.tag([["annie", "met", "new", "york"], []])
    assert [{**x, "score": 0} for x in found[0]] == [
        {"text": "annie", "label": "person", "start": 0, "end": 1, "score": 0},
        {"text": "new york", "label": "place", "start": 2, "end": 4, "score": 0},
    ]
    assert found[1] == []


@pytest.mark.once
def test_score_is_the_mean_probability_of_the_words(trained):
    (entity,) = trained.tag("met new york .")
    inputs = trained.preprocessor.inputs([["met", "new", "york", "."]])
    logits = np.asarray(trained.predict(inputs, verbose=0), "float64")[0, 2:4]
    odds = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert entity["score"] == pytest.approx(np.mean(odds[[0, 1], [3, 4]]), abs=1e-4)


def test_long_text_is_tagged_to_its_end(trained):
    words = ["old"] * 150 + ["new", "york"] + ["old"] * 150 + ["bob"]
    (by_words,) = trained.tag([words])
    assert [(x["text"], x["start"]) for x in by_words] == [("new york", 150), ("bob", 302)]
    by_text = trained.tag(" ".join(words))
    assert [(x["text"], x["start"]) for x in by_text] == [("new york", 600), ("bob", 1209)]


@pytest.mark.once
def test_answers_do_not_depend_on_batches_or_padding(trained):
    texts = [" ".join(x["words"] * k) for k, x in enumerate(examples(12, seed=4), start=1)]
    expected = trained.tag(texts, batch_size=64)
    for batch_size in [1, 5]:
        for one, other in zip(trained.tag(texts, batch_size), expected):
            assert [x["start"] for x in one] == [x["start"] for x in other]
            scores = [[x["score"] for x in side] for side in (one, other)]
            np.testing.assert_allclose(*scores, atol=1e-4)


@pytest.mark.once
def test_word_without_tokens_is_outside(trained):
    (tags,) = trained.predict_tags([["bob", "\u200b", "", "new", "\u200b", "york"]])
    assert tags[:4] == ["B-person", "O", "O", "B-place"] and tags[4] == "O"
    assert tags[5] in ("O", "B-place", "B-person")


@pytest.mark.once
def test_every_sequence_of_an_untrained_model_is_valid():
    model = build()
    for seed in range(3):
        kernel = np.random.default_rng(seed).normal(size=(16, len(LABELS)))
        model.classifier.kernel.assign(kernel)
        for tags in model.predict_tags([x["words"] for x in examples(40, seed)]):
            for before, tag in zip(["O", *tags], tags):
                assert tag[0] != "I" or before[1:] == tag[1:], tags


@pytest.mark.once
def test_labels_of_no_entities_are_scored_by_accuracy():
    model = build(labels=["NAME", "WORD"])
    assert model.best_score == "accuracy" and build().best_score == "f1"
    words = [["bob", "met", "\u200b"], ["eve"]]
    sentences = [{"words": w, "tags": ["NAME", "WORD", "WORD"][: len(w)]} for w in words]
    # Tracing takes longer than these few steps.
    model.compile(ks.AdamW(1e-2), run_eagerly=keras.backend.backend() == "tensorflow")
    model.fit(sentences, epochs=15, verbose=0)
    # The word without tokens has no label of the model's.
    assert model.predict_tags(words) == [["NAME", "WORD", "O"], ["NAME"]]
    assert model.evaluate_entities(sentences) == {"accuracy": 75.0, "total": 2}
    found = model.tag(["bob met"])[0]
    assert [(x["text"], x["label"]) for x in found] == [("bob", "NAME"), ("met", "WORD")]


def test_preset_and_keras_file_give_the_same_entities(trained, tmp_path):
    texts = [" ".join(x["words"]) for x in examples(5, seed=5)]
    expected = trained.tag(texts)
    trained.save_to_preset(tmp_path / "preset")
    trained.save(tmp_path / "model.keras")
    for model in [
        ks.SpanBertTokenClassifier.from_preset(tmp_path / "preset"),
        keras.models.load_model(tmp_path / "model.keras"),
    ]:
        assert model.labels == LABELS and model.preprocessor.sequence_length == 16
        for one, other in zip(model.tag(texts), expected):
            assert [(x["start"], x["label"]) for x in one] == [
                (x["start"], x["label"]) for x in other
            ]


def test_hugging_face_folder_and_back(trained, tmp_path):
    ks.checkpoints.to_huggingface(trained, str(tmp_path / "hf"))
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["architectures"] == ["BertForTokenClassification"]
    assert config["id2label"] == {str(i): name for i, name in enumerate(LABELS)}
    again = ks.SpanBertTokenClassifier.from_preset(str(tmp_path / "hf"))
    assert again.labels == LABELS
    for one, other in zip(again.get_weights(), trained.get_weights()):
        np.testing.assert_array_equal(one, other)


@pytest.mark.once
def test_preset_without_a_head_needs_labels(tmp_path, caplog):
    build().backbone.save_to_preset(tmp_path)
    build().preprocessor.save_to_preset(tmp_path)
    with pytest.raises(ValueError, match="`labels` must be given"):
        ks.SpanBertTokenClassifier.from_preset(tmp_path)
    model = ks.SpanBertTokenClassifier.from_preset(tmp_path, labels=["x", "y"])
    assert model.labels == ["x", "y"] and model.untrained_heads() == ["classifier"]
    assert model.preprocessor.tokenizer.get_vocabulary() == VOCABULARY


@pytest.mark.once
def test_other_labels_start_a_fresh_head(trained, tmp_path, caplog):
    trained.save_to_preset(tmp_path)
    model = ks.SpanBertTokenClassifier.from_preset(tmp_path, labels=["O", "B-x", "I-x"])
    assert model.labels == ["O", "B-x", "I-x"] and "starts fresh" in caplog.text
    assert model.untrained_heads() == ["classifier"]
    for one, other in zip(model.backbone.get_weights(), trained.backbone.get_weights()):
        np.testing.assert_array_equal(one, other)


@pytest.mark.once
@pytest.mark.parametrize(
    "labels, message",
    [
        ("O", "`labels` must be a list of strings. Received: labels='O'"),
        ([], r"`labels` must be a list of strings. Received: labels=\[\]"),
        (["O", "O"], "`labels` must hold a name once. Received: 'O' twice"),
    ],
)
def test_labels_that_are_none_are_named(labels, message):
    with pytest.raises(ValueError, match=message):
        build(labels=labels)


@pytest.mark.once
def test_random_answers_come_with_a_warning(caplog):
    build().tag("bob met ann")
    assert "has not been trained: what its classifier gives is random" in caplog.text


@pytest.mark.once
@pytest.mark.parametrize(
    "given, message",
    [
        ("dev.conll", "`examples` must be a list of dicts .* Received: 'dev.conll'"),
        ([], r"`examples` must be a list of dicts .* Received: \[\]"),
        ([{"words": ["bob"], "tags": None}], "`examples` must be a list of dicts"),
        ([{"words": ["bob", "met"], "tags": ["O"]}], r"1 for 2 words in examples\[0\]"),
        ([{"words": ["bob"], "tags": [None]}], r"model\'s 5: .* None in examples\[0\]"),
        ([{"words": ["bob"], "tags": ["B-group"]}], r"model's 5: O, B-p.* 'B-group' in examples"),
    ],
)
def test_what_cannot_be_scored_is_named(trained, given, message):
    with pytest.raises(ValueError, match=message):
        trained.evaluate_entities(given)


@pytest.mark.once
@pytest.mark.parametrize(
    "texts, arguments, message",
    [
        (None, {}, "Texts must be a list of strings, or of lists of words. Received: None"),
        (["a", ["b"]], {}, "Texts must be a list of strings, or of lists of words"),
        (["a"], {"batch_size": 0}, "`batch_size` must be at least 1"),
    ],
)
def test_what_cannot_be_tagged_is_named(texts, arguments, message):
    with pytest.raises(ValueError, match=message):
        build().tag(texts, **arguments)


@pytest.mark.once
def test_texts_in_any_container_and_none(trained):
    expected = trained.tag(["bob met ann", "rome"])
    assert trained.tag(np.array(["bob met ann", "rome"])) == expected
    assert trained.tag(("bob met ann", "rome")) == expected
    assert trained.tag([]) == [] and trained.predict_tags([]) == []


@pytest.mark.once
def test_what_is_no_text_or_very_long_has_a_sensible_answer(trained):
    found = trained.tag("bob \ud800 met\ud800 ann")
    assert [(x["text"], x["start"]) for x in found] == [("bob", 0), ("ann", 11)]
    text = "old " * 2_000 + "x" * 2_000 + " rome"
    assert [x["text"] for x in trained.tag(text)][-1] == "rome"


@pytest.mark.once
def test_windows_longer_than_the_model_are_refused():
    model = build()
    model.preprocessor = ks.SpanBertTokenClassifierPreprocessor(model.preprocessor.tokenizer, 17)
    with pytest.raises(ValueError, match="at most the model's 16. Received: sequence_length=17"):
        model.tag("bob")
    model.preprocessor = None
    with pytest.raises(ValueError, match="Strings need a preprocessor"):
        model.tag("bob")
