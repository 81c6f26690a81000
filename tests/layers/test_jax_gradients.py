"""Gradients of `layers.jax_gradients`, against those of JAX's differentiation in float32."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "jax":
    pytest.skip("specific to JAX", allow_module_level=True)

import jax
import jax.numpy as jnp

from keras_spanbert.layers import jax_gradients

B, L, N, D = 3, 5, 2, 7
EPSILON = 1e-3


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def gradients(function, *arguments):
    """Returns the gradients of a function's outputs, weighted by random numbers."""
    outputs, backward = jax.vjp(function, *arguments)
    return backward(jnp.asarray(random(*outputs.shape, seed=9), outputs.dtype))


def assert_close(found, expected, tolerance):
    for a, b in zip(found, expected, strict=True):
        b = np.asarray(b, "float32")
        np.testing.assert_allclose(np.asarray(a, "float32"), b, atol=tolerance * np.abs(b).max())


@pytest.mark.parametrize("shape", [(N, D), (D,)])
def test_add_bias(shape):
    x, bias = random(B, L, *shape), random(*shape, seed=1)
    np.testing.assert_array_equal(jax_gradients.add_bias(x, bias), x + bias)
    expected = gradients(lambda x, bias: x + bias, x, bias)
    assert_close(gradients(jax_gradients.add_bias, x, bias), expected, 1e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("bfloat16", 2**-8)])
def test_sum_by_product(dtype, tolerance):
    x = jnp.asarray(random(B, L, N, D) + 1, dtype)
    found = jax_gradients.sum_by_product(x, (0, 1))
    assert found.dtype == dtype
    assert_close([found], [x.astype("float32").sum((0, 1))], tolerance)


@pytest.mark.parametrize("change", [None, "lora", "int8"])
def test_project(change):
    layer = keras.layers.EinsumDense("abc,cde->abde", (None, N, D), bias_axes="de")
    layer.build((B, L, 4))
    layer.bias.assign(random(N, D))
    if change == "lora":
        layer.enable_lora(2)
    elif change:
        layer.quantize(change)
    x = random(B, L, 4)
    np.testing.assert_allclose(jax_gradients.project(layer, x), layer(x), atol=1e-6)
    if change == "int8":
        return  # Its rounding has no gradient to compare.
    values = [variable.value for variable in layer.trainable_variables]

    def call(function):
        def outputs(values, x):
            with keras.StatelessScope(zip(layer.trainable_variables, values)):
                return function(x)

        of_values, of_x = gradients(outputs, values, x)
        return *of_values, of_x

    found = call(lambda x: jax_gradients.project(layer, x))
    assert len(found) == len(values) + 1
    assert_close(found, call(layer), 1e-6)


def normalize(x, gamma, beta):
    x = x - x.mean(-1, keepdims=True)
    return x / jnp.sqrt((x**2).mean(-1, keepdims=True) + EPSILON) * gamma + beta


@pytest.mark.parametrize("mean", [0.0, 3.0])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_normalize(dtype, mean):
    layer = keras.layers.LayerNormalization(epsilon=EPSILON, dtype=dtype)
    layer.build((B, L, D))
    layer.gamma.assign(random(D))
    layer.beta.assign(random(D, seed=1))
    x = jnp.asarray(random(B, L, D, seed=2) + mean, dtype)
    found = jax_gradients.normalize(layer, x)
    assert found.dtype == dtype
    arguments = [x, layer.gamma.value, layer.beta.value]
    wide = [value.astype("float32") for value in arguments]
    tolerance = 2**-7 if dtype == "bfloat16" else 2**-10
    assert_close([found], [normalize(*wide)], tolerance)

    def with_weights(x, gamma, beta):
        with keras.StatelessScope([(layer.gamma, gamma), (layer.beta, beta)]):
            return jax_gradients.normalize(layer, x)

    assert_close(gradients(with_weights, *arguments), gradients(normalize, *wide), tolerance)


def test_recompute_keeps_only_its_inputs():
    x = random(B, L)
    outputs, backward = jax.vjp(lambda x: jax_gradients.recompute(jnp.tanh, x), x)
    np.testing.assert_array_equal(outputs, jnp.tanh(x))
    assert [leaf.shape for leaf in jax.tree.leaves(backward)] == [(B, L)]
    assert_close(
        gradients(lambda x: jax_gradients.recompute(jnp.tanh, x), x), gradients(jnp.tanh, x), 1e-6
    )
