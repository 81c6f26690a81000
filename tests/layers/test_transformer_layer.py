import keras
import numpy as np
import pytest
from comparisons import assert_close
from keras import ops

from keras_spanbert import SpanBertBackbone
from keras_spanbert.layers.dropout import Dropout
from keras_spanbert.layers.transformer_layer import TransformerLayer

B, L, N, D, FF = 2, 7, 3, 5, 13
H = N * D
PADDING = np.ones((B, L), "int32")
PADDING[1, 4:] = 0


def build(**kwargs):
    """Returns a layer with nonzero weights and inputs for it."""
    layer = TransformerLayer(FF, N, **kwargs)
    rng = np.random.default_rng(0)
    layer.build((B, L, H))
    layer.set_weights([rng.normal(size=w.shape) * 0.3 for w in layer.get_weights()])
    return layer, rng.normal(size=(B, L, H)).astype("float32")


def call(layer, x, **kwargs):
    return ops.convert_to_numpy(ops.cast(layer(x, **kwargs), "float32"))


def named_weights(layer):
    return {w.path.split("/", 1)[1]: ops.convert_to_numpy(w) for w in layer.weights}


def norm(x, name, weights):
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-12)
    return x * weights[f"{name}/gamma"] + weights[f"{name}/beta"]


def test_dropout_is_before_both_additions():
    layer, x = build(dropout=1.0)
    weights = named_weights(layer)
    # If everything is dropped, only the residual connections remain.
    y = norm(norm(x, "self_attention_layer_norm", weights), "feedforward_layer_norm", weights)
    np.testing.assert_allclose(call(layer, x, training=True), y, atol=1e-5)
    assert np.abs(call(layer, x, training=False) - y).max() > 0.1


def test_attention_dropout_is_separate():
    layer, x = build(dropout=0.0, attention_dropout=1.0)
    found = call(layer, x, training=True)
    # If all attention weights are dropped, the values do not matter.
    attention = layer._self_attention_layer
    attention.value_dense.set_weights([w * 0 for w in attention.value_dense.get_weights()])
    np.testing.assert_allclose(found, call(layer, x, training=False), atol=1e-5)


def test_kernels_have_different_initial_values_and_biases_are_zero():
    layer = TransformerLayer(H, N, kernel_initializer=keras.initializers.RandomNormal(seed=None))
    layer.build((B, L, H))
    weights = named_weights(layer)
    kernels = [w.reshape(H, H) for name, w in weights.items() if name.endswith("kernel")]
    assert len(kernels) == 6
    for i, kernel in enumerate(kernels):
        assert all(np.abs(kernel - other).max() > 1e-3 for other in kernels[:i])
    assert not any(w.any() for name, w in weights.items() if name.endswith("bias"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("dropout", "dtype"), [(0.0, "float32"), (0.3, "float32"), (0.3, "mixed_bfloat16")]
)
def test_rematerialisation_gives_the_same_weights(dropout, dtype):
    layer, x = build(dropout=dropout, attention_dropout=dropout, dtype=dtype)

    def train(rematerialize):
        keras.utils.set_random_seed(0)
        copy = TransformerLayer.from_config({**layer.get_config(), "rematerialize": rematerialize})
        inputs = keras.Input((L, H)), keras.Input((L,), dtype="int32")
        model = keras.Model(inputs, copy(inputs[0], padding_mask=inputs[1]))
        copy.set_weights(layer.get_weights())
        model.compile("sgd", "mse", jit_compile=keras.backend.backend() == "jax")
        model.fit((x, PADDING), x[:, ::-1], epochs=3, shuffle=False, verbose=0)
        return copy.get_weights()

    kept, computed_again = train(False), train(True)
    assert max(np.abs(a - b).max() for a, b in zip(kept, layer.get_weights())) > 1e-3
    # The last bit of 16-bit gradients may differ.
    tolerance = 1e-6 if dtype == "float32" else 5e-5
    assert_close(computed_again, kept, tolerance)


def test_rematerialized_layer_drops_other_units_at_each_step():
    layer, x = build(dropout=0.5, rematerialize=True)
    found = [keras.ops.convert_to_numpy(layer(x, training=True)) for _ in range(2)]
    assert np.abs(found[0] - found[1]).max() > 1e-3


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="specific to JAX")
def test_sixteen_bit_backward_pass_keeps_no_float32_values(monkeypatch):
    import jax

    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")  # Not on CPUs.
    layer, x = build(dropout=0.3, dtype="mixed_bfloat16")
    inputs = keras.ops.cast(x, "bfloat16")
    _, backward = jax.vjp(lambda inputs: layer(inputs, training=True), inputs)
    kept = [leaf for leaf in jax.tree.leaves(backward) if leaf.ndim > 2 and leaf.shape[1] == L]
    in_float32 = [leaf.shape for leaf in kept if leaf.dtype == "float32"]
    assert in_float32 == [(B, L, 1)] * 4  # Mean and scale of both norms.
    assert {str(leaf.dtype) for leaf in kept} == {"bfloat16", "bool", "float32"}


def test_uses_its_dtype_and_softmax_uses_float32(monkeypatch):
    dtypes, soft = [], ops.softmax
    monkeypatch.setattr(ops, "softmax", lambda x, axis: dtypes.append(x.dtype) or soft(x, axis))
    layer, x = build(attention_dropout=0.1, dtype="mixed_bfloat16")
    outputs = layer(x, padding_mask=PADDING, training=True)
    assert [keras.backend.standardize_dtype(dtype) for dtype in dtypes] == ["float32"]
    assert keras.backend.standardize_dtype(outputs.dtype) == "bfloat16"
    assert {w.dtype for w in layer.weights} == {layer.variable_dtype}
    in_float32, _ = build()
    expected = call(in_float32, x, padding_mask=PADDING.astype("bool"))
    np.testing.assert_allclose(call(layer, x, padding_mask=PADDING), expected, atol=0.1)


def test_heads_must_divide_the_hidden_size():
    with pytest.raises(ValueError, match="divisor of `hidden_dim`, 10. Received: num_heads=3"):
        SpanBertBackbone(7, 1, 3, 10, 5)


@pytest.mark.parametrize("arguments", [{}, {"noise_shape": (3, 1)}])
def test_draws_and_seed_of_dropout_equal_keras(arguments):
    layers = [cls(0.3, seed=5, name="same", **arguments) for cls in [Dropout, keras.layers.Dropout]]
    mine, theirs = layers
    x = np.random.default_rng(0).normal(size=(3, 7)).astype("float32")
    for _ in range(2):
        keras.utils.set_random_seed(1)  # PyTorch draws from its own generator.
        found = call(mine, x, training=True)
        keras.utils.set_random_seed(1)
        np.testing.assert_array_equal(found, call(theirs, x, training=True))
    assert (found == 0.0).any() and (found != 0.0).any()
    # The same state, so that one can be saved and the other loaded.
    ((state,), (expected,)) = (layer.variables for layer in layers)
    assert (state.shape, state.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(*map(ops.convert_to_numpy, (state, expected)))
    np.testing.assert_array_equal(mine(x), x)
