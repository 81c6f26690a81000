import h5py
import keras
import numpy as np
import pytest

from keras_spanbert import SpanBertBackbone, SpanBertPretrainer

B, L, V, H, HEADS, FF = 2, 7, 19, 10, 5, 23


def inputs(length=L):
    rng = np.random.default_rng(0)
    ids = rng.integers(1, V, (B, length)).astype("int32")
    mask = np.ones((B, length), "int32")
    mask[1, -3:] = 0
    return {"token_ids": ids, "segment_ids": ids % 2, "padding_mask": mask}


def build(**kwargs):
    return SpanBertBackbone(V, 2, HEADS, H, FF, max_sequence_length=13, **kwargs)


def forward(backbone, x):
    return keras.ops.convert_to_numpy(backbone(x, training=False))


def test_output_is_the_sequence_alone():
    assert forward(build(), inputs()).shape == (B, L, H)


def test_padding_does_not_reach_other_tokens():
    backbone, x = build(), inputs()
    before = forward(backbone, x)
    x["token_ids"][1, -3:] = 1
    after = forward(backbone, x)
    np.testing.assert_allclose(before[1, :-3], after[1, :-3], atol=1e-6)
    assert np.abs(before[1, -3:] - after[1, -3:]).max() > 1e-3


def test_gelu_is_the_exact_one():
    layer = build().transformer_layers[0]
    x = np.array([[-1.0, 0.5, 2.0]], "float32")
    y = keras.ops.convert_to_numpy(layer.activation(keras.ops.convert_to_tensor(x)))
    # x * Phi(x), from a table of the normal distribution.
    np.testing.assert_allclose(y, [[-0.1586553, 0.3457312, 1.9544997]], atol=1e-6)
    assert layer.layer_norm_epsilon == 1e-12


def test_attention_dropout_is_its_own():
    layer = build(dropout=0.5, attention_dropout=0.0).transformer_layers[0]
    assert layer._self_attention_layer.dropout == 0.0
    assert layer._self_attention_dropout.rate == layer._feedforward_dropout.rate == 0.5
    assert build(dropout=0.5).transformer_layers[0]._self_attention_layer.dropout == 0.5


def test_config_and_preset_round_trip(tmp_path):
    backbone = build(dropout=0.3, attention_dropout=0.0, num_segments=3)
    copy = SpanBertBackbone.from_config(backbone.get_config())
    assert copy.get_config() == backbone.get_config()
    backbone.save_to_preset(str(tmp_path / "preset"))
    loaded = SpanBertBackbone.from_preset(str(tmp_path / "preset"))
    np.testing.assert_array_equal(forward(loaded, inputs()), forward(backbone, inputs()))


@pytest.mark.parametrize(("arguments", "stddev"), [({}, 0.02), ({"initializer_range": 0.07}, 0.07)])
def test_new_weights_have_the_initializers_scale(arguments, stddev):
    backbone = SpanBertBackbone(101, 2, 2, 32, 64, **arguments)
    drawn = [w for w in backbone.weights if w.path.endswith(("kernel", "embeddings"))]
    assert len(drawn) == 3 + 2 * 6
    for weight in drawn:
        if weight.shape[0] > 2:  # Two segments are too few to tell.
            values = keras.ops.convert_to_numpy(weight)
            # That of a normal distribution cut at two standard deviations.
            assert values.std() == pytest.approx(0.88 * stddev, rel=0.1)
    config = backbone.get_config()
    assert config["initializer_range"] == stddev
    del config["initializer_range"]  # A preset from before it was an argument.
    assert SpanBertBackbone.from_config(config).initializer_range == 0.02


def test_sizes_are_berts():
    assert SpanBertBackbone.SIZES["base"] == {
        "num_layers": 12,
        "num_heads": 12,
        "hidden_dim": 768,
        "intermediate_dim": 3072,
    }
    assert set(SpanBertBackbone.SIZES) == {"tiny", "mini", "small", "base", "large"}
    tiny = SpanBertBackbone(28996, **SpanBertBackbone.SIZES["tiny"])
    # Embeddings 28996 + 512 + 2 rows of 128 and a norm; per layer 12 * 128^2 + 13 * 128.
    assert tiny.count_params() == (28996 + 514) * 128 + 256 + 2 * (12 * 128**2 + 13 * 128)


def test_heads_must_divide_the_hidden_size():
    with pytest.raises(ValueError, match="num_heads=3"):
        SpanBertBackbone(V, 1, 3, 10, FF)


@pytest.mark.parametrize("attention_dropout", [0.0, 0.1])
def test_without_a_mask_it_is_as_without_padding(attention_dropout):
    backbone = build(attention_dropout=attention_dropout)
    x = {**inputs(), "padding_mask": np.ones((B, L), "int32")}
    expected = keras.ops.convert_to_numpy(backbone(x))
    del x["padding_mask"]
    np.testing.assert_allclose(keras.ops.convert_to_numpy(backbone(x)), expected, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_model_on_top_of_it_may_leave_the_mask_out(dtype):
    backbone = build(dtype=dtype)
    x = {name: inputs()[name] for name in ["token_ids", "segment_ids"]}
    outputs = backbone({name: backbone.input[name] for name in x})
    assert outputs.shape == (None, None, H)
    assert keras.backend.standardize_dtype(outputs.dtype) == backbone.compute_dtype
    model = keras.Model({name: backbone.input[name] for name in x}, outputs)
    found, expected = (keras.ops.cast(f(x), "float32") for f in [model, backbone])
    np.testing.assert_allclose(*map(keras.ops.convert_to_numpy, [found, expected]), atol=1e-6)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_rematerialisation_changes_nothing_but_memory(dropout, dtype):
    ids = np.random.default_rng(0).integers(1, 50, (4, 12)).astype("int32")
    mask = np.ones((4, 12), "int32")
    mask[1, 7:] = 0
    inputs = {"token_ids": ids, "segment_ids": ids * 0, "padding_mask": mask}

    def train(rematerialize):
        keras.utils.set_random_seed(0)
        backbone = SpanBertBackbone(
            50, 2, 2, 8, 16, dropout, rematerialize=rematerialize, dtype=dtype
        )
        model = keras.Model(backbone.input, keras.layers.Dense(1)(backbone.output))
        model.compile("sgd", "mse", jit_compile=keras.backend.backend() == "jax")
        losses = model.fit(inputs, mask[..., None] * 2.0, 4, 3, shuffle=False, verbose=0)
        return losses.history["loss"]

    kept, computed_again = train(False), train(True)
    assert len(set(kept)) == 3
    np.testing.assert_allclose(computed_again, kept, rtol=1e-6 if dtype == "float32" else 2e-2)


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="layers are scanned on JAX alone")
@pytest.mark.parametrize("rematerialize, dtype", [(False, "float32"), (True, "mixed_bfloat16")])
def test_scanned_layers_train_as_layers_one_by_one(dtype, rematerialize):
    ids = np.random.default_rng(0).integers(1, 50, (4, 12)).astype("int32")
    mask = np.ones((4, 12), "int32")
    mask[1, 7:] = 0
    inputs = {"token_ids": ids, "segment_ids": ids * 0, "padding_mask": mask}

    def train(scan_layers):
        keras.utils.set_random_seed(0)
        backbone = SpanBertBackbone(
            50, 3, 2, 8, 16, 0.3, rematerialize=rematerialize, dtype=dtype, scan_layers=scan_layers
        )
        model = keras.Model(backbone.input, keras.layers.Dense(1)(backbone(backbone.input)))
        model.compile("sgd", "mse")
        losses = model.fit(inputs, mask[..., None] * 2.0, 4, 3, shuffle=False, verbose=0)
        states = [keras.ops.convert_to_numpy(v) for v in backbone.non_trainable_variables]
        return losses.history["loss"], model.predict(inputs, verbose=0), states

    losses, outputs, seeds = train(True)
    expected_losses, expected, expected_seeds = train(False)
    tolerance = 1e-5 if dtype == "float32" else 2e-2
    assert len(set(losses)) == 3
    np.testing.assert_allclose(losses, expected_losses, rtol=tolerance)
    np.testing.assert_allclose(outputs, expected, rtol=tolerance, atol=tolerance)
    # Each layer's masks were drawn from its own seeds, which went on.
    for seed, expected_seed in zip(seeds, expected_seeds):
        np.testing.assert_array_equal(seed, expected_seed)


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="layers are scanned on JAX alone")
def test_layers_that_are_not_alike_are_not_scanned():
    backbone = build(scan_layers=True)
    expected = keras.ops.convert_to_numpy(backbone(inputs()))
    backbone.transformer_layers[0]._feedforward_output_dense.quantize("int8")
    found = keras.ops.convert_to_numpy(backbone(inputs()))
    assert 0.0 < np.abs(found - expected).max() < 0.1


def test_names_in_weight_files_stay(tmp_path):
    build().save_weights(tmp_path / "backbone.weights.h5")
    shapes_in_file = []
    with h5py.File(tmp_path / "backbone.weights.h5") as file:
        for name in ["__transformer_encoder", "__transformer_encoder_1"]:
            paths = []
            file[f"layers/{name}"].visit(paths.append)
            items = {path: file[f"layers/{name}/{path}"] for path in paths}
            shapes_in_file.append(
                {path: item.shape for path, item in items.items() if isinstance(item, h5py.Dataset)}
            )
    heads, head_dim = HEADS, H // HEADS
    expected = {
        "_self_attention_layer/query_dense": [(H, heads, head_dim), (heads, head_dim)],
        "_self_attention_layer/key_dense": [(H, heads, head_dim), (heads, head_dim)],
        "_self_attention_layer/value_dense": [(H, heads, head_dim), (heads, head_dim)],
        "_self_attention_layer/output_dense": [(heads, head_dim, H), (H,)],
        "_self_attention_layer_norm": [(H,), (H,)],
        "_feedforward_intermediate_dense": [(H, FF), (FF,)],
        "_feedforward_output_dense": [(FF, H), (H,)],
        "_feedforward_layer_norm": [(H,), (H,)],
    }
    expected = {
        f"{name}/vars/{i}": shape
        for name, shapes in expected.items()
        for i, shape in enumerate(shapes)
    }
    assert shapes_in_file == [expected, expected]


def test_keys_that_are_no_inputs_are_left_alone():
    backbone = SpanBertBackbone(20, 1, 2, 8, 8, max_sequence_length=8)
    x = {"token_ids": [[6, 7, 8]], "segment_ids": [[0, 1, 1]], "padding_mask": [[1, 1, 0]]}
    x = {name: np.array(rows, "int32") for name, rows in x.items()}
    others = {"a_first": np.ones((1, 3), "int32"), "z_last": np.ones((1, 3), "int32")}
    np.testing.assert_array_equal(
        backbone.predict({**others, **x}, verbose=0), backbone.predict(x, verbose=0)
    )


def test_model_has_its_weights_after_a_predict_that_failed():
    model = SpanBertPretrainer(SpanBertBackbone(20, 1, 2, 8, 8, max_sequence_length=8))
    before = model.get_weights()
    with pytest.raises(Exception):  # noqa: B017  (each backend has its own)
        model.predict({"token_ids": np.ones((2, 3), "float32")}, verbose=0)
    for a, b in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)
