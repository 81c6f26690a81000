"""Gradients of `layers.jax_gradients`, against those of JAX's differentiation in float32."""

import re

import keras
import numpy as np
import pytest
from jax_programs import assert_close

if keras.backend.backend() != "jax":
    pytest.skip("specific to JAX", allow_module_level=True)

import jax
import jax.numpy as jnp

from keras_spanbert.layers import jax_gradients
from keras_spanbert.layers.attention import SelfAttention, attend
from keras_spanbert.layers.dropout import Dropout
from keras_spanbert.layers.transformer_layer import TransformerLayer
from keras_spanbert.models.backbone import PositionEmbedding

B, L, N, D = 3, 5, 2, 7
EPSILON = 1e-3


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def gradients(function, *arguments, dtype="float32"):
    """Returns gradients. The upstream gradient is random numbers that are rounded to `dtype`."""
    outputs, backward = jax.vjp(function, *arguments)
    upstream = jnp.asarray(random(*outputs.shape, seed=9), dtype)
    return backward(upstream.astype(outputs.dtype))


def of_values(layer, function):
    """Returns a function of the layer's trainable values and an array, which calls `function`."""

    def call(*arguments):
        *values, x = arguments
        with keras.StatelessScope(zip(layer.trainable_variables, values)):
            return function(x)

    return call


@pytest.mark.parametrize("change", [None, "lora", "int8"])
def test_project(change, monkeypatch):
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
    project = of_values(layer, lambda x: jax_gradients.project(layer, x))
    expected = gradients(of_values(layer, layer), *values, x)
    assert_close(gradients(project, *values, x), expected, 1e-6)
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda x, tpu, default: tpu(x))
    assert_close(gradients(project, *values, x), expected, 1e-6)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_bias_gradients_are_products_on_tpus(dtype):
    layer = SelfAttention(2, dtype=dtype)
    layer.build((B, L, 8))
    values = [variable.value for variable in layer.trainable_variables]
    loss = of_values(layer, lambda x: layer(x, training=True).astype("float32").sum())
    gradient = jax.grad(loss, tuple(range(len(values))))
    traced = jax.jit(gradient).trace(*values, random(B, L, 8))
    for platform, expected in [("tpu", 3), ("cpu", 0)]:
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        products = re.findall(r"dot_general .*: \(tensor<8x3x5x\w+>, .*-> tensor<8x2x4xf32>", text)
        assert len(products) == expected
        assert all("HIGHEST" in product for product in products if "x5xf32" in product)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("mixed_bfloat16", 2**-8)])
def test_position_embedding(dtype, tolerance, monkeypatch):
    layer = PositionEmbedding(sequence_length=L + 2, dtype=dtype)
    layer.build((B, L, D))
    x = jnp.zeros((B, L, D), layer.compute_dtype)

    def call(table, start=1):
        with keras.StatelessScope([(layer.position_embeddings, table)]):
            return layer(x, start_index=start)

    table = random(L + 2, D)
    rows = np.broadcast_to(table[1 : L + 1], (B, L, D))
    assert_close([call(table)], [rows], tolerance)
    (expected,) = gradients(lambda x: jnp.broadcast_to(x[1 : L + 1], (B, L, D)), table)
    assert_close(gradients(call, table), [expected], tolerance)
    # As on a GPU, where a sum over rows would change the layout of all hidden states.
    traced = jax.jit(jax.grad(lambda x: call(x).astype("float32").sum())).trace(table)
    assert " reduce" not in traced.lower(lowering_platforms=("cuda",)).as_text()
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda x, cuda, default: cuda(x))
    assert_close(gradients(call, table), [expected], tolerance)


def normalize(gamma, beta, x):
    x = x - x.mean(-1, keepdims=True)
    return x / jnp.sqrt((x**2).mean(-1, keepdims=True) + EPSILON) * gamma + beta


@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_float16"])
def test_normalize(dtype):
    layer = keras.layers.LayerNormalization(epsilon=EPSILON, dtype=dtype)
    layer.build((B, L, D))
    layer.gamma.assign(random(D))
    layer.beta.assign(random(D, seed=1))
    x = jnp.asarray(random(B, L, D, seed=2) + 10.0, layer.compute_dtype)
    compute = of_values(layer, lambda x: jax_gradients.normalize(layer, x))
    arguments = [layer.gamma.value, layer.beta.value, x]
    found = compute(*arguments)
    assert found.dtype == layer.compute_dtype
    wide = [value.astype("float32") for value in arguments]
    tolerance = 2**-8 if "bfloat16" in dtype else 2**-11
    assert_close([found], [normalize(*wide)], tolerance)
    found = gradients(compute, *arguments, dtype=x.dtype)
    assert [array.dtype for array in found] == [array.dtype for array in arguments]
    *of_weights, of_x = gradients(normalize, *wide, dtype=x.dtype)
    assert_close(found[2:], [of_x], tolerance)
    # The gradients of float32 weights are not rounded.
    assert_close(found[:2], of_weights, 1e-4 if "mixed" in dtype else tolerance)


def test_normalize_rows_that_are_almost_constant():
    layer = keras.layers.LayerNormalization(epsilon=1e-12, dtype="bfloat16")
    layer.build((1, 768))
    x = np.full((3, 768), 3.0, "float32")
    x[0, 5] = x[1, :8] = 3.015625  # The next number in bfloat16.
    found = jax_gradients.normalize(layer, jnp.asarray(x, "bfloat16")).astype("float32")
    assert 1.0 < found[0, 5] < 28.0  # sqrt(767) with exact arithmetic.
    assert 1.0 < found[1, 0] < 28.0
    np.testing.assert_array_equal(found[2], 0.0)


def test_layers_of_another_dtype_compute_in_theirs():
    norm = keras.layers.LayerNormalization(dtype="float32")
    dense = keras.layers.Dense(D, dtype="float32")
    x = jnp.asarray(random(B, L, D), "bfloat16")
    for function, layer in [(jax_gradients.normalize, norm), (jax_gradients.project, dense)]:
        assert layer(x).dtype == function(layer, x).dtype == "float32"


@pytest.mark.parametrize("use_bias", [True, False])
def test_activate_keeps_only_the_product(use_bias):
    x, gelu = random(B, L, D), keras.activations.gelu
    layer = keras.layers.Dense(N, use_bias=use_bias)
    layer.build(x.shape)
    if use_bias:
        layer.bias.assign(random(N, seed=1))
    values = [variable.value for variable in layer.trainable_variables]
    compute = of_values(layer, lambda x: jax_gradients.activate(gelu, layer, x))
    outputs, backward = jax.vjp(compute, *values, x)
    np.testing.assert_allclose(outputs, gelu(layer(x)), atol=1e-6)
    kept = [leaf.shape for leaf in jax.tree.leaves(backward)]
    assert kept.count((B, L, N)) == 1
    assert "optimization_barrier" in str(jax.make_jaxpr(backward)(outputs))
    found = gradients(compute, *values, x)
    assert_close(found, gradients(of_values(layer, lambda x: gelu(layer(x))), *values, x), 1e-6)


def test_gelu_is_rounded_once():
    layer = keras.layers.Dense(1, use_bias=False, dtype="bfloat16")
    layer.build((1, 1))
    layer.kernel.assign([[1.0]])
    x = jnp.asarray(np.linspace(-4, 4, 999)[:, None], "bfloat16")
    gelu = keras.activations.gelu

    def compute(x):
        return jax_gradients.activate(gelu, layer, x)

    wide = x.astype("float32")
    expected = gelu(wide), *gradients(gelu, wide, dtype="bfloat16")
    for one, other in zip([compute(x), *gradients(compute, x, dtype="bfloat16")], expected):
        np.testing.assert_allclose(one.astype("float32"), other, rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 2**-8), ("float16", 2**-11)])
def test_multiply(dtype, tolerance):
    arrays = [jnp.asarray(x, dtype) for x in (random(B, L, D), random(N, D, seed=1))]
    wide = [x.astype("float32") for x in arrays]
    found = jax_gradients.multiply(*arrays)
    assert found.dtype == "float32"
    assert_close([found], [wide[0] @ wide[1].T], 1e-6)
    expected = gradients(lambda x, table: x @ table.T, *wide, dtype=dtype)
    assert_close(gradients(jax_gradients.multiply, *arrays, dtype=dtype), expected, tolerance)


@pytest.mark.parametrize("num_tokens", [L, 1])
@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 2**-6), ("float16", 2**-9)])
def test_attend_with_dropout(dtype, tolerance, num_tokens):
    bias = np.where(np.arange(L) < num_tokens, 0, -1e9).astype("float32")[None, None, None]
    bias = bias if num_tokens < L else None
    # Keys and values with an offset, so that errors with the same sign do not cancel.
    key, value = (random(B, L, N, D, seed=seed) + 2 for seed in (1, 2))
    inputs = [jnp.asarray(x, dtype) for x in (random(B, L, N, D) / D, key, value)]

    def expected(query, key, value):
        scores = jnp.einsum("btnd,bsnd->bnts", query, key) + (0 if bias is None else bias)
        weights = Dropout(0.3, seed=1)(jax.nn.softmax(scores), training=True)
        return jnp.einsum("bnts,bsnd->btnd", weights, value)

    def compute(*inputs):
        return jax_gradients.attend_with_dropout(*inputs, bias, Dropout(0.3, seed=1))

    wide = [x.astype("float32") for x in inputs]
    found = compute(*inputs)
    assert found.dtype == dtype
    assert_close([found], [expected(*wide)], tolerance)
    found = gradients(compute, *inputs, dtype=dtype)
    assert all(array.dtype == dtype for array in found)
    # Some gradients are zeros.
    assert_close(found, gradients(expected, *wide, dtype=dtype), tolerance, together=True)


# With a rate of 1, the generator of TPUs would keep 16 of a million weights.
@pytest.mark.parametrize("arguments", [{"rate": 1.0}, {"rate": 0.5, "noise_shape": (1, 1, 1, 1)}])
def test_dropout_of_keras_is_used_where_it_differs(arguments, monkeypatch):
    x = jnp.asarray(random(4, 256, 4, 8), "bfloat16")

    def compute():
        dropout = Dropout(seed=1, dtype="bfloat16", **arguments)
        return np.asarray(attend(x, x, x, dropout=dropout, training=True))

    expected = compute()
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *args, tpu, **_: tpu(*args))
    np.testing.assert_array_equal(compute(), expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_float16"])
def test_gradients_on_accelerators_equal_those_on_cpus(dtype, monkeypatch):
    layer = TransformerLayer(12, 2, attention_dropout=0.3, dtype=dtype)
    layer.build((B, L, 8))
    x = jnp.asarray(random(B, L, 8), layer.compute_dtype)
    train = of_values(layer, lambda x: layer(x, training=True))
    values = [variable.value for variable in layer.trainable_variables]

    def counts():
        """Counts what `activate` and `attend_with_dropout` add to the program."""
        program = str(jax.make_jaxpr(jax.grad(lambda x: train(*values, x).sum()))(x))
        texts = "optimization_barrier", "preferred_element_type=float32"
        return [program.count(text) for text in texts]

    expected = gradients(train, *values, x)
    on_cpus = counts()
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    found = gradients(train, *values, x)
    assert np.greater(counts(), on_cpus).all()
    assert_close(found, expected, 2**-6, together=True)


@pytest.mark.parametrize("trainable", [True, False])
def test_activations_may_have_variables(trainable, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    activation = keras.layers.PReLU(shared_axes=[1], trainable=trainable)
    activation.build((B, L, 16))
    layer = TransformerLayer(16, 2, activation=activation, dtype="mixed_bfloat16")
    model = keras.Sequential([keras.Input((L, 8)), layer])
    model.compile("sgd", "mse")
    before = keras.ops.convert_to_numpy(activation.alpha)
    model.fit(random(B, L, 8), random(B, L, 8, seed=1), verbose=0)
    assert (keras.ops.convert_to_numpy(activation.alpha) != before).any() == trainable
