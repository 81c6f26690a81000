"""Saving, loading and cloning of layers and models, on any backend."""

import os

import h5py
import keras
import numpy as np
import pytest
import tiny_models
import tiny_pretrainer
from comparisons import assert_close
from tiny_models import L, V, backbone

import keras_spanbert as ks
from keras_spanbert.layers.transformer_layer import TransformerLayer


def outputs(model):
    is_layer = not isinstance(model.input, dict)
    x = np.random.default_rng(0).normal(size=(2, L, 6)).astype("float32") if is_layer else None
    return tiny_models.outputs(model, x)


@pytest.mark.filterwarnings("error::UserWarning:keras")
def test_layers_in_the_models_of_users_are_loaded(tmp_path):
    encoder, inputs = backbone(), keras.Input((None, 6))
    positions = {
        name: keras.Input((None,), dtype="int32", name=name)
        for name in ["span_left", "span_right", "span_offsets"]
    }
    head = ks.SpanBoundaryHead(
        token_embedding=encoder.token_embedding, position_dim=3, name="sbo_head"
    )
    logits = head(encoder(encoder.input), *positions.values())
    layer = TransformerLayer(intermediate_dim=7, num_heads=2)
    for model in [
        keras.Model({**encoder.input, **positions}, logits),
        keras.Model(inputs, layer(inputs)),
    ]:
        model.save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras")
        assert_close(outputs(loaded), outputs(model), 1e-5)
        for found in [x for x in loaded.layers if isinstance(x, ks.SpanBertBackbone)]:
            assert loaded.get_layer("sbo_head").token_embedding is found.token_embedding


def pretrainer():
    model = tiny_models.pretrainer()
    model.compile(ks.AdamW(ks.LinearWarmupDecay(1e-3, warmup_steps=2, total_steps=5)))
    return model


def pairs():
    return tiny_pretrainer.build(
        objectives={"span_boundary": False, "next_sentence": True}, nsp_weight=0.7
    )


@pytest.mark.parametrize("build", [pretrainer, pairs])
def test_files_keep_the_objectives_and_the_optimizer_of_pretraining(build, tmp_path):
    model = build()
    model.optimizer.build(model.trainable_variables)
    model.optimizer.iterations.assign(3)
    model.save(tmp_path / "model.keras")
    model.save_to_preset(tmp_path / "preset")
    with h5py.File(tmp_path / "preset" / "task.weights.h5") as file:
        assert "optimizer" not in file
    with_optimizer = keras.models.load_model(tmp_path / "model.keras")
    assert with_optimizer.optimizer.get_config() == model.optimizer.get_config()
    assert_close(with_optimizer.optimizer.variables, model.optimizer.variables)
    expected = model.preprocessor.get_config()
    for loaded in [with_optimizer, ks.SpanBertPretrainer.from_preset(tmp_path / "preset")]:
        assert (loaded.objectives, loaded.nsp_weight) == (model.objectives, model.nsp_weight)
        assert_close(outputs(loaded), outputs(model), 1e-5)
        config = loaded.preprocessor.get_config()
        assert config == {**expected, "tokenizer": config["tokenizer"]}
        loaded.check_preprocessor()
        for head in {"mlm_head", "sbo_head"} & set(loaded.head_layers()):
            table = getattr(loaded, head).token_embedding
            assert table is loaded.backbone.token_embedding


def test_span_masking_in_a_model_needs_tensorflow(tmp_path):
    token_ids = keras.Input((L,), dtype="int32")
    masking = ks.SpanMasking(V, 4, max_predictions=3, seed=1)
    if keras.backend.backend() != "tensorflow":
        with pytest.raises(ValueError, match="in `tf.data`.*Only with TensorFlow"):
            masking(token_ids)
        return
    model = keras.Model(token_ids, masking(token_ids))
    model.save(tmp_path / "masking.keras")
    copies = [keras.models.clone_model(model), keras.models.load_model(tmp_path / "masking.keras")]
    x = np.full((2, L), 7)
    expected = model.predict(x, verbose=0)
    for copy in copies:
        assert_close(copy.predict(x, verbose=0), expected)


@pytest.mark.once
def test_links_are_written_through_and_tilde_is_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    model = backbone()
    (tmp_path / "store").mkdir()
    for name, save in [("a.keras", model.save), ("a.weights.h5", model.save_weights)]:
        for folder, path in [("store", tmp_path / name), (".", f"~/home.{name}")]:
            (tmp_path / name).unlink(missing_ok=True)
            (tmp_path / name).symlink_to(f"store/{name}")  # To a new file, then to an old one.
            save(path)
            save(path)
            assert (tmp_path / folder / os.path.basename(path)).stat().st_size > 1000
        assert (tmp_path / name).is_symlink()
    (tmp_path / "latest").symlink_to("store", target_is_directory=True)
    model.save_to_preset(tmp_path / "latest")
    model.save_to_preset("~/preset")
    assert (tmp_path / "latest").is_symlink() and (tmp_path / "store" / "config.json").exists()
    assert ks.SpanBertBackbone.from_preset("~/preset").count_params() == model.count_params()


@pytest.mark.once
def test_presets_with_nan_are_refused(tmp_path):
    model = backbone()
    model.transformer_layers[0].weights[0].assign(np.nan * model.transformer_layers[0].weights[0])
    model.save_to_preset(tmp_path)
    with pytest.raises(ValueError, match=": weights must be finite.*Received: NaN or infin"):
        ks.SpanBertBackbone.from_preset(tmp_path)


def test_backbone_saved_over_a_task_removes_its_head(tmp_path):
    task = tiny_models.pretrainer()
    task.save_to_preset(tmp_path)
    (tmp_path / "README.md").write_text("mine")
    task.backbone.save_to_preset(tmp_path)
    assert not list(tmp_path.glob("task*")) and (tmp_path / "README.md").exists()
