"""Dropout draws as Keras does, and on JAX's TPUs by their hardware's generator."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_spanbert.layers.dropout import Dropout
from keras_spanbert.layers.transformer_layer import TransformerLayer

only_jax = pytest.mark.skipif(keras.backend.backend() != "jax", reason="JAX alone draws so")


@pytest.fixture
def tpu_road(monkeypatch):
    """JAX takes what it would compile for a TPU."""
    import jax

    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *args, tpu, default: tpu(*args))


def call(layer, x):
    return ops.convert_to_numpy(layer(x, training=True))


def gradient_of(layer):
    """A function of inputs and the values of seeds to a gradient."""
    import jax

    def loss(x, *values):
        seeds = [v for v in layer.variables if "seed" in v.path]
        with keras.StatelessScope(state_mapping=list(zip(seeds, values))):
            return (layer(x, training=True) ** 2).sum()

    return jax.grad(loss)


@pytest.mark.parametrize("arguments", [{}, {"noise_shape": (3, 1)}])
def test_draws_and_keeps_its_seed_as_keras_does(arguments):
    layers = [cls(0.3, seed=5, name="same", **arguments) for cls in [Dropout, keras.layers.Dropout]]
    mine, theirs = layers
    x = np.random.default_rng(0).normal(size=(3, 7)).astype("float32")
    for _ in range(2):
        keras.utils.set_random_seed(1)  # PyTorch draws from its own generator.
        found = call(mine, x)
        keras.utils.set_random_seed(1)
        np.testing.assert_array_equal(found, call(theirs, x))
    assert (found == 0.0).any() and (found != 0.0).any()
    states = [[(v.path, v.shape, v.dtype) for v in layer.variables] for layer in layers]
    assert states[0][0][1:] == states[1][0][1:] and len(states[0]) == len(states[1]) == 1
    np.testing.assert_array_equal(*(ops.convert_to_numpy(v.variables[0]) for v in layers))
    np.testing.assert_array_equal(call(mine, x) * 0, x * 0)
    assert keras.layers.deserialize(keras.layers.serialize(mine)).seed == 5
    np.testing.assert_array_equal(mine(x), x)


@only_jax
def test_gradients_are_those_of_keras():
    x = np.random.default_rng(0).normal(size=(3, 7)).astype("float32")
    found, expected = (
        gradient_of(layer)(x, layer.variables[0].value)
        for layer in [Dropout(0.3, seed=5), keras.layers.Dropout(0.3, seed=5)]
    )
    np.testing.assert_array_equal(found, expected)


@only_jax
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_tpu_keeps_the_mean(tpu_road, rate):
    found = call(Dropout(rate, seed=1), np.ones((5, 200_003), "float32"))
    kept = 1.0 - round(rate * 2**16) / 2**16
    assert abs(kept - (1.0 - rate)) < 2**-17
    np.testing.assert_array_equal(np.unique(found), np.array([0.0, 1.0 / kept], "float32"))
    deviation = np.sqrt(kept * (1.0 - kept) / found.size)
    assert abs((found > 0.0).mean() - kept) < 4.0 * deviation


@only_jax
def test_tpu_scales_numbers_of_16_bits_in_32(tpu_road):
    x = np.linspace(1.0, 2.0, 10_007, dtype="float32")
    layer = Dropout(0.1, seed=1, dtype="bfloat16")
    x = ops.convert_to_numpy(ops.cast(ops.cast(x, "bfloat16"), "float32"))
    found = layer(ops.cast(x, "bfloat16"), training=True)
    assert keras.backend.standardize_dtype(found.dtype) == "bfloat16"
    found = ops.convert_to_numpy(ops.cast(found, "float32"))
    ratio = (found / x)[found > 0.0].mean()
    assert abs(ratio * 0.9 - 1.0) < 2e-4  # 1 / 0.9 in bfloat16 is off by 1.6e-3.


@only_jax
def test_tpu_draws_the_same_for_a_seed_and_state_and_else_another(tpu_road):
    x = np.ones((3, 101), "float32")
    layer = Dropout(0.5, seed=1)
    first, state = call(layer, x), ops.convert_to_numpy(layer.variables[0])
    second = call(layer, x)
    assert (first != second).any() and (call(Dropout(0.5, seed=2), x) != first).any()
    np.testing.assert_array_equal(call(Dropout(0.5, seed=1), x), first)
    layer.variables[0].assign(state)
    np.testing.assert_array_equal(call(layer, x), second)
    # A run may go on elsewhere.
    keras_layer = keras.layers.Dropout(0.5, seed=1)
    call(keras_layer, x)
    np.testing.assert_array_equal(ops.convert_to_numpy(keras_layer.variables[0]), state)


@only_jax
def test_tpu_takes_the_smallest_and_largest_rates(tpu_road):
    x = np.ones((2, 3), "float32")
    for rate, expected in [(0.0, 1.0), (1e-9, 1.0), (1.0, 0.0)]:
        np.testing.assert_array_equal(call(Dropout(rate, seed=1), x), x * expected)
    assert np.isfinite(call(Dropout(1.0 - 1e-9, seed=1), x)).all()


@only_jax
def test_tpu_keeps_a_bool_an_element_for_the_backward_pass(tpu_road):
    import jax

    layer = Dropout(0.1, seed=1)
    _, backward = jax.vjp(lambda x: layer(x, training=True), jax.numpy.ones((7, 11)))
    kept = [leaf for leaf in jax.tree.leaves(backward) if leaf.size >= 77]
    assert [leaf.dtype for leaf in kept] == ["bool"]


@only_jax
def test_tpu_draws_the_same_again_where_a_layer_is_rematerialized(tpu_road):
    gradients = []
    for rematerialize in [False, True]:
        keras.utils.set_random_seed(0)
        layer = TransformerLayer(5, 2, 0.3, 0.3, rematerialize=rematerialize)
        layer.build((3, 7, 4))
        seeds = [v.value for v in layer.variables if "seed" in v.path]
        assert len(seeds) == 3
        x = np.random.default_rng(0).normal(size=(3, 7, 4)).astype("float32")
        gradients.append(gradient_of(layer)(x, *seeds))
    np.testing.assert_allclose(*gradients, rtol=1e-5, atol=1e-5)


@only_jax
def test_cpu_draws_without_a_branch():
    import jax

    layer = Dropout(0.1, seed=1)
    gradient = jax.jit(gradient_of(layer)).lower(np.ones((4, 6)), layer.variables[0].value)
    hlo = gradient.compile().as_text()
    assert "conditional" not in hlo and "rng-bit-generator" not in hlo
