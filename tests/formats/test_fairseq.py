import argparse
import collections
import sys
import types

import numpy as np
import pytest
import torch
from bert_checkpoints import assert_same, released_outputs

import keras_spanbert as ks


@pytest.fixture(scope="module")
def reference(shared_data):
    return shared_data / "reference" / "pretrained"


@pytest.fixture(scope="module")
def forward(reference):
    with np.load(reference / "forward.npz") as file:
        return dict(file)


def cross_entropy_sum(logits, targets):
    logits = logits.astype("float64")
    log_z = np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)) + logits.max(-1)
    chosen = np.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return ((log_z - chosen) * (targets != 0)).sum()


def test_outputs_of_both_heads_equal_the_reference(reference, forward):
    encoded, logits = released_outputs(reference, forward)
    for found in encoded:
        np.testing.assert_allclose(found, forward["sequence_output"], atol=1e-5)
    np.testing.assert_allclose(logits["mlm"], forward["mlm_logits"], atol=5e-5)
    np.testing.assert_allclose(logits["sbo"], forward["sbo_logits"], atol=5e-5)
    for name, value, targets in [
        ("mlm", logits["mlm"], "mlm_targets"),
        ("sbo", logits["sbo"], "pair_targets"),
    ]:
        loss = cross_entropy_sum(value, forward[targets])
        assert loss == pytest.approx(float(forward[f"{name}_loss_sum"]), abs=1e-4 * 256)


@pytest.mark.once
def test_other_entries_are_ignored(reference, tmp_path, monkeypatch):
    # The entries that fairseq's trainer writes.
    fairseq, meters = types.ModuleType("fairseq"), types.ModuleType("fairseq.meters")
    meter = type("AverageMeter", (), {"__module__": "fairseq.meters"})
    fairseq.meters, meters.AverageMeter = meters, meter
    content = torch.load(reference / "checkpoint.pt", weights_only=True)
    content["args"] = argparse.Namespace(arch="bert_base", lr=[1e-4])
    value = meter()
    value.avg, value.count = 2.5, 7
    content["extra_state"] = {"train_meters": collections.OrderedDict(train_loss=value)}
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "fairseq", fairseq)
        patch.setitem(sys.modules, "fairseq.meters", meters)
        torch.save(content, tmp_path / "checkpoint.pt")
    pretrainer = ks.checkpoints.from_fairseq(tmp_path / "checkpoint.pt", num_heads=4)
    assert pretrainer.max_span_tokens == 15 and pretrainer.position_dim == 200
    assert pretrainer.preprocessor is None
    again = ks.SpanBertPretrainer.from_preset(tmp_path / "checkpoint.pt", num_heads=4)
    assert again.backbone.num_heads == 4


@pytest.mark.once
def test_legacy_file_format_gives_the_same_weights(reference, tmp_path):
    content = torch.load(reference / "checkpoint.pt", weights_only=True)
    torch.save(content, tmp_path / "old", _use_new_zipfile_serialization=False)
    paths = [tmp_path / "old", reference / "checkpoint.pt"]
    assert_same(*(ks.checkpoints.from_fairseq(path, num_heads=4) for path in paths))


def test_vocabulary_in_the_folder_gives_the_preprocessor(reference, tmp_path):
    (tmp_path / "checkpoint.pt").write_bytes((reference / "checkpoint.pt").read_bytes())
    (tmp_path / "vocab.txt").write_bytes((reference / "hf" / "vocab.txt").read_bytes())
    pretrainer = ks.checkpoints.from_fairseq(tmp_path / "checkpoint.pt", num_heads=4)
    assert pretrainer.preprocessor.tokenizer.vocabulary_size() == 211
    assert pretrainer.preprocessor.sequence_length == 64
    (candidates,) = pretrainer.fill("[MASK] [MASK]", top_k=3)
    assert len(candidates) == 3
    assert all(c["score"] == pytest.approx(c["mlm"] + c["sbo"], abs=1e-4) for c in candidates)


@pytest.mark.once
def test_num_heads_must_be_given_if_unknown(reference):
    with pytest.raises(ValueError, match="`num_heads` must be given.*48"):
        ks.checkpoints.from_fairseq(reference / "checkpoint.pt")
    with pytest.raises(ValueError, match="`num_heads` must divide the hidden size 48.*=7"):
        ks.checkpoints.from_fairseq(reference / "checkpoint.pt", num_heads=7)
