"""Saving, loading and cloning of all public layers and models, on any backend."""

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


def transformer_layer():
    inputs = keras.Input((None, 6))
    return keras.Model(inputs, TransformerLayer(intermediate_dim=7, num_heads=2)(inputs))


def pretrainer():
    model = tiny_models.pretrainer()
    model.compile(ks.AdamW(ks.LinearWarmupDecay(1e-3, warmup_steps=2, total_steps=5)))
    return model


def pairs():
    return tiny_pretrainer.build(
        objectives={"span_boundary": False, "next_sentence": True}, nsp_weight=0.7
    )


def answerer():
    return tiny_models.answerer(null_threshold=1.5)


def user_model():
    encoder = backbone()
    positions = {name: keras.Input((None,), dtype="int32", name=name) for name in POSITIONS}
    head = ks.SpanBoundaryHead(
        token_embedding=encoder.token_embedding, position_dim=3, name="sbo_head"
    )
    logits = head(encoder(encoder.input), *(positions[name] for name in POSITIONS))
    return keras.Model({**encoder.input, **positions}, logits)


POSITIONS = ["span_left", "span_right", "span_offsets"]
MODELS = {f.__name__: f for f in [backbone, transformer_layer, pretrainer, answerer, user_model]}


def outputs(model):
    is_layer = not isinstance(model.input, dict)
    x = np.random.default_rng(0).normal(size=(2, L, 6)).astype("float32") if is_layer else None
    return tiny_models.outputs(model, x)


@pytest.mark.filterwarnings("error::UserWarning:keras")
@pytest.mark.parametrize("name", MODELS)
def test_files_load(name, tmp_path):
    built = MODELS[name]()
    if built.compiled:
        built.optimizer.build(built.trainable_variables)
        built.optimizer.iterations.assign(3)
    built.save(tmp_path / "model.keras")
    model = keras.models.load_model(tmp_path / "model.keras")
    assert_close(outputs(model), outputs(built), 1e-5)
    if built.compiled:
        assert model.optimizer.get_config() == built.optimizer.get_config()
        assert_close(model.optimizer.variables, built.optimizer.variables)
    if name == "user_model":
        (encoder,) = (x for x in model.layers if isinstance(x, ks.SpanBertBackbone))
        assert model.get_layer("sbo_head").token_embedding is encoder.token_embedding
    if name == "answerer":
        assert list(model.preprocessor.tokenizer("a bc")) == [5, 6, 7]


@pytest.mark.parametrize("build", [pretrainer, pairs])
def test_files_keep_the_objectives_of_pretraining(build, tmp_path):
    model = build()
    model.optimizer.build(model.trainable_variables)
    model.save(tmp_path / "model.keras")
    model.save_to_preset(tmp_path / "preset")
    with h5py.File(tmp_path / "preset" / "task.weights.h5") as file:
        assert "optimizer" not in file
    expected = model.preprocessor.get_config()
    for loaded in [
        keras.models.load_model(tmp_path / "model.keras"),
        ks.SpanBertPretrainer.from_preset(tmp_path / "preset"),
    ]:
        assert (loaded.objectives, loaded.nsp_weight) == (model.objectives, model.nsp_weight)
        assert_close(outputs(loaded), outputs(model))
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
    weights = model.get_weights()
    weights[3][0] = np.nan
    model.set_weights(weights)
    model.save_to_preset(tmp_path / "preset")
    with pytest.raises(ValueError, match="preset: weights must be finite.*Received: NaN or infin"):
        ks.SpanBertBackbone.from_preset(tmp_path / "preset")


def test_backbone_saved_over_a_task_removes_its_head(tmp_path):
    task = tiny_models.pretrainer()
    task.save_to_preset(str(tmp_path))
    (tmp_path / "README.md").write_text("mine")
    task.backbone.save_to_preset(str(tmp_path))
    assert not (tmp_path / "task.json").exists() and (tmp_path / "README.md").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("task")]
