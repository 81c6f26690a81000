"""BERT's head for pairs of segments, from and to other libraries' checkpoints."""

import logging

import keras
import numpy as np
import pytest
import torch
from bert_checkpoints import as_torch, build, inputs, mlm_logits, write
from google_checkpoints import write_google

import keras_spanbert as ks
from keras_spanbert.checkpoints.__main__ import main


@pytest.fixture(scope="module")
def bert(transformers):
    return build(transformers.BertForPreTraining)


@pytest.fixture(scope="module")
def expected(bert):
    with torch.no_grad():
        outputs = bert(**as_torch(inputs()))
    return outputs.prediction_logits.numpy(), outputs.seq_relationship_logits.numpy()


@pytest.fixture(scope="module")
def huggingface(bert, tmp_path_factory):
    return write(bert, tmp_path_factory.mktemp("huggingface"))


def pair_logits(pretrainer, x):
    places = np.zeros((len(x["token_ids"]), 2), "int32")
    names = ["mask_positions", "span_left", "span_right", "span_offsets"]
    logits = pretrainer({**x, **dict.fromkeys(names, places)}, training=False)
    return keras.ops.convert_to_numpy(logits["nsp"])


def check(pretrainer, expected):
    np.testing.assert_allclose(mlm_logits(pretrainer, inputs()), expected[0], atol=1e-4)
    np.testing.assert_allclose(pair_logits(pretrainer, inputs()), expected[1], atol=1e-4)


def test_huggingface_gives_the_same_logits_either_way(
    transformers, huggingface, expected, tmp_path, caplog
):
    pretrainer = ks.SpanBertPretrainer.from_preset(
        huggingface, span_boundary=False, next_sentence=True
    )
    assert not [r for r in caplog.records if r.name == "keras_spanbert"]  # Nothing is fresh.
    assert pretrainer.preprocessor.next_sentence and pretrainer.untrained_heads() == []
    check(pretrainer, expected)

    ks.checkpoints.to_huggingface(pretrainer, tmp_path / "out")
    back, info = transformers.BertForPreTraining.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not any(info.values()), info
    with torch.no_grad():
        outputs = back.eval()(**as_torch(inputs()))
    np.testing.assert_allclose(outputs.prediction_logits.numpy(), expected[0], atol=1e-6)
    np.testing.assert_allclose(outputs.seq_relationship_logits.numpy(), expected[1], atol=1e-6)
    again = ks.SpanBertPretrainer.from_preset(
        tmp_path / "out", span_boundary=False, next_sentence=True
    )
    for mine, theirs in zip(pretrainer.weights, again.weights, strict=True):
        assert mine.path == theirs.path
        np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (mine, theirs)))


def test_all_three_heads_round_trip_exactly(huggingface, expected, tmp_path):
    pretrainer = ks.SpanBertPretrainer.from_preset(huggingface, next_sentence=True)
    assert pretrainer.untrained_heads() == ["sbo_head"]
    ks.checkpoints.to_huggingface(pretrainer, tmp_path / "out")
    again = ks.SpanBertPretrainer.from_preset(tmp_path / "out", next_sentence=True)
    check(again, expected)
    for mine, theirs in zip(pretrainer.weights, again.weights, strict=True):
        np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (mine, theirs)))


def test_google_s_checkpoint_gives_the_same_logits(bert, expected, tmp_path):
    folder = write_google(bert, tmp_path / "google")
    pretrainer = ks.checkpoints.from_google(folder, span_boundary=False, next_sentence=True)
    assert pretrainer.untrained_heads() == []
    check(pretrainer, expected)


def test_without_the_head_its_tensors_are_left_and_told(huggingface, expected, tmp_path, capsys):
    pretrainer = ks.SpanBertPretrainer.from_preset(huggingface)
    assert pretrainer.objectives == ("mlm", "sbo")
    np.testing.assert_allclose(mlm_logits(pretrainer, inputs()), expected[0], atol=1e-4)
    names = ["pooler.dense.weight", "pooler.dense.bias"]
    names += ["cls.seq_relationship.weight", "cls.seq_relationship.bias"]
    assert main([str(huggingface), str(tmp_path / "without")]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in names:
        assert any(line.startswith("left unused") and name in line for line in lines)
    assert main([str(huggingface), str(tmp_path / "with"), "--next_sentence"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in names:
        assert any(line.startswith("loaded") and name in line for line in lines)
    converted = ks.SpanBertPretrainer.from_preset(tmp_path / "with")
    np.testing.assert_allclose(pair_logits(converted, inputs()), expected[1], atol=1e-4)
    # A preset has its objectives itself.
    assert main([str(tmp_path / "with"), str(tmp_path / "no"), "--next_sentence"]) == 2
    assert "for other libraries' checkpoints" in capsys.readouterr().err


def test_head_that_a_checkpoint_lacks_starts_fresh_and_the_log_says_so(hf_folder, caplog):
    with caplog.at_level(logging.WARNING):
        ks.SpanBertPretrainer.from_preset(hf_folder, span_boundary=False, next_sentence=True)
    assert "has no weights for nsp_head and pooler, which start fresh" in caplog.text
