"""Invalid sources are refused with a one-line error, and leave nothing behind."""

import fnmatch
import io
import json
import os
import pickle
import re
import shutil
import struct
import tarfile
import tempfile
import zipfile

import pytest
import torch
from bert_checkpoints import VOCABULARY, V, assert_same, write
from google_checkpoints import write_google
from safetensors.torch import load_file

import keras_spanbert as ks
from keras_spanbert.checkpoints import __main__ as command
from keras_spanbert.models.source import open_source


@pytest.fixture
def folder(hf_folder, tmp_path):
    """A copy of a Hugging Face folder that tests can damage."""
    return shutil.copytree(hf_folder, tmp_path / "source")


@pytest.fixture
def conversion_error(tmp_path, capsys, monkeypatch):
    """Checks that the command refuses a source, and returns its line on stderr."""
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


def to_bin(folder, **changes):
    """Converts the weights of a folder to `pytorch_model.bin`."""
    tensors = load_file(folder / "model.safetensors")
    os.remove(folder / "model.safetensors")
    torch.save({**tensors, **changes}, folder / "pytorch_model.bin")
    return folder / "pytorch_model.bin"


class Evil:
    """Must never be called by unpickling."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def with_data_end(content, end):
    """Changes the place of a tensor in the header of a safetensors file."""
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    header["bert.embeddings.word_embeddings.weight"]["data_offsets"] = [0, end]
    header = json.dumps(header).encode()
    return struct.pack("<Q", len(header)) + header + content[8 + size :]


NOT_COMPLETE = "model.safetensors is not a complete safetensors file"


@pytest.mark.parametrize(
    "name, damage, message",
    [
        ("model.safetensors", lambda content: content[:-100], NOT_COMPLETE),
        ("model.safetensors", lambda content: with_data_end(content, 7), NOT_COMPLETE),
        # The size of the header.
        ("model.safetensors", lambda content: struct.pack("<Q", 2**62) + content[8:], NOT_COMPLETE),
        ("config.json", lambda _: b"{", "config.json must be JSON"),
        ("config.json", lambda _: b"[" * 200_000, "config.json must be JSON"),
        ("config.json", lambda _: b"[1]", "must have a JSON object. Received: list"),
        ("vocab.txt", lambda content: content + b"a\n", f"as many tokens as the embeddings, {V}. "),
        ("vocab.txt", lambda content: content.replace(b"[MASK]", b"[GONE]"), "[MASK]"),
    ],
)
def test_damaged_file_of_a_folder_is_named(folder, conversion_error, name, damage, message):
    (folder / name).write_bytes(damage((folder / name).read_bytes()))
    assert message in conversion_error(folder)


@pytest.mark.parametrize("legacy", [False, True])
def test_truncated_pytorch_file_is_named(folder, conversion_error, legacy):
    path = to_bin(folder)
    if legacy:
        tensors = torch.load(path, weights_only=True)
        torch.save(tensors, path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    error = conversion_error(folder)
    assert f"{path} must be a complete PyTorch file" in error
    assert f"a file of {path.stat().st_size:,} bytes whose end is missing" in error


@pytest.mark.parametrize(
    "file, message",
    [
        ("index", "bert_model.ckpt is not a complete TensorFlow checkpoint"),
        ("data-00000-of-00001", "cannot be read"),
    ],
)
def test_truncated_tensorflow_checkpoint_is_named(
    masked_lm, tmp_path, conversion_error, file, message
):
    folder = write_google(masked_lm, tmp_path / "google")
    path = folder / f"bert_model.ckpt.{file}"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert message in conversion_error(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Received: an empty file"),
        (b"hello world\n", "Received: another kind of file, which starts with b'hello wo'"),
        (pickle.dumps({"a": {1}}), "Received: UnpicklingError: Unsupported operand"),
    ],
)
@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_invalid_pytorch_file_error(tmp_path, conversion_error, content, message):
    (tmp_path / "a.pt").write_bytes(content)
    assert message in conversion_error(tmp_path / "a.pt")


def test_other_zip_is_refused(tmp_path, conversion_error):
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as file:
        file.writestr("a/data.txt", "x")
    assert "a.pt must be a complete PyTorch file" in conversion_error(tmp_path / "a.pt")


def test_pickle_with_code_is_refused_and_not_run(folder, conversion_error, tmp_path):
    path = to_bin(folder, evil=Evil(str(tmp_path / "harm")))
    assert f"{path} must be a complete PyTorch file with only tensors" in conversion_error(folder)
    os.remove(path)
    (folder / "checkpoint.pt").write_bytes(pickle.dumps(Evil(str(tmp_path / "harm"))))
    os.remove(folder / "config.json")
    assert "checkpoint.pt must be a complete PyTorch file" in conversion_error(folder)
    assert not (tmp_path / "harm").exists()


NAME = "bert.encoder.layer.0.output.dense.weight"


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("epoch", 3, "must be a dict of tensors. Received: no tensor for epoch"),
        (NAME[5:], torch.full((30, 41), 7.0), f"must have each tensor once. Received: {NAME}"),
        (NAME, torch.ones(30, 41).to(torch.int8), f"the tensor {NAME} must be float16"),
        (NAME, torch.ones(30, 41).to(torch.float8_e4m3fn), f"the tensor {NAME} cannot be read"),
        (NAME, None, f"lacks the tensor {NAME[5:]}"),
        ("cls.predictions.bias", None, "lacks the tensor cls.predictions.bias"),
        ("cls.predictions.decoder.weight", torch.ones(V, 30), "decoder.weight must be the same as"),
    ],
)
def test_tensor_that_does_not_fit_is_named(folder, conversion_error, name, value, message):
    path = to_bin(folder, **{name: value})
    tensors = torch.load(path, weights_only=True)
    if name == "cls.predictions.bias":
        tensors.pop("cls.predictions.decoder.bias", None)
    torch.save({n: t for n, t in tensors.items() if t is not None}, path)
    assert message in conversion_error(folder)


def test_parameters_load_like_tensors(folder, hf_folder):
    path = to_bin(folder)
    tensors = torch.load(path, weights_only=True)
    torch.save({n: torch.nn.Parameter(t) for n, t in tensors.items()}, path)
    assert_same(*(ks.SpanBertBackbone.from_preset(f) for f in [folder, hf_folder]))


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("intermediate_size", 43, "intermediate.dense.weight must have the shape (43, 30) "),
        ("num_hidden_layers", 10**9, "lacks the tensor encoder.layer.3.attention.self.query"),
        ("num_hidden_layers", 2, "Received an additional tensor: encoder.layer.2."),
        ("vocab_size", None, "`vocab_size` must be a positive integer. Received: None"),
        ("hidden_act", "mish", "`hidden_act` must be one of ['gelu', "),
        ("model_type", "roberta", "`model_type` must be one of [None, 'bert']. Received: 'robe"),
        ("layer_norm_eps", "1e-12", "`layer_norm_eps` must be in [0, 1). Received: '1e-12'"),
    ],
)
def test_invalid_setting_is_named(folder, conversion_error, name, value, message):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    assert message in conversion_error(folder)


@pytest.mark.parametrize(
    "shard", ["gone.safetensors", "../source/model.safetensors", "/etc/passwd"]
)
def test_index_with_outside_files_is_refused(folder, conversion_error, shard):
    weight_map = {"bert.embeddings.word_embeddings.weight": shard}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    os.rename(folder / "model.safetensors", folder / "away")
    error = conversion_error(folder)
    assert "must name files in its own folder" in error or "names 'gone.safetensors'" in error


def archive(path, folder, member=None):
    with tarfile.open(path, "w:gz") as file:
        file.add(folder, "model")
        if member:
            file.addfile(member, io.BytesIO(b"x" * member.size))
    return path


def test_archive_equals_the_folder(hf_folder, tmp_path):
    path = archive(tmp_path / "spanbert_hf_base.tar.gz", hf_folder)
    packed, plain = (ks.SpanBertPretrainer.from_preset(p) for p in [path, hf_folder])
    assert packed.preprocessor.tokenizer.get_vocabulary() == VOCABULARY
    assert_same(packed, plain, ignore="sbo_head")  # Initialized randomly.


@pytest.mark.parametrize(
    "name, kind",
    [(name, tarfile.REGTYPE) for name in ["../a.json", "/tmp/a.json", "a/../../a.json"]]
    + [("model/b.txt", kind) for kind in [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE]],
)
def test_hostile_or_truncated_archive_is_refused(hf_folder, tmp_path, conversion_error, name, kind):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    member.size = int(kind == tarfile.REGTYPE)
    path = archive(tmp_path / "a.tar.gz", hf_folder, member=member)
    error = conversion_error(path)
    assert f"{path} must have only plain files" in error and f"Received: {name!r}" in error
    path.write_bytes(path.read_bytes()[:2000])
    assert f"{path} is not a complete tar archive" in conversion_error(path)


def test_unknown_sources_are_named(folder, tmp_path, conversion_error):
    assert f"Received: {tmp_path}/gone" in conversion_error(tmp_path / "gone")
    assert "give the folder" in conversion_error(folder / "model.safetensors")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.md").write_text("x")
    error = conversion_error(tmp_path / "other")
    for name in ["config.json", "model.safetensors", "pytorch_model.bin", "bert_model", "*.pt"]:
        assert name in error
    assert "Received: notes.md" in error


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


@pytest.mark.parametrize("file_format", ["safetensors", "bin", "sharded"])
def test_handle_downloads_one_set_of_weights(masked_lm, tmp_path, monkeypatch, file_format):
    import huggingface_hub

    hub, cache = write(masked_lm, tmp_path / "hub", file_format), tmp_path / "cache"
    others = ["tf_model.h5", "flax_model.msgpack", "onnx/model.safetensors"]
    (hub / "onnx").mkdir()
    for name in others:
        (hub / name).write_bytes(b"x")

    def snapshot_download(repo_id, allow_patterns):
        assert repo_id == "someone/bert"
        for path in hub.rglob("*"):
            name = str(path.relative_to(hub))
            if path.is_file() and any(fnmatch.fnmatch(name, p) for p in allow_patterns):
                (cache / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, cache / name)
        return str(cache)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert_same(*(ks.checkpoints.from_huggingface(path) for path in ["hf://someone/bert", hub]))
    assert not any((cache / name).exists() for name in others)


def test_handle_without_network_is_an_error(tmp_path, conversion_error, monkeypatch):
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    (tmp_path / "cache").mkdir()
    assert "hf://someone/bert could not be downloaded" in conversion_error("hf://someone/bert")


@pytest.mark.parametrize("handle", ["hf://someone", "hf://a/../b"])
def test_invalid_handle_is_refused(conversion_error, handle):
    assert f"must be hf://owner/name. Received: {handle}" in conversion_error(handle)


def test_command_converts_in_both_directions_and_prints_a_table(hf_folder, tmp_path, capsys):
    preset, back = tmp_path / "preset", tmp_path / "back"
    assert command.main([str(hf_folder), str(preset)]) == 0
    out = capsys.readouterr().out
    lines = [re.split(r"\s{2,}", line) for line in out.splitlines()]
    assert ["loaded", "embeddings.word_embeddings.weight", f"({V}, 30)"] in lines
    assert ["initialized", "sbo_head/dense_1/kernel", "(260, 30)"] in lines
    assert "58 loaded, 0 left unused, 10 initialized (sbo_head)" in out
    assert "Cased: the vocabulary has upper-case letters, for example 'The'" in out
    assert out.endswith(f"Wrote {preset}\n")
    assert command.main([str(preset), str(back)]) == 0
    files = {"config.json", "model.safetensors", "span_boundary_head.safetensors"}
    files |= {"tokenizer_config.json", "vocab.txt"}
    assert {path.name for path in back.iterdir()} == files
    assert_same(*(ks.SpanBertPretrainer.from_preset(path) for path in [preset, back]))


def test_command_refuses_a_nonempty_destination(hf_folder, tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("x")
    assert command.main([str(hf_folder), str(tmp_path)]) == 2
    assert f"must be new or empty. Received: {tmp_path}" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_failed_writing_leaves_nothing_behind(hf_folder, tmp_path, monkeypatch):
    def fail(self, folder):
        (tmp_path / "reached").touch()
        raise OSError("no space left")

    monkeypatch.setattr(ks.SpanBertPretrainer, "save_to_preset", fail)
    assert command.main([str(hf_folder), str(tmp_path / "destination")]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["reached"]
