"""Tensors under the names of wrappers are found; under an unknown prefix, the error names it."""

import json

import keras
import numpy as np
import pytest
import torch
from bert_checkpoints import assert_same, build, write
from safetensors.torch import load_file, save_file

import keras_spanbert as ks

# The prefixes of DataParallel, `torch.compile` and Lightning, and of both around a part.
PREFIXES = ["module.", "_orig_mod.", "model.", "module._orig_mod.", "model.model."]
TASKS = {
    "SpanBertTextClassifier": "BertForSequenceClassification",
    "SpanBertRelationExtractor": "BertForSequenceClassification",
    "SpanBertTokenClassifier": "BertForTokenClassification",
    "SpanBertMultipleChoice": "BertForMultipleChoice",
    "SpanBertQuestionAnswerer": "BertForQuestionAnswering",
    "SpanBertPretrainer": "BertForMaskedLM",
    "SpanBertBackbone": "BertModel",
}


def rename(folder, new_name):
    """Changes the names of the tensors of a Hugging Face folder."""
    path = folder / "model.safetensors"
    save_file({new_name(name): tensor for name, tensor in load_file(path).items()}, path)
    return folder


def wrapped_inside(name):
    """Returns the name if the encoder and each of its layers are compiled on their own."""
    name = name.replace("bert.", "bert.module._orig_mod.")
    return ".".join(f"{p}._orig_mod" if p.isdecimal() else p for p in name.split("."))


@pytest.mark.parametrize("name", TASKS)
def test_wrapped_tensors_load_in_every_class(transformers, tmp_path, name):
    cls, labels = getattr(ks, name), {} if "Question" in name else {"num_labels": 3}
    model = build(getattr(transformers, TASKS[name]), **labels)
    plain = cls.from_preset(write(model, tmp_path / "plain"))
    for i, prefix in enumerate(PREFIXES):
        folder = rename(write(model, tmp_path / str(i)), f"{prefix}{{}}".format)
        assert_same(cls.from_preset(folder), plain, ignore="sbo_head")
    if name != "SpanBertBackbone":
        assert not set(plain.untrained_heads()) - {"sbo_head"}


@pytest.mark.once
@pytest.mark.parametrize("file_format", ["bin", "lightning", "sharded", "inside"])
def test_wrapped_tensors_load_from_every_file(masked_lm, hf_folder, tmp_path, file_format):
    folder = tmp_path / "source"
    if file_format == "sharded":
        write(masked_lm, folder, "sharded")
        for path in folder.glob("*.safetensors"):
            save_file({f"module.{n}": tensor for n, tensor in load_file(path).items()}, path)
    elif file_format == "inside":
        rename(write(masked_lm, folder), wrapped_inside)
    else:
        state = {f"model.{n}": t for n, t in masked_lm.state_dict().items()}
        content = {"state_dict": state, "epoch": 3} if file_format == "lightning" else state
        write(masked_lm, folder, "bin")
        torch.save(content, folder / "pytorch_model.bin")
    models = [ks.SpanBertPretrainer.from_preset(path) for path in [folder, hf_folder]]
    assert_same(*models, ignore="sbo_head")


@pytest.mark.once
def test_wrapped_fairseq_checkpoints_load(shared_data, tmp_path):
    path = shared_data / "reference" / "pretrained" / "checkpoint.pt"
    content = torch.load(path, weights_only=True)
    plain = ks.checkpoints.from_fairseq(path, num_heads=4)
    for i, prefix in enumerate(PREFIXES):
        wrapped = {f"{prefix}{name}": tensor for name, tensor in content["model"].items()}
        torch.save({**content, "model": wrapped}, tmp_path / f"{i}.pt")
        assert_same(ks.checkpoints.from_fairseq(tmp_path / f"{i}.pt", num_heads=4), plain)
    torch.save({"student.decoder.bert.a": torch.ones(2)}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match=r"under model/decoder.*Received: student.decoder.bert.a"):
        ks.checkpoints.from_fairseq(tmp_path / "other.pt")


@pytest.mark.once
def test_tensors_with_their_own_names_come_first(hf_folder, masked_lm, tmp_path):
    folder = write(masked_lm, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    others = {f"module.{name}": torch.zeros_like(tensor) for name, tensor in tensors.items()}
    save_file({**tensors, **others}, folder / "model.safetensors")
    backbones = [ks.SpanBertBackbone.from_preset(path) for path in [folder, hf_folder]]
    assert_same(*backbones)
    others |= {f"model.{name}": torch.zeros_like(tensor) for name, tensor in tensors.items()}
    save_file(others, folder / "model.safetensors")
    with pytest.raises(ValueError, match="each tensor once. Received: mod.* and mod"):
        ks.SpanBertBackbone.from_preset(folder)


@pytest.mark.once
@pytest.mark.parametrize("name", TASKS)
def test_unknown_prefixes_are_named(transformers, tmp_path, name):
    model = build(getattr(transformers, TASKS[name]))
    folder = rename(write(model, tmp_path), lambda name: f"student.{name}")
    config = json.loads((folder / "config.json").read_text())
    config = {key: value for key, value in config.items() if key not in ("id2label", "label2id")}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"a prefix that is not known.*Received: student\."):
        getattr(ks, name).from_preset(folder)


@pytest.mark.once
@pytest.mark.parametrize(
    "name, arguments",
    [
        ("SpanBertTextClassifier", "`num_classes` or `class_names`"),
        ("SpanBertRelationExtractor", "`relations`"),
        ("SpanBertTokenClassifier", "`labels`"),
    ],
)
def test_missing_heads_are_named(transformers, tmp_path, name, arguments):
    folder = write(build(transformers.BertModel), tmp_path)
    with pytest.raises(ValueError, match=f"{arguments} must be given.*no head.*classifier.weight"):
        getattr(ks, name).from_preset(folder)


@pytest.mark.once
def test_labels_without_names_get_numbers(transformers, tmp_path):
    model = build(transformers.BertForSequenceClassification, num_labels=3)
    folder = rename(write(model, tmp_path), lambda name: f"module.{name}")
    config = json.loads((folder / "config.json").read_text())
    config.pop("id2label")
    (folder / "config.json").write_text(json.dumps(config))
    ours = ks.SpanBertTextClassifier.from_preset(folder)
    assert ours.class_names == ["0", "1", "2"]
    bias = keras.ops.convert_to_numpy(ours.classifier.bias)
    np.testing.assert_array_equal(bias, model.classifier.bias.detach().numpy())
