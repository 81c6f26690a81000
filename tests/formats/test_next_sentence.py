"""The next-sentence head of BERT in checkpoints of other libraries."""

import logging

import keras
import numpy as np
import pytest
from bert_checkpoints import assert_same, build, compute, inputs, load, mlm_logits, write
from google_checkpoints import write_google

import keras_spanbert as ks
from keras_spanbert.checkpoints.__main__ import main


@pytest.fixture(scope="module")
def bert(transformers):
    return build(transformers.BertForPreTraining)


@pytest.fixture(scope="module")
def expected(bert):
    outputs = compute(bert, inputs())
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


@pytest.mark.parametrize("span_boundary", [False, True])
def test_logits_equal_after_conversion_both_ways(
    transformers, huggingface, expected, tmp_path, caplog, span_boundary
):
    heads = {"span_boundary": span_boundary, "next_sentence": True}
    pretrainer = ks.SpanBertPretrainer.from_preset(huggingface, **heads)
    untrained = ["sbo_head"] if span_boundary else []
    assert pretrainer.untrained_heads() == untrained and pretrainer.preprocessor.next_sentence
    assert bool(untrained) == any(record.name == "keras_spanbert" for record in caplog.records)
    check(pretrainer, expected)
    ks.checkpoints.to_huggingface(pretrainer, tmp_path / "out")
    assert_same(ks.SpanBertPretrainer.from_preset(tmp_path / "out", **heads), pretrainer)
    back = compute(load(transformers.BertForPreTraining, tmp_path / "out"), inputs())
    np.testing.assert_allclose(back.prediction_logits.numpy(), expected[0], atol=1e-6)
    np.testing.assert_allclose(back.seq_relationship_logits.numpy(), expected[1], atol=1e-6)


def test_google_checkpoint_gives_the_same_logits(bert, expected, tmp_path):
    folder = write_google(bert, tmp_path / "google")
    pretrainer = ks.checkpoints.from_google(folder, span_boundary=False, next_sentence=True)
    assert pretrainer.untrained_heads() == []
    assert not pretrainer.preprocessor.tokenizer.lowercase
    check(pretrainer, expected)


def test_unused_head_tensors_are_reported(huggingface, expected, tmp_path, capsys):
    pretrainer = ks.SpanBertPretrainer.from_preset(huggingface)
    assert pretrainer.objectives == ("mlm", "sbo")
    np.testing.assert_allclose(mlm_logits(pretrainer, inputs()), expected[0], atol=1e-4)

    def rows():
        out = capsys.readouterr().out
        return {" ".join(line.split("(")[0].split()) for line in out.splitlines()}

    names = ["pooler.dense.weight", "pooler.dense.bias"]
    names += ["cls.seq_relationship.weight", "cls.seq_relationship.bias"]
    assert main([str(huggingface), str(tmp_path / "without")]) == 0
    assert {f"left unused {name}" for name in names} <= rows()
    assert main([str(huggingface), str(tmp_path / "with"), "--next_sentence"]) == 0
    assert {f"loaded {name}" for name in names} <= rows()
    converted = ks.SpanBertPretrainer.from_preset(tmp_path / "with")
    np.testing.assert_allclose(pair_logits(converted, inputs()), expected[1], atol=1e-4)
    # Objectives cannot be changed for a preset.
    assert main([str(tmp_path / "with"), str(tmp_path / "no"), "--next_sentence"]) == 2
    assert "only to checkpoints of other libraries" in capsys.readouterr().err


def test_missing_head_is_initialized_and_logged(hf_folder, caplog):
    with caplog.at_level(logging.WARNING):
        ks.SpanBertPretrainer.from_preset(hf_folder, span_boundary=False, next_sentence=True)
    assert "has no weights for nsp_head and pooler, which start from random weights" in caplog.text
