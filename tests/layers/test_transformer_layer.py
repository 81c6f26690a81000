import keras
import numpy as np
import pytest
from keras import ops

from keras_spanbert.layers.transformer_layer import TransformerLayer

B, L, N, D, FF = 2, 7, 3, 5, 13
H = N * D


def build(**kwargs):
    """A layer with weights that are not zero, and inputs for it."""
    layer = TransformerLayer(FF, N, **kwargs)
    rng = np.random.default_rng(0)
    layer.build((B, L, H))
    layer.set_weights([rng.normal(size=w.shape) * 0.3 for w in layer.get_weights()])
    return layer, rng.normal(size=(B, L, H)).astype("float32")


def padding():
    mask = np.ones((B, L), "int32")
    mask[1, 4:] = 0
    return mask


def call(layer, x, **kwargs):
    return ops.convert_to_numpy(ops.cast(layer(x, **kwargs), "float32"))


def weights_of(layer):
    return {w.path.split("/", 1)[1]: ops.convert_to_numpy(w) for w in layer.weights}


def norm(x, name, weights, epsilon=1e-12):
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon)
    return x * weights[f"{name}/gamma"] + weights[f"{name}/beta"]


def dense(x, name, weights):
    return x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]


@pytest.mark.parametrize("mask", [padding(), None])
def test_attention_and_network_are_each_added_and_normalised(mask):
    layer, x = build(activation="relu", layer_norm_epsilon=0.1)
    weights = weights_of(layer)
    attended = call(layer._self_attention_layer, x, padding_mask=mask)
    h = norm(x + attended, "self_attention_layer_norm", weights, 0.1)
    inner = np.maximum(dense(h, "feedforward_intermediate_dense", weights), 0)
    y = norm(
        h + dense(inner, "feedforward_output_dense", weights),
        "feedforward_layer_norm",
        weights,
        0.1,
    )
    np.testing.assert_allclose(call(layer, x, padding_mask=mask), y, atol=1e-5)


def test_dropout_is_just_before_both_additions():
    layer, x = build(dropout=1.0)
    weights = weights_of(layer)
    # With all of it dropped only the residual connections are left.
    y = norm(norm(x, "self_attention_layer_norm", weights), "feedforward_layer_norm", weights)
    np.testing.assert_allclose(call(layer, x, training=True), y, atol=1e-5)
    assert np.abs(call(layer, x, training=False) - y).max() > 0.1


def test_attention_dropout_is_its_own():
    layer, x = build(dropout=0.0, attention_dropout=1.0)
    found = call(layer, x, training=True)
    # With all attention weights dropped the values do not matter.
    attention = layer._self_attention_layer
    attention.value_dense.set_weights([w * 0 for w in attention.value_dense.get_weights()])
    np.testing.assert_allclose(found, call(layer, x, training=False), atol=1e-5)


def test_weights_are_in_the_order_and_shapes_of_checkpoints():
    layer, _ = build()
    assert [(w.path.split("/", 1)[1], tuple(w.shape)) for w in layer.weights] == [
        ("self_attention_layer/query/kernel", (H, N, D)),
        ("self_attention_layer/query/bias", (N, D)),
        ("self_attention_layer/key/kernel", (H, N, D)),
        ("self_attention_layer/key/bias", (N, D)),
        ("self_attention_layer/value/kernel", (H, N, D)),
        ("self_attention_layer/value/bias", (N, D)),
        ("self_attention_layer/attention_output/kernel", (N, D, H)),
        ("self_attention_layer/attention_output/bias", (H,)),
        ("self_attention_layer_norm/gamma", (H,)),
        ("self_attention_layer_norm/beta", (H,)),
        ("feedforward_layer_norm/gamma", (H,)),
        ("feedforward_layer_norm/beta", (H,)),
        ("feedforward_intermediate_dense/kernel", (H, FF)),
        ("feedforward_intermediate_dense/bias", (FF,)),
        ("feedforward_output_dense/kernel", (FF, H)),
        ("feedforward_output_dense/bias", (H,)),
    ]


def test_kernels_start_from_draws_of_their_own_and_biases_from_zero():
    layer = TransformerLayer(H, N, kernel_initializer=keras.initializers.RandomNormal(seed=None))
    layer.build((B, L, H))
    weights = weights_of(layer)
    kernels = [w.reshape(H, H) for name, w in weights.items() if name.endswith("kernel")]
    assert len(kernels) == 6
    for i, kernel in enumerate(kernels):
        assert all(np.abs(kernel - other).max() > 1e-3 for other in kernels[:i])
    assert not any(w.any() for name, w in weights.items() if name.endswith("bias"))


@pytest.mark.parametrize(
    ("dropout", "dtype"), [(0.0, "float32"), (0.3, "float32"), (0.3, "mixed_bfloat16")]
)
def test_rematerialisation_trains_to_the_same_weights(dropout, dtype):
    layer, x = build(dropout=dropout, attention_dropout=dropout, dtype=dtype)

    def train(rematerialize):
        keras.utils.set_random_seed(0)
        copy = TransformerLayer.from_config({**layer.get_config(), "rematerialize": rematerialize})
        inputs = keras.Input((L, H)), keras.Input((L,), dtype="int32")
        model = keras.Model(inputs, copy(inputs[0], padding_mask=inputs[1]))
        copy.set_weights(layer.get_weights())
        model.compile("sgd", "mse", jit_compile=keras.backend.backend() == "jax")
        model.fit((x, padding()), x[:, ::-1], epochs=3, verbose=0)
        return copy.get_weights()

    kept, computed_again = train(False), train(True)
    assert max(np.abs(a - b).max() for a, b in zip(kept, layer.get_weights())) > 1e-3
    # Of 16-bit gradients the last bit may differ.
    tolerance = 1e-6 if dtype == "float32" else 5e-5
    for found, expected in zip(computed_again, kept):
        np.testing.assert_allclose(found, expected, atol=tolerance)


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="JAX alone keeps parts of derivatives")
def test_in_16_bits_nothing_in_float32_is_kept_for_the_backward_pass():
    import jax

    layer, x = build(dropout=0.3, dtype="mixed_bfloat16")
    inputs = keras.ops.cast(x, "bfloat16")
    _, backward = jax.vjp(lambda inputs: layer(inputs, training=True), inputs)
    kept = [leaf for leaf in jax.tree.leaves(backward) if leaf.ndim > 2 and leaf.shape[1] == L]
    assert len(kept) > 5
    assert {str(leaf.dtype) for leaf in kept} == {"bfloat16", "bool"}


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="JAX alone computes parts again")
def test_weights_that_change_between_calls_count():
    layer, x = build(dtype="mixed_bfloat16")
    norm = layer._feedforward_layer_norm
    call(layer, x, training=True)
    norm.gamma.assign(norm.gamma * 3.0)
    found, expected = (call(layer, x, training=training) for training in [True, False])
    np.testing.assert_allclose(found, expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "bfloat16"])
def test_computes_in_its_dtype(dtype):
    layer, x = build(dtype=dtype)
    outputs = layer(x, padding_mask=padding())
    assert keras.backend.standardize_dtype(outputs.dtype) == "bfloat16"
    assert {w.dtype for w in layer.weights} == {layer.variable_dtype}
    in_float32, _ = build()
    expected = call(in_float32, x, padding_mask=padding())
    np.testing.assert_allclose(call(layer, x, padding_mask=padding()), expected, atol=0.1)


def test_kernels_quantize_to_int8_and_get_lora():
    layer, x = build()
    expected = call(layer, x)
    inputs = keras.Input((None, H))
    model = keras.Model(inputs, layer(inputs))
    layer._feedforward_output_dense.enable_lora(2)
    layer._self_attention_layer.query_dense.enable_lora(2)
    np.testing.assert_allclose(call(model, x), expected, atol=1e-5)
    assert len(layer.trainable_weights) == 16 - 2 + 4
    model.quantize("int8", filters=["dense", "query", "key", "value", "attention_output"])
    kernels = [w for w in layer.weights if w.path.endswith("kernel")]
    assert [w.dtype for w in kernels] == ["int8"] * 6
    np.testing.assert_allclose(call(model, x), expected, atol=0.1)


def test_config_and_file_round_trip(tmp_path):
    layer, x = build(dropout=0.3, attention_dropout=0.1, activation="relu", rematerialize=True)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert copy.get_config() == layer.get_config()
    inputs = keras.Input((None, H))
    model = keras.Model(inputs, layer(inputs))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(call(loaded, x), call(layer, x))
