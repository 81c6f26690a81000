"""LoRA weights are all that changes in the encoder, and are saved, loaded and merged exactly."""

import copy

import h5py
import keras
import numpy as np
import pytest
import tiny_models
from comparisons import assert_close
from tiny_tasks import TASKS

import keras_spanbert as ks
from keras_spanbert.keras_private import lora_variables
from keras_spanbert.models.lora import lora_layers

TARGETS = {
    "default": None,
    "dense": ["key", "attention_output", "feedforward_output_dense"],
    "embeddings": ["token_embedding", "value"],
}


def values(model):
    return {weight.path: keras.ops.convert_to_numpy(weight) for weight in model.weights}


def with_lora(model, targets=None):
    """Adds LoRA weights with values that change the outputs clearly."""
    backbone, generator = getattr(model, "backbone", model), np.random.default_rng(0)
    backbone.enable_lora(2, targets)
    for layer in lora_layers(backbone):
        for variable in lora_variables(layer)[1:]:
            variable.assign(generator.normal(size=variable.shape))
    return model


def copied(model):
    """Returns a model with the same weights."""
    other = type(model).from_config(model.get_config())
    other.set_weights(model.get_weights())
    return other


@pytest.mark.parametrize("name", ["texts", "questions"])
def test_trained_lora_weights_and_head_give_equal_outputs(untraced, tmp_path, name):
    task = TASKS[name]
    model = task.build()
    base = copied(model)
    model.backbone.enable_lora(3)
    model.compile(ks.AdamW(0.1))
    before = values(model)
    model.fit(*task.forms["columns"], verbose=0)
    changed = {path for path, value in values(model).items() if np.any(value != before[path])}
    assert changed == {weight.path for weight in model.trainable_weights}
    of_encoder = {path.split("/")[-1] for path in changed & values(model.backbone).keys()}
    assert of_encoder == {"lora_kernel_a", "lora_kernel_b"}

    model.backbone.save_lora_weights(tmp_path / "encoder.lora.h5")
    model.save_task_weights(tmp_path / "head.weights.h5")
    x = model.preprocessor(task.forms["columns"][0])
    x = x[0] if isinstance(x, tuple) else x
    expected = tiny_models.outputs(model, x)
    base.predict(x, verbose=0)  # A function that is traced now must not be used later.
    base.backbone.load_lora_weights(tmp_path / "encoder.lora.h5")
    base.load_task_weights(tmp_path / "head.weights.h5")
    assert_close(base.predict(x, verbose=0), expected, 1e-5)


# A copy has no LoRA weights, and so other optimizer variables.
@pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer")
@pytest.mark.parametrize("targets", TARGETS)
def test_files_and_merged_models_have_equal_outputs(tmp_path, targets):
    model = tiny_models.pretrainer()
    base = copied(model)
    plain = tiny_models.outputs(model)
    expected = tiny_models.outputs(with_lora(model, TARGETS[targets]))
    assert max(np.abs(a - b).max() for a, b in zip(plain, expected)) > 0.002

    model.backbone.save_lora_weights(tmp_path / "a.lora.h5")
    for _ in range(2):  # With and without LoRA layers.
        base.backbone.load_lora_weights(tmp_path / "a.lora.h5")
        assert_close(tiny_models.outputs(base), expected, 2e-5)
    ks.checkpoints.to_huggingface(model, tmp_path / "huggingface")
    model.save_to_preset(tmp_path / "preset")
    for folder in ["huggingface", "preset"]:
        loaded = ks.SpanBertPretrainer.from_preset(tmp_path / folder)
        assert len(loaded.weights) == len(tiny_models.pretrainer().weights)
        assert_close(tiny_models.outputs(loaded), expected, 2e-5)
    assert_close(tiny_models.outputs(copy.deepcopy(model)), expected, 2e-5)
    with h5py.File(tmp_path / "a.lora.h5") as file:  # As keras-hub writes it.
        assert int(file["lora/vars/rank"][()]) == 2


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_merged_model_is_a_plain_one(untraced, without_collections, tmp_path):
    model = with_lora(TASKS["texts"].build())
    paths = [weight.path for weight in TASKS["texts"].build().weights]
    x = model.preprocessor(TASKS["texts"].forms["columns"][0])
    expected = model.predict(x, verbose=0)
    with pytest.raises(ValueError, match=r"call `merge_lora\(\)` first"):
        model.quantize("int8")
    assert model.merge_lora() is model and model.merge_lora() is model
    assert [weight.path for weight in model.weights] == paths
    assert [weight.path for weight in model.trainable_weights] == paths
    if keras.backend.backend() == "torch":
        assert len(list(model.parameters())) == len(model.state_dict()) == len(paths)
    np.testing.assert_allclose(model.predict(x, verbose=0), expected, atol=2e-5)
    model.compile()
    model.fit(*TASKS["texts"].forms["columns"], verbose=0)
    model.backbone.enable_lora(2)  # A new start.
    model.merge_lora().quantize("int8")
    with pytest.raises(ValueError, match="LoRA needs a float model.*quantized"):
        model.backbone.enable_lora(2)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_rematerialized_layers_train_lora_weights(untraced, dtype):
    config = {**tiny_models.backbone(dtype).get_config(), "dropout": 0.0}
    x, losses = tiny_models.inputs(tiny_models.backbone()), []
    for rematerialize in [False, True]:
        keras.utils.set_random_seed(1)
        backbone = ks.SpanBertBackbone.from_config({**config, "rematerialize": rematerialize})
        model = ks.SpanBertTextClassifier(backbone, 2, dropout=0.0)
        backbone.enable_lora(2)
        model.compile(ks.AdamW(0.05))
        history = model.fit(x, np.array([0, 1]), epochs=4, verbose=0).history
        losses.append(history["loss"])
    assert losses[0][-1] < losses[0][0]
    np.testing.assert_allclose(*losses, rtol=1e-4 if dtype == "float32" else 0.05)


@pytest.mark.once
def test_mistakes_are_refused(tmp_path):
    backbone, path = tiny_models.backbone(), tmp_path / "a.lora.h5"
    for arguments, message in [
        ((0,), "`rank` must be at least 1. Received: rank=0"),
        ((2.0,), "`rank` must be an integer. Received: rank=2.0"),
        ((2, ["nothing"]), r"must be among .*key, query, .*Received: .*=\['nothing'\]"),
        ((2, []), r"`target_layer_names` must be among .*Received: .*=\[\]"),
    ]:
        with pytest.raises(ValueError, match=message):
            backbone.enable_lora(*arguments)
    with pytest.raises(ValueError, match="`enable_lora` must be called first"):
        backbone.save_lora_weights(path)
    backbone.enable_lora(2)
    with pytest.raises(ValueError, match="LoRA can be enabled once: call `merge_lora"):
        backbone.enable_lora(2)
    with pytest.raises(ValueError, match="must end in .lora.h5. Received: a.h5"):
        backbone.save_lora_weights("a.h5")
    backbone.save_lora_weights(path)
    others = [ks.SpanBertBackbone(13, 1, 2, 6, 7), ks.SpanBertBackbone(13, 2, 2, 8, 7)]
    others += [tiny_models.backbone(), tiny_models.backbone()]
    others[2].enable_lora(3)
    others[3].enable_lora(2, ["key"])
    for other in others:
        before = values(other)
        with pytest.raises(ValueError, match="of rank 2 for 4 layers"):
            other.load_lora_weights(path)
        assert values(other).keys() == before.keys()
    backbone.save_weights(tmp_path / "a.weights.h5")
    with pytest.raises(ValueError, match="a.weights.h5 must have LoRA weights"):
        backbone.load_lora_weights(tmp_path / "a.weights.h5")
