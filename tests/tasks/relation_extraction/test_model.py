"""Reference logits and losses, training, answers, presets."""

import json
import os

import keras
import numpy as np
import pytest
from tiny_extractor import LENGTH, RELATIONS, build, columns, examples

import keras_spanbert as ks
from keras_spanbert.data import semeval2010, tacred


@pytest.fixture
def trained(trained_extractor):
    return trained_extractor


# === The released model ===


@pytest.fixture(scope="module")
def reference(shared_data):
    folder = shared_data / "reference" / "finetuning" / "relation"
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    model = ks.SpanBertRelationExtractor.from_preset(
        str(folder / "model"), relations=expected["labels"]
    )
    model.compile()
    splits = {name: tacred.read(folder / f"{name}.json") for name in ["train", "dev", "test"]}
    with np.load(folder / "features.npz") as file:
        return model, splits, expected, {name: file[name] for name in file.files}


@pytest.mark.parametrize("mode", ["ner", "text", "text_ner", "ner_text", "ner_32", "text_48"])
def test_logits_losses_and_scores_are_the_released_ones(reference, mode):
    model, splits, expected, features = reference
    kind, _, length = mode.rpartition("_") if mode[-1].isdecimal() else (mode, "", 128)
    model.preprocessor = ks.SpanBertRelationExtractorPreprocessor(
        model.preprocessor.tokenizer,
        int(length),
        kind,
        expected["special_tokens_dev_then_train_then_test"],
        truncation="released",
    )
    for name, given in splits.items() if length == 128 else [("dev", splits["dev"])]:
        wanted = expected["evaluation"][f"{mode}/{name}"]
        inputs = model.preprocessor.inputs(given)
        np.testing.assert_array_equal(inputs["token_ids"], features[f"{mode}/{name}/model_ids"])
        logits = model.predict(inputs, verbose=0)
        np.testing.assert_allclose(logits, features[f"{mode}/{name}/logits"], atol=1e-4)
        loss = model.evaluate(given, verbose=0, return_dict=True)["loss"]
        assert loss == pytest.approx(wanted["loss"], abs=1e-5)
        scores = model.evaluate_relations(given)
        assert scores["total"] == len(given)
        for score in ["precision", "recall", "f1"]:
            assert scores[score] / 100 == pytest.approx(wanted["evaluate_batch_32"][score])
        found = [model.relations.index(answer["relation"]) for answer in model.extract(given)]
        assert found == wanted["predictions"]


# === Training ===


def test_fit_learns_relations(trained):
    scores = trained.evaluate_relations(examples(128, seed=1))
    assert scores["f1"] > 95.0 and "macro_f1" not in scores
    assert set(scores) == {"precision", "recall", "f1", "total"}


def test_examples_columns_and_arrays_give_the_same_loss(trained):
    given = examples(32, seed=2)
    x, y = columns(given)
    arrays = trained.preprocess(x, y)[:2]
    numbers = [RELATIONS.index(relation) for relation in y]
    losses = [
        trained.evaluate(*data, verbose=0, return_dict=True)["loss"]
        for data in [(given,), (x, y), (x, np.array(numbers)), arrays, (arrays[0], np.array(y))]
        if not (data[0] is arrays[0] and data[1] is not arrays[1])  # Names are for strings.
    ]
    np.testing.assert_allclose(losses, losses[0], rtol=1e-5)


def test_batches_of_any_stream_give_the_same_loss(trained):
    tf = pytest.importorskip("tensorflow")
    given = examples(64, seed=2)
    x, y = columns(given)
    wanted = trained.evaluate(given, batch_size=32, verbose=0, return_dict=True)["loss"]
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(32)
    for stream in [dataset, (given[i : i + 32] for i in [0, 32])]:
        loss = trained.evaluate(stream, steps=2, verbose=0, return_dict=True)["loss"]
        assert loss == pytest.approx(wanted, rel=1e-5)


@pytest.mark.once
def test_fit_gives_symbols_to_types():
    model = build("ner")
    assert model.preprocessor.types() == {}
    given = [{**example, "subj_type": "PERSON"} for example in examples(4)]
    model.compile(jit_compile=False)
    model.fit(given, verbose=0)
    assert list(model.preprocessor.types())[0] == "SUBJ=PERSON"
    assert model.preprocessor.symbols["SUBJ=PERSON"] == "[unused5]"


@pytest.mark.once
@pytest.mark.parametrize(
    "change, error",
    [
        ({"relation": "boss"}, "one of the model's 3: no_relation, head, former_head.*'boss' at 1"),
        ({"relation": None}, "Received: None at 1"),
        ({"subj_type": None}, "example 1 .*takes a type of the subject"),
        ({"obj_end": 99}, r"example 1 \(id '0-1'\): `obj_start` and `obj_end`"),
    ],
)
def test_mistake_in_an_example_is_named(trained, change, error):
    given = examples(3)
    given[1] = {**given[1], **change}
    with pytest.raises(ValueError, match=error):
        trained.evaluate_relations(given)


@pytest.mark.once
def test_examples_without_relations_are_no_training_data(trained):
    given = [{**example, "relation": None} for example in examples(3)]
    with pytest.raises(ValueError, match="must have labels to train or evaluate on"):
        trained.evaluate(given, verbose=0)
    with pytest.raises(ValueError, match="`examples` must be what .*tacred.read"):
        trained.evaluate_relations("dev.json")
    assert len(trained.extract(given)) == 3


@pytest.mark.once
def test_semevals_relations_have_its_official_score():
    model = build(relations=list(semeval2010.RELATIONS))
    labels = ["Cause-Effect(e1,e2)", "Other", "Message-Topic(e2,e1)"]
    given = [{**example, "relation": relation} for example, relation in zip(examples(3), labels)]
    scores = model.evaluate_relations(given)
    found = [answer["relation"] for answer in model.extract(given)]
    wanted = ks.metrics.semeval2010_task8(labels, found)
    assert {name: scores[name] for name in wanted} == wanted
    assert "macro_f1" in scores and "f1" in scores and model.best_score == "macro_f1"


# === Answers ===


def test_extract_gives_the_likeliest_relation(trained):
    given = examples(32, seed=4)
    x, y = columns(given)
    found = trained.extract(*x.values())
    assert found == trained.extract(given)
    logits = trained.predict(x, verbose=0)
    scores = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose([a["score"] for a in found], scores.max(axis=1), rtol=1e-4)
    again = trained.extract(*x.values(), batch_size=31)
    assert [a["relation"] for a in again] == [a["relation"] for a in found]
    # In words, and one text alone.
    words = [example["token"] for example in given]
    spans = [
        [(example[f"{kind}_start"], example[f"{kind}_end"] + 1) for example in given]
        for kind in ["subj", "obj"]
    ]
    of_words = trained.extract(words, *spans, x["subject_type"], x["object_type"])
    assert of_words == found
    alone = trained.extract(*(column[3] for column in x.values()))
    assert alone["relation"] == found[3]["relation"]
    assert alone["score"] == pytest.approx(found[3]["score"], abs=1e-5)


def test_long_texts_keep_both_spans_in_sight(trained):
    text = "ann left the ibex"
    long = text + " and the old" * 2_000
    given = ([(0, 3)] * 2, [(13, 17)] * 2, ["PERSON"] * 2, ["COMPANY"] * 2)
    answers = trained.extract([text, long], *given)
    assert [answer["relation"] for answer in answers] == ["former_head"] * 2
    far = {
        "text": [text + " and" * 9_000 + " bob"],
        "subject": [(0, 3)],
        "object": [(36_018, 36_021)],
    }
    rows = trained.preprocessor.call({**far, "subject_type": ["PERSON"], "object_type": ["PERSON"]})
    types = trained.preprocessor.types()
    for symbol in ["SUBJ=PERSON", "OBJ=PERSON"]:
        assert types[symbol] in rows["token_ids"][0]


@pytest.mark.once
def test_no_texts_have_no_relations(trained):
    assert trained.extract([], [], [], [], []) == []


@pytest.mark.once
@pytest.mark.parametrize(
    "arguments, error",
    [
        ((["ann runs"], [(0, 3)], [(4, 9)]), "text 0: the object must be characters of the text"),
        ((["ann runs"], [(0, 3)], [(4, 8)]), "text 0: mode='ner_text' takes a type"),
        (
            (["ann runs"], [(0, 3)], [(4, 8)], ["DOG"], ["DOG"]),
            "symbol for.*: COMPANY, PERSON. Received: 'DOG'",
        ),
        ((["ann"], [(0, 3)], [(0, 3)], ["PERSON"], []), "`texts` and `object_types` must be as m"),
        (("ann", 0, (0, 3)), r"Received: subjects\[0\]=0"),
        ((3, [(0, 3)], [(0, 3)]), "`texts` must be a list of strings. Received: texts=3"),
    ],
)
def test_mistake_in_an_argument_is_named(trained, arguments, error):
    with pytest.raises(ValueError, match=error):
        trained.extract(*arguments)
    with pytest.raises(ValueError, match="`batch_size` must be at least 1"):
        trained.extract(["ann"], [(0, 3)], [(0, 3)], ["PERSON"], ["PERSON"], batch_size=0)


@pytest.mark.once
def test_relations_must_be_names():
    with pytest.raises(ValueError, match="`relations` must hold a name once. Received: 'a' twice"):
        build(relations=["a", "b", "a"])


def test_random_relations_come_with_a_warning(caplog):
    build().extract("ann runs acme", (0, 3), (9, 13))
    assert "has not been trained: what its pooler and classifier gives is random" in caplog.text


# === Presets ===


def test_presets_and_keras_files_give_the_same_answers(trained, tmp_path):
    x, _ = columns(examples(32, seed=5))
    wanted = trained.extract(*x.values())
    trained.save_to_preset(tmp_path / "preset")
    trained.save(tmp_path / "model.keras")
    ks.checkpoints.to_huggingface(trained, tmp_path / "huggingface")
    for model in [
        ks.SpanBertRelationExtractor.from_preset(str(tmp_path / "preset")),
        keras.models.load_model(tmp_path / "model.keras"),
        ks.SpanBertRelationExtractor.from_preset(str(tmp_path / "huggingface")),
    ]:
        assert model.preprocessor.symbols == trained.preprocessor.symbols
        assert model.preprocessor.mode == "ner_text"
        assert model.preprocessor.sequence_length == LENGTH and model.relations == RELATIONS
        for answer, its in zip(model.extract(*x.values()), wanted):
            assert answer["relation"] == its["relation"]
            assert answer["score"] == pytest.approx(its["score"], abs=1e-5)


@pytest.mark.once
def test_transformers_gives_the_same_logits(trained, tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    ks.checkpoints.to_huggingface(trained, tmp_path / "huggingface")
    theirs = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "huggingface")
    assert theirs.config.id2label == dict(enumerate(RELATIONS))
    inputs = trained.preprocess(examples(5))[0]
    with torch.no_grad():
        logits = theirs(
            input_ids=torch.tensor(inputs["token_ids"].astype("int64")),
            attention_mask=torch.tensor(inputs["padding_mask"]),
        ).logits.numpy()
    np.testing.assert_allclose(trained.predict(inputs, verbose=0), logits, atol=1e-4)
    with open(os.path.join(tmp_path, "huggingface", "config.json")) as file:
        settings = json.load(file)["task_specific_params"]["relation_extraction"]
    assert settings["mode"] == "ner_text" and settings["symbols"]["SUBJ_END"] == "[unused2]"


@pytest.mark.once
def test_conversion_knows_relations_from_classes_of_texts(trained, tmp_path, shared_data):
    trained.save_to_preset(tmp_path / "preset")
    for source, destination in [("preset", "huggingface"), ("huggingface", "again")]:
        ks.checkpoints.convert(str(tmp_path / source), str(tmp_path / destination))
    again = ks.SpanBertRelationExtractor.from_preset(str(tmp_path / "again"))
    assert again.preprocessor.symbols == trained.preprocessor.symbols
    given = examples(8, seed=6)
    assert [x["relation"] for x in again.extract(given)] == [
        x["relation"] for x in trained.extract(given)
    ]
    # What the released script writes says nothing of its task.
    released = shared_data / "reference" / "finetuning" / "relation" / "model"
    ks.checkpoints.convert(str(released), str(tmp_path / "texts"))
    with open(tmp_path / "texts" / "task.json") as file:
        assert json.load(file)["class_name"] == "SpanBertTextClassifier"


@pytest.mark.once
def test_preset_of_an_encoder_takes_relations(tmp_path):
    model = build()
    ks.SpanBertPretrainer(
        model.backbone, ks.SpanBertPretrainerPreprocessor(model.preprocessor.tokenizer, LENGTH)
    ).save_to_preset(tmp_path / "preset")
    with pytest.raises(ValueError, match="`relations` must be given: .* has no head"):
        ks.SpanBertRelationExtractor.from_preset(str(tmp_path / "preset"))
    extractor = ks.SpanBertRelationExtractor.from_preset(
        str(tmp_path / "preset"), relations=RELATIONS
    )
    assert extractor.preprocessor.mode == "ner" and extractor.preprocessor.sequence_length == 16
    assert extractor.untrained_heads() == ["pooler", "classifier"]


@pytest.mark.once
def test_other_relations_start_a_fresh_classifier(trained, tmp_path, caplog):
    trained.save_to_preset(tmp_path / "preset")
    other = ks.SpanBertRelationExtractor.from_preset(
        str(tmp_path / "preset"), relations=["none", "owns"]
    )
    assert other.relations == ["none", "owns"] and other.classifier.units == 2
    assert "has a classifier of other labels" in caplog.text
    np.testing.assert_array_equal(
        *(keras.ops.convert_to_numpy(m.pooler.kernel) for m in (other, trained))
    )
