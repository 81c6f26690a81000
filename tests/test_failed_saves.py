"""A save that fails, as on a full disk, leaves the old model as it was or nothing at all."""

import contextlib
import errno
import os
import pathlib
from unittest import mock

import h5py
import pytest
from comparisons import assert_close
from tiny_models import answerer, backbone, outputs
from tiny_tasks import with_large_weights

import keras_spanbert as ks
from keras_spanbert.formats import huggingface

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextlib.contextmanager
def full_disk(num_arrays):
    """After so many arrays, or at the vocabulary if it is `None`, the disk is full."""
    save_assets, write = ks.SpanBertTokenizer.save_assets, h5py.Group.__setitem__
    left = [num_arrays]

    def write_some(group, name, value):
        if left[0] == 0:
            raise FULL
        left[0] -= 1
        write(group, name, value)

    def write_half(tokenizer, path):
        save_assets(tokenizer, path)
        raise FULL

    with pytest.MonkeyPatch.context() as patch:
        if num_arrays is None:
            patch.setattr(ks.SpanBertTokenizer, "save_assets", write_half)
        else:
            patch.setattr(h5py.Group, "__setitem__", write_some)
        yield


def with_lora(model):
    model.backbone.enable_lora(2)
    return model.backbone


# What is saved, by which method, the ending of the path, and the number of arrays after which the
# disk is full.
SAVES = {
    "heads": (lambda x: x, "save_to_preset", "", 1),
    "encoder": (lambda x: x, "save_to_preset", "", 9),
    "vocabulary": (lambda x: x, "save_to_preset", "", None),
    "backbone": (lambda x: x.backbone, "save_to_preset", "", 5),
    "preprocessor": (lambda x: x.preprocessor, "save_to_preset", "", None),
    "tokenizer": (lambda x: x.preprocessor.tokenizer, "save_to_preset", "", None),
    "keras": (lambda x: x, "save", ".keras", 5),
    "folder": (lambda x: x, "save", "", 5),
    "weights": (lambda x: x, "save_weights", ".weights.h5", 5),
    "encoder's weights": (lambda x: x.backbone, "save_weights", ".weights.h5", 5),
    "shards": (lambda x: x, "save_weights", ".weights.json", 20),
    "lora": (with_lora, "save_lora_weights", ".lora.h5", 3),
}
OPTIONS = {"folder": {"zipped": False}, "shards": {"max_shard_size": 2e-6}}


def contents(folder):
    return {str(p): p.is_file() and p.read_bytes() for p in pathlib.Path(folder).rglob("*")}


@pytest.mark.parametrize("name", SAVES)
def test_failed_save_changes_nothing(name, tmp_path):
    choose, method, ending, num_arrays = SAVES[name]
    save, path = getattr(choose(answerer()), method), f"{tmp_path / 'in' / 'model'}{ending}"
    (tmp_path / "in").mkdir()
    for _ in range(2):  # Into a new folder, and over a model.
        before = contents(tmp_path)
        with full_disk(num_arrays), pytest.raises(OSError, match="No space left"):
            save(path, **OPTIONS.get(name, {}))
        assert contents(tmp_path) == before
        save(path, **OPTIONS.get(name, {}))
        assert len(contents(tmp_path)) > 1


def test_model_is_saved_into_its_folder(tmp_path):
    path = tmp_path / "model"
    answerer().save_to_preset(path)
    (path / "README.md").write_text("My model card")
    (path / "assets" / "mine").mkdir()
    (path / "assets" / "mine" / "picture.png").write_bytes(b"png")
    model = ks.SpanBertQuestionAnswerer.from_preset(str(path))
    for weight in model.weights:
        weight.assign(weight + 0.5)
    before = contents(tmp_path)
    model.save_to_preset(path)
    after = contents(tmp_path)
    assert after.keys() == before.keys()
    for name in ["README.md", "assets/mine/picture.png"]:
        assert after[str(path / name)] == before[str(path / name)]
    assert after[str(path / "task.weights.h5")] != before[str(path / "task.weights.h5")]
    again = ks.SpanBertQuestionAnswerer.from_preset(str(path))
    assert_close(outputs(model), outputs(again), rtol=0)


@pytest.mark.once
def test_parts_are_saved_into_one_folder(tmp_path):
    model = answerer()
    model.preprocessor.save_to_preset(tmp_path / "model")
    model.backbone.save_to_preset(tmp_path / "model")
    copy = ks.SpanBertQuestionAnswererPreprocessor.from_preset(tmp_path / "model")
    assert copy.get_config() == model.preprocessor.get_config()


@pytest.mark.once
def test_weights_in_one_file_and_in_shards_replace_each_other(tmp_path):
    one, other = backbone(), backbone()
    for first, second, size in [(one, other, 2e-6), (other, one, 10)]:
        path = tmp_path / f"{size}"
        first.save_to_preset(path, max_shard_size=10 if size < 1 else 2e-6)
        second.save_to_preset(path, max_shard_size=size)
        loaded = ks.SpanBertBackbone.from_preset(str(path))
        assert (outputs(loaded)[0] == outputs(second)[0]).all()
        assert (path / "model.weights.h5").exists() == (size > 1)
        assert bool([*path.glob("model_*.weights.h5")]) == (size < 1)


@pytest.mark.once
def test_user_is_asked_before_overwriting(tmp_path, monkeypatch):
    model = backbone()
    for save in [model.save_weights, model.save]:
        path = tmp_path / ("a.weights.h5" if save == model.save_weights else "a.keras")
        save(path)
        before = contents(tmp_path)
        monkeypatch.setattr("builtins.input", lambda *_: "n")
        save(path, overwrite=False)
        assert contents(tmp_path) == before
        monkeypatch.setattr("builtins.input", lambda *_: "y")
        for weight in model.weights:
            weight.assign(weight + 0.5)
        save(path, overwrite=False)
        assert contents(tmp_path).keys() == before.keys() and contents(tmp_path) != before


@pytest.mark.once
def test_errors_name_the_path_of_the_user(tmp_path):
    model = answerer()
    for save, name in [(model.save, "a.h6"), (model.save_weights, "a.h5")]:
        with pytest.raises(ValueError, match=f"Received: filepath={tmp_path}/{name}"):
            save(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="No such file or directory: '.*/missing'"):
        model.save_weights(tmp_path / "missing" / "a.weights.h5")
    (tmp_path / "model" / "task.json").mkdir(parents=True)  # A folder of the user.
    with pytest.raises(IsADirectoryError, match=f"{tmp_path}/model/task.json'"):
        model.save_to_preset(tmp_path / "model")
    assert [*(tmp_path / "model").iterdir()] == [tmp_path / "model" / "task.json"]


@pytest.mark.once("tensorflow")
def test_failed_export_changes_nothing(tmp_path, monkeypatch):
    import tensorflow as tf

    model = with_large_weights(answerer())

    def fail(write):
        def write_and_fail(*args, **kwargs):
            write(*args, **kwargs)
            raise FULL

        return write_and_fail

    def export(path):
        model.export(path, verbose=False)

    export(tmp_path / "old")
    before = contents(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(tf.saved_model, "save", fail(tf.saved_model.save))
        patch.setattr(huggingface, "write_tokenizer", fail(huggingface.write_tokenizer))
        for name, write in [
            ("old", export),
            ("new", export),
            ("strings", lambda path: ks.serving.export_saved_model(model, path)),
            ("huggingface", lambda path: ks.checkpoints.to_huggingface(model, path)),
        ]:
            with pytest.raises((OSError, ValueError), match="No space left"):
                write(tmp_path / name)
            assert contents(tmp_path) == before
        # TensorFlow's own error for a full disk.
        full = tf.errors.ResourceExhaustedError(None, None, "No space left on device")
        patch.setattr(tf.saved_model, "save", mock.Mock(side_effect=full))
        with pytest.raises(OSError, match="No space left"):
            ks.serving.export_saved_model(model, tmp_path / "strings")
        assert contents(tmp_path) == before
    export(tmp_path / "old")
    assert contents(tmp_path).keys() == before.keys()
