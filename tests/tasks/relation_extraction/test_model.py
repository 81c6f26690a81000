"""The relation extractor: reference logits and losses, training, predictions, presets."""

import json

import numpy as np
import pytest
from comparisons import assert_close
from tiny_extractor import LENGTH, RELATIONS, VOCABULARY, columns, examples

import keras_spanbert as ks
from keras_spanbert.data import tacred


@pytest.fixture(scope="module")
def reference(finetuning):
    folder, expected, features = finetuning("relation")
    model = ks.SpanBertRelationExtractor.from_preset(
        str(folder / "model"), relations=expected["labels"]
    )
    model.compile()
    splits = {name: tacred.read(folder / f"{name}.json") for name in ["train", "dev", "test"]}
    return model, splits, expected, features


OTHERS = ["text", "text_ner", "ner_text", "ner_32", "text_48"]


@pytest.mark.every_backend
@pytest.mark.parametrize(
    "mode", ["ner", *(pytest.param(mode, marks=pytest.mark.torch_first) for mode in OTHERS)]
)
def test_logits_losses_and_scores_equal_the_released_code(reference, mode):
    model, splits, expected, features = reference
    kind, _, length = mode.rpartition("_") if mode[-1].isdecimal() else (mode, "", 128)
    model.preprocessor = ks.SpanBertRelationExtractorPreprocessor(
        model.preprocessor.tokenizer, int(length), kind,
        expected["special_tokens_dev_then_train_then_test"], truncation="released",
    )  # fmt: skip
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


def test_extract_gives_the_most_likely_relation(trained_extractor):
    given = examples(32, seed=4)
    x, y = columns(given)
    found = trained_extractor.extract(*x.values())
    assert found == trained_extractor.extract(given)
    logits = trained_extractor.predict(x, verbose=0)
    scores = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose([a["score"] for a in found], scores.max(axis=1), rtol=1e-4)


def test_conversion_distinguishes_relations_from_text_classes(
    trained_extractor, tmp_path, shared_data
):
    trained_extractor.save_to_preset(tmp_path / "preset")
    for source, destination in [("preset", "huggingface"), ("huggingface", "again")]:
        ks.checkpoints.convert(str(tmp_path / source), str(tmp_path / destination))
    config = json.loads((tmp_path / "huggingface" / "config.json").read_text())
    settings = config["task_specific_params"]["relation_extraction"]
    assert settings["mode"] == "ner_text" and settings["symbols"]["SUBJ_END"] == "[unused2]"
    again = ks.SpanBertRelationExtractor.from_preset(str(tmp_path / "again"))
    assert again.preprocessor.symbols == trained_extractor.preprocessor.symbols
    given = examples(8, seed=6)
    assert_close(again.extract(given), trained_extractor.extract(given), 1e-4)
    # The files of the released script do not name the task.
    released = shared_data / "reference" / "finetuning" / "relation" / "model"
    ks.checkpoints.convert(str(released), str(tmp_path / "texts"))
    task = json.loads((tmp_path / "texts" / "task.json").read_text())
    assert task["class_name"] == "SpanBertTextClassifier"


def test_unused_tokens_are_added_to_the_vocabulary_of_a_preset(tmp_path, caplog):
    vocabulary = [token for token in VOCABULARY if "unused" not in token]
    size = len(vocabulary)
    backbone = ks.SpanBertBackbone(size, 1, 2, 6, 7, dropout=0.0, max_sequence_length=LENGTH)
    preprocessor = ks.SpanBertPretrainerPreprocessor(ks.SpanBertTokenizer(vocabulary), LENGTH)
    ks.SpanBertPretrainer(backbone, preprocessor).save_to_preset(tmp_path / "encoder")
    model = ks.SpanBertRelationExtractor.from_preset(tmp_path / "encoder", relations=RELATIONS)
    assert "101 such tokens were added" in caplog.text
    assert model.untrained_heads() == list(model.head_layers())
    assert model.backbone.vocabulary_size == size + 101
    for new, old in zip(model.backbone.get_weights(), backbone.get_weights(), strict=True):
        np.testing.assert_array_equal(new[: len(old)], old)
    found = examples(4)
    model.fit(found, verbose=0)
    ids = model.preprocessor.symbol_ids()
    assert len(ids) > 4 and min(ids.values()) >= size
    model.save_to_preset(tmp_path / "relations")
    again = ks.SpanBertRelationExtractor.from_preset(tmp_path / "relations")
    assert again.preprocessor.symbol_ids() == ids
    assert again.backbone.vocabulary_size == size + 101
    assert_close(again.extract(found), model.extract(found), 1e-4)
