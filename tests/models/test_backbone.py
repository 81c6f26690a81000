import h5py
import keras
import numpy as np
import pytest
from comparisons import assert_close

from keras_spanbert import SpanBertBackbone, SpanBertPretrainer
from keras_spanbert.layers.sublayers import kernel_initializer, skip_initialization
from keras_spanbert.models.backbone import pooler
from keras_spanbert.tasks.coreference.layers import WeightedLayer

B, L, V, H, HEADS, FF = 2, 7, 19, 10, 5, 23


def inputs():
    ids = np.random.default_rng(0).integers(1, V, (B, L)).astype("int32")
    mask = np.ones((B, L), "int32")
    mask[1, -3:] = 0
    return {"token_ids": ids, "segment_ids": ids % 2, "padding_mask": mask}


def build(**kwargs):
    return SpanBertBackbone(V, 2, HEADS, H, FF, max_sequence_length=13, **kwargs)


def test_rows_that_are_too_long_are_refused():
    x = {name: np.ones((1, 14), "int32") for name in inputs()}
    with pytest.raises(ValueError, match="at most 13 tokens.*Received: 14 tokens"):
        build()(x)


@pytest.mark.torch_first
def test_layers_have_the_given_arguments():
    layer = build(dropout=0.5, attention_dropout=0.0, rematerialize=True).transformer_layers[0]
    assert layer._self_attention_layer.dropout == 0.0 and layer.rematerialize
    assert layer._self_attention_dropout.rate == layer._feedforward_dropout.rate == 0.5
    layer = build(dropout=0.5).transformer_layers[0]
    assert layer.layer_norm_epsilon == 1e-12
    assert layer._self_attention_layer.dropout == 0.5 and not layer.rematerialize


@pytest.mark.torch_first
def test_new_weights_have_the_scale_of_the_initializer():
    stddev = 0.07
    backbone = SpanBertBackbone(101, 2, 2, 32, 64, initializer_range=stddev)
    drawn = [w for w in backbone.weights if w.path.endswith(("kernel", "embeddings"))]
    assert len(drawn) == 3 + 2 * 6
    for weight in drawn:
        if weight.shape[0] > 2:  # Two segments are too few for the statistics.
            values = keras.ops.convert_to_numpy(weight)
            # The scale of a normal distribution truncated at two standard deviations.
            assert values.std() == pytest.approx(0.88 * stddev, rel=0.1)
    config = backbone.get_config()
    assert config["initializer_range"] == stddev
    del config["initializer_range"]  # Older presets do not have this argument.
    assert SpanBertBackbone.from_config(config).initializer_range == 0.02


@pytest.mark.once
def test_sizes_equal_bert():
    assert list(SpanBertBackbone.SIZES["base"].values()) == [12, 12, 768, 3072]
    assert set(SpanBertBackbone.SIZES) == {"tiny", "mini", "small", "base", "large"}
    tiny = SpanBertBackbone(28996, **SpanBertBackbone.SIZES["tiny"])
    # Embeddings: 28996 + 512 + 2 rows of 128 and a norm. Per layer: 12 * 128^2 + 13 * 128.
    assert tiny.count_params() == (28996 + 514) * 128 + 256 + 2 * (12 * 128**2 + 13 * 128)


@pytest.mark.parametrize("attention_dropout", [0.0, 0.1])
def test_missing_mask_means_no_padding(attention_dropout):
    backbone = build(attention_dropout=attention_dropout)
    x = {name: inputs()[name] for name in ["token_ids", "segment_ids"]}
    masked = {**x, "padding_mask": np.ones((B, L), "int32")}
    assert_close(backbone(x), backbone(masked), 1e-5)


def test_outer_model_can_omit_the_mask():
    backbone = build(dtype="mixed_bfloat16")
    x = {name: inputs()[name] for name in ["token_ids", "segment_ids"]}
    outputs = backbone({name: backbone.input[name] for name in x})
    assert outputs.shape == (None, None, H)
    assert keras.backend.standardize_dtype(outputs.dtype) == backbone.compute_dtype
    model = keras.Model({name: backbone.input[name] for name in x}, outputs)
    assert_close(*(keras.ops.cast(f(x), "float32") for f in [model, backbone]), 1e-6)


@pytest.mark.once
def test_names_in_weight_files_are_stable(tmp_path):
    build().save_weights(tmp_path / "backbone.weights.h5")
    shapes = {}
    with h5py.File(tmp_path / "backbone.weights.h5") as file:
        file["layers"].visititems(
            lambda path, item: shapes.update({path: getattr(item, "shape", None)})
        )
    projection = [(H, HEADS, H // HEADS), (HEADS, H // HEADS)]
    expected = {
        "_self_attention_layer/query_dense": projection,
        "_self_attention_layer/key_dense": projection,
        "_self_attention_layer/value_dense": projection,
        "_self_attention_layer/output_dense": [(HEADS, H // HEADS, H), (H,)],
        "_self_attention_layer_norm": [(H,), (H,)],
        "_feedforward_intermediate_dense": [(H, FF), (FF,)],
        "_feedforward_output_dense": [(FF, H), (H,)],
        "_feedforward_layer_norm": [(H,), (H,)],
    }
    assert {path: shape for path, shape in shapes.items() if "encoder" in path and shape} == {
        f"__transformer_encoder{layer}/{name}/vars/{i}": shape
        for layer in ["", "_1"]
        for name, of_layer in expected.items()
        for i, shape in enumerate(of_layer)
    }


@pytest.mark.torch_first
def test_other_keys_are_ignored():
    backbone, x = build(), inputs()
    others = {"a_first": np.ones((B, L), "int32"), "z_last": np.ones((B, L), "int32")}
    expected = backbone.predict(x, verbose=0)
    np.testing.assert_array_equal(backbone.predict({**others, **x}, verbose=0), expected)
    others["texts"] = ["not", "tensors"]
    assert_close(backbone({**others, **x}, training=False), expected, 1e-6)


def test_weights_are_kept_after_a_failed_predict():
    model = SpanBertPretrainer(build())
    before = model.get_weights()
    with pytest.raises(Exception):  # noqa: B017  (each backend has its own)
        model.predict({"token_ids": np.ones((2, 3), "float32")}, verbose=0)
    assert_close(model.get_weights(), before, rtol=0)


def test_initialization_is_skipped_until_an_error():
    with pytest.raises(KeyError), skip_initialization():
        assert not keras.ops.any(kernel_initializer()((3, 5)))
        raise KeyError
    assert keras.ops.any(kernel_initializer()((3, 5)))


def test_kernels_of_heads_are_not_truncated_except_in_coreference():
    """A normal distribution has its standard deviation, and numbers far beyond it."""
    keras.utils.set_random_seed(0)  # On PyTorch, Keras leaves 1 number in 240,000 as it is.
    for head, is_truncated in [
        (pooler(build(initializer_range=0.05)), False),
        (WeightedLayer({"dropout_rate": 0.0}, 0.05).dense("scores", 3), True),
    ]:
        draws = keras.ops.convert_to_numpy(head.kernel_initializer((300, 300)))
        assert np.std(draws) == pytest.approx(0.044 if is_truncated else 0.05, rel=0.02)
        assert (np.abs(draws).max() < 0.15) == is_truncated


def test_parts_of_a_loaded_backbone_can_be_saved(tmp_path):
    build().save_to_preset(tmp_path / "preset")
    backbone = SpanBertBackbone.from_preset(tmp_path / "preset")
    part = keras.Model(backbone.input, backbone.transformer_layers[0].output)
    part.save(tmp_path / "part.keras")
    loaded = keras.models.load_model(tmp_path / "part.keras")
    assert_close(loaded(inputs()), part(inputs()), 1e-6)
