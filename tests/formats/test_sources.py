"""What is wrong with a source is said in one line, and nothing is run or left behind."""

import fnmatch
import io
import json
import math
import os
import pickle
import re
import shutil
import struct
import tarfile
import tempfile
import zipfile

import keras
import numpy as np
import pytest
import torch
from bert_checkpoints import VOCABULARY, V, write
from safetensors.torch import load_file

import keras_spanbert as ks
from keras_spanbert.checkpoints import __main__ as command
from keras_spanbert.formats import sources


@pytest.fixture
def folder(hf_folder, tmp_path):
    """A copy of a Hugging Face folder, to be spoiled."""
    return shutil.copytree(hf_folder, tmp_path / "source")


@pytest.fixture
def refused(tmp_path, capsys, monkeypatch):
    """Checks that the command refuses a source; returns its line on stderr."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))

    def check(source):
        destination = tmp_path / "destination"
        before = sorted(tmp_path.iterdir())
        assert command.main([str(source), str(destination)]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and "Traceback" not in err
        assert sorted(tmp_path.iterdir()) == before
        assert list((tmp_path / "temporary").iterdir()) == []
        return err

    return check


def as_bin(folder, **changes):
    """Turns the folder's weights into a `pytorch_model.bin`."""
    tensors = load_file(folder / "model.safetensors")
    os.remove(folder / "model.safetensors")
    torch.save({**tensors, **changes}, folder / "pytorch_model.bin")
    return folder / "pytorch_model.bin"


def change_json(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def numpy(weight):
    return keras.ops.convert_to_numpy(weight)


class Evil:
    """What a pickle must never get to do."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


# === Damaged and hostile files ===


def test_truncated_safetensors_is_named(folder, refused):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    assert f"{path} is no whole safetensors file" in refused(folder)


@pytest.mark.parametrize("legacy", [False, True])
def test_truncated_pytorch_file_is_named(folder, refused, legacy):
    path = as_bin(folder)
    if legacy:
        tensors = torch.load(path, weights_only=True)
        torch.save(tensors, path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert f"{path} must be a whole PyTorch file" in refused(folder)


def test_pickle_with_code_is_refused_and_not_run(folder, refused, tmp_path):
    path = as_bin(folder, evil=Evil(str(tmp_path / "harm")))
    assert f"{path} must be a whole PyTorch file of nothing but tensors" in refused(folder)
    os.remove(path)
    (folder / "checkpoint.pt").write_bytes(pickle.dumps(Evil(str(tmp_path / "harm"))))
    os.remove(folder / "config.json")
    assert "checkpoint.pt must be a whole PyTorch file" in refused(folder)
    assert not (tmp_path / "harm").exists()


def test_pytorch_file_with_something_else_than_tensors_names_it(folder, refused):
    as_bin(folder, epoch=3)
    assert "must hold tensors by name. Received: no tensor for epoch" in refused(folder)


@pytest.mark.parametrize("end", [10**15, 7])
def test_safetensors_header_that_lies_is_refused(folder, refused, end):
    path = folder / "model.safetensors"
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    header["bert.embeddings.word_embeddings.weight"]["data_offsets"] = [0, end]
    header = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + content[8 + size :])
    assert f"{path} is no whole safetensors file" in refused(folder)


def test_safetensors_header_of_absurd_size_is_refused(folder, refused):
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", 2**62) + path.read_bytes()[8:])
    assert f"{path} is no whole safetensors file" in refused(folder)


def test_settings_that_are_no_json_are_named(folder, refused):
    (folder / "config.json").write_text("{")
    assert f"{folder}/config.json must be JSON" in refused(folder)
    (folder / "config.json").write_text("[" * 200_000)
    assert f"{folder}/config.json must be JSON" in refused(folder)
    (folder / "config.json").write_text("[1]")
    assert "must hold a JSON object. Received: list" in refused(folder)


# === What does not fit ===


def test_shape_against_the_settings_names_tensor_and_shapes(folder, refused):
    change_json(folder / "config.json", intermediate_size=43)
    error = refused(folder)
    assert "encoder.layer.0.intermediate.dense.weight must have the shape (43, 30)" in error
    assert "Received: (41, 30)" in error


def test_more_layers_than_the_file_has_names_the_first_missing(folder, refused):
    change_json(folder / "config.json", num_hidden_layers=10**9)
    assert "lacks the tensor encoder.layer.3.attention.self.query.weight" in refused(folder)


def test_fewer_layers_than_the_file_has_names_the_first_left(folder, refused):
    change_json(folder / "config.json", num_hidden_layers=2)
    assert "have 2 layers of known tensors. Received besides: encoder.layer.2." in refused(folder)


def test_tensor_under_two_names_is_refused(folder, refused):
    as_bin(folder, **{"encoder.layer.0.output.dense.weight": torch.full((30, 41), 7.0)})
    error = refused(folder)
    assert "must hold a tensor once" in error
    assert "bert.encoder.layer.0.output.dense.weight" in error


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.complex64, torch.float8_e4m3fn])
def test_tensor_that_is_no_plain_float_is_refused(folder, refused, dtype):
    name = "bert.encoder.layer.0.output.dense.weight"
    as_bin(folder, **{name: torch.ones(30, 41).to(dtype)})
    assert f"the tensor {name}" in refused(folder)


def test_parameters_load_as_tensors_do(folder, hf_folder):
    path = as_bin(folder)
    tensors = torch.load(path, weights_only=True)
    torch.save({n: torch.nn.Parameter(t) for n, t in tensors.items()}, path)
    one, other = (ks.SpanBertBackbone.from_preset(f) for f in [folder, hf_folder])
    for a, b in zip(one.weights, other.weights):
        np.testing.assert_array_equal(numpy(a), numpy(b), err_msg=a.path)


@pytest.mark.parametrize("name", ["bert.encoder.layer.1.output.dense.bias", "cls.predictions.bias"])
def test_missing_tensor_is_named(folder, refused, name):
    path = as_bin(folder)
    tensors = torch.load(path, weights_only=True)
    tensors = {n: t for n, t in tensors.items() if n != name}
    tensors = {n: t for n, t in tensors.items() if n != "cls.predictions.decoder.bias"}
    torch.save(tensors, path)
    assert f"lacks the tensor {name.removeprefix('bert.')}" in refused(folder)


@pytest.mark.parametrize(
    "name, value",
    [
        ("vocab_size", None),
        ("hidden_size", "30"),
        ("num_hidden_layers", 0),
        ("hidden_act", "mish"),
        ("model_type", "roberta"),
        ("position_embedding_type", "relative_key"),
        ("layer_norm_eps", "1e-12"),
        ("layer_norm_eps", math.nan),
        ("hidden_dropout_prob", None),
        ("attention_probs_dropout_prob", -1.0),
        ("type_vocab_size", 0),
    ],
)
def test_setting_out_of_the_rule_is_named(folder, refused, name, value):
    change_json(folder / "config.json", **{name: value})
    error = refused(folder)
    assert f"the setting `{name}` must be" in error and f"Received: {value!r}" in error


def test_vocabulary_of_another_size_names_both(folder, refused):
    (folder / "vocab.txt").write_text("".join(f"{t}\n" for t in VOCABULARY[:-2]))
    assert f"as many tokens as the embeddings, {V}. Received: {V - 2}" in refused(folder)


def test_vocabulary_without_mask_token_is_refused(folder, refused):
    tokens = ["[GONE]" if token == "[MASK]" else token for token in VOCABULARY]
    (folder / "vocab.txt").write_text("".join(f"{t}\n" for t in tokens))
    assert "[MASK]" in refused(folder)


def test_output_projection_of_its_own_is_refused(folder, refused):
    as_bin(folder, **{"cls.predictions.decoder.weight": torch.ones(V, 30)})
    assert "cls.predictions.decoder.weight must be the same as" in refused(folder)


# === Shards, archives, folders, handles ===


@pytest.mark.parametrize(
    "shard", ["gone.safetensors", "../source/model.safetensors", "/etc/passwd"]
)
def test_index_that_leads_elsewhere_is_refused(folder, refused, shard):
    weight_map = {"bert.embeddings.word_embeddings.weight": shard}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    os.rename(folder / "model.safetensors", folder / "away")
    error = refused(folder)
    assert "must name files beside it" in error or "names 'gone.safetensors'" in error


def archive(path, folder, member=None):
    with tarfile.open(path, "w:gz") as file:
        file.add(folder, "model")
        if member:
            file.addfile(member, io.BytesIO(b"x" * member.size))
    return path


def test_archive_gives_what_the_folder_does(hf_folder, tmp_path):
    path = archive(tmp_path / "spanbert_hf_base.tar.gz", hf_folder)
    packed, plain = (ks.SpanBertPretrainer.from_preset(p) for p in [path, hf_folder])
    assert packed.preprocessor.tokenizer.get_vocabulary() == VOCABULARY
    for a, b in zip(packed.weights, plain.weights):
        if not a.path.startswith("sbo_head"):  # Starts fresh.
            np.testing.assert_array_equal(numpy(a), numpy(b), err_msg=a.path)


@pytest.mark.parametrize("name", ["../config.json", "/tmp/config.json", "a/../../config.json"])
def test_archive_that_leads_outside_is_refused(hf_folder, tmp_path, refused, name):
    member = tarfile.TarInfo(name)
    member.size = 1
    path = archive(tmp_path / "a.tar.gz", hf_folder, member=member)
    assert f"Received: {name!r}" in refused(path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE])
def test_archive_with_links_or_devices_is_refused(hf_folder, tmp_path, refused, kind):
    member = tarfile.TarInfo("model/vocab2.txt")
    member.type, member.linkname = kind, "/etc/passwd"
    path = archive(tmp_path / "a.tar.gz", hf_folder, member=member)
    assert f"{path} must hold plain files" in refused(path)


def test_truncated_archive_is_named(hf_folder, tmp_path, refused):
    path = archive(tmp_path / "a.tar.gz", hf_folder)
    path.write_bytes(path.read_bytes()[:2000])
    assert f"{path} is no whole tar archive" in refused(path)


def test_folder_of_no_known_kind_lists_what_was_looked_for(tmp_path, refused):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "notes.md").write_text("x")
    error = refused(tmp_path / "source")
    for name in [
        "config.json",
        "model.safetensors",
        "pytorch_model.bin",
        "bert_model.ckpt",
        "*.pt",
    ]:
        assert name in error
    assert "Received: notes.md" in error


def test_source_that_is_not_there_is_named(tmp_path, refused):
    assert f"Received: {tmp_path}/gone" in refused(tmp_path / "gone")


def test_file_of_no_known_kind_says_what_to_pass(folder, refused):
    assert "pass the folder" in refused(folder / "model.safetensors")


def test_zip_that_is_no_checkpoint_is_refused(tmp_path, refused):
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as file:
        file.writestr("a/data.txt", "x")
    assert "a.pt must be a whole PyTorch file" in refused(tmp_path / "a.pt")


def test_handle_is_found_in_the_hubs_cache(hf_folder, tmp_path, monkeypatch):
    import huggingface_hub

    cache = tmp_path / "models--someone--bert"
    shutil.copytree(hf_folder, cache / "snapshots" / "0123456789abcdef")
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("0123456789abcdef")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    tokenizer = ks.SpanBertTokenizer.from_preset("hf://someone/bert")
    assert tokenizer.get_vocabulary() == VOCABULARY
    assert sources.open_source("hf://someone/bert").config["hidden_size"] == 30


@pytest.mark.parametrize("file_format", ["safetensors", "bin", "sharded", "sharded bin"])
def test_handle_fetches_one_set_of_weights(masked_lm, tmp_path, monkeypatch, file_format):
    import huggingface_hub

    hub = write(masked_lm, tmp_path / "hub", file_format.split()[0])
    if file_format == "sharded bin":
        for path in sorted(hub.glob("model-*.safetensors")):
            torch.save(load_file(path), hub / path.name.replace(".safetensors", ".bin"))
            path.unlink()
        index = hub / "model.safetensors.index.json"
        text = index.read_text().replace(".safetensors", ".bin")
        (hub / "pytorch_model.bin.index.json").write_text(text)
        index.unlink()
    # What else repositories hold.
    (hub / "onnx").mkdir()
    for name in ["tf_model.h5", "flax_model.msgpack", "onnx/model.safetensors", "rust_model.ot"]:
        (hub / name).write_bytes(b"x")
    cache = tmp_path / "cache"

    def snapshot_download(repo_id, allow_patterns):
        assert repo_id == "someone/bert"
        for path in hub.rglob("*"):
            name = str(path.relative_to(hub))
            if path.is_file() and any(fnmatch.fnmatch(name, p) for p in allow_patterns):
                (cache / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, cache / name)
        return str(cache)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    backbone = ks.checkpoints.from_huggingface("hf://someone/bert")
    expected = masked_lm.bert.embeddings.word_embeddings.weight.detach().numpy()
    np.testing.assert_array_equal(numpy(backbone.token_embedding.embeddings), expected)
    fetched = {str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file()}
    assert not fetched & {"tf_model.h5", "flax_model.msgpack", "onnx/model.safetensors"}


def test_handle_without_network_says_so(tmp_path, refused, monkeypatch):
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    (tmp_path / "cache").mkdir()
    assert "hf://someone/bert could not be downloaded" in refused("hf://someone/bert")


@pytest.mark.parametrize("handle", ["hf://someone", "hf://a/../b", "hf://a/b/c", "hf://"])
def test_handle_of_another_form_is_refused(refused, handle):
    assert f"must be hf://owner/name. Received: {handle}" in refused(handle)


# === The command ===


def test_command_converts_either_way_and_prints_a_table(hf_folder, tmp_path, capsys):
    preset, back = tmp_path / "preset", tmp_path / "back"
    assert command.main([str(hf_folder), str(preset)]) == 0
    out = capsys.readouterr().out
    lines = [re.split(r"\s{2,}", line) for line in out.splitlines()]
    assert ["loaded", "embeddings.word_embeddings.weight", f"({V}, 30)"] in lines
    assert ["started fresh", "sbo_head/dense_1/kernel", "(260, 30)"] in lines
    assert "58 loaded, 0 left unused, 10 started fresh (sbo_head)" in out
    assert "Cased: the vocabulary has upper-case letters, as in 'The'" in out
    assert out.endswith(f"Wrote {preset}\n")
    assert command.main([str(preset), str(back)]) == 0
    assert {path.name for path in back.iterdir()} == {
        "config.json",
        "model.safetensors",
        "span_boundary_head.safetensors",
        "tokenizer_config.json",
        "vocab.txt",
    }
    one, other = (ks.SpanBertPretrainer.from_preset(p) for p in [preset, back])
    for a, b in zip(one.weights, other.weights):
        np.testing.assert_array_equal(numpy(a), numpy(b), err_msg=a.path)


def test_command_leaves_a_destination_in_use_alone(hf_folder, tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("x")
    assert command.main([str(hf_folder), str(tmp_path)]) == 2
    assert f"must be new or empty. Received: {tmp_path}" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_failure_while_writing_leaves_nothing_behind(hf_folder, tmp_path, monkeypatch):
    def fail(self, folder):
        (tmp_path / "reached").touch()
        raise OSError("no space left")

    monkeypatch.setattr(ks.SpanBertPretrainer, "save_to_preset", fail)
    assert command.main([str(hf_folder), str(tmp_path / "destination")]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["reached"]
