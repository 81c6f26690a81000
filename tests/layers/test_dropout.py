"""Dropout on JAX, which uses the hardware generator of TPUs and hashes on GPUs."""

import re

import keras
import numpy as np
import pytest
from keras import ops

if keras.backend.backend() != "jax":
    pytest.skip("specific to JAX", allow_module_level=True)

import jax

from keras_spanbert.layers.dropout import Dropout
from keras_spanbert.layers.transformer_layer import TransformerLayer


@pytest.fixture(params=["tpu", "cuda"])
def accelerator_code(request, monkeypatch):
    """Makes JAX use the code for TPUs or GPUs."""

    def choose(*args, default, **functions):
        return functions.get(request.param, default)(*args)

    monkeypatch.setattr(jax.lax, "platform_dependent", choose)


def call(layer, x):
    return ops.convert_to_numpy(layer(x, training=True))


def make_gradient(layer):
    """Returns a function from inputs and seed values to a gradient."""

    def loss(x, *values):
        seeds = [v for v in layer.variables if "seed" in v.path]
        with keras.StatelessScope(state_mapping=list(zip(seeds, values))):
            return (layer(x, training=True) ** 2).sum()

    return jax.grad(loss)


@pytest.mark.parametrize("shape, drawn", [((4, 6), "4x6"), ((4, 3, 5, 6), "4x3x6x5")])
def test_tpu_draws_masks_of_attention_transposed_and_keeps_no_random_bits(shape, drawn):
    layer = Dropout(0.1, seed=1)
    arguments = np.ones(shape, "float32"), layer.variables[0].value
    traced = jax.jit(make_gradient(layer)).trace(*arguments)
    text = traced.lower(lowering_platforms=("tpu",)).as_text()
    assert re.findall(r"rng_bit_generator.*tensor<(\S+)xui16>", text) == [drawn]
    assert "optimization_barrier" in text  # Without it, XLA would keep the 16 bits.


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_accelerator_keeps_the_mean(accelerator_code, rate):
    found = call(Dropout(rate, seed=1), np.ones((5, 200_003), "float32"))
    kept = 1.0 - round(rate * 2**16) / 2**16
    assert abs(kept - (1.0 - rate)) < 2**-17
    np.testing.assert_array_equal(np.unique(found), np.array([0.0, 1.0 / kept], "float32"))
    deviation = np.sqrt(kept * (1.0 - kept) / found.size)
    assert abs((found > 0.0).mean() - kept) < 4.0 * deviation


def test_accelerator_scales_in_float32_with_any_rate(accelerator_code):
    x = np.linspace(1.0, 2.0, 10_007, dtype="float32")
    layer = Dropout(0.1, seed=1, dtype="bfloat16")
    x = ops.convert_to_numpy(ops.cast(ops.cast(x, "bfloat16"), "float32"))
    found = layer(ops.cast(x, "bfloat16"), training=True)
    assert keras.backend.standardize_dtype(found.dtype) == "bfloat16"
    found = ops.convert_to_numpy(ops.cast(found, "float32"))
    ratio = (found / x)[found > 0.0].mean()
    assert abs(ratio * 0.9 - 1.0) < 2e-4  # 1 / 0.9 in bfloat16 is off by 1.6e-3.
    x = np.ones((2, 3), "float32")
    for rate, expected in [(0.0, 1.0), (1e-9, 1.0), (1.0, 0.0)]:
        np.testing.assert_array_equal(call(Dropout(rate, seed=1), x), x * expected)
    assert np.isfinite(call(Dropout(1.0 - 1e-9, seed=1), x)).all()


def test_accelerator_draws_depend_on_seed_and_state(accelerator_code):
    x = np.ones((3, 101), "float32")
    layer = Dropout(0.5, seed=1)
    first, state = call(layer, x), ops.convert_to_numpy(layer.variables[0])
    second = call(layer, x)
    assert (first != second).any() and (call(Dropout(0.5, seed=2), x) != first).any()
    np.testing.assert_array_equal(call(Dropout(0.5, seed=1), x), first)
    layer.variables[0].assign(state)
    np.testing.assert_array_equal(call(layer, x), second)
    # A run can be resumed on another device.
    keras_layer = keras.layers.Dropout(0.5, seed=1)
    call(keras_layer, x)
    np.testing.assert_array_equal(ops.convert_to_numpy(keras_layer.variables[0]), state)


def test_accelerator_keeps_one_bool_per_element_for_the_backward_pass(accelerator_code):
    layer = Dropout(0.1, seed=1)
    _, backward = jax.vjp(lambda x: layer(x, training=True), jax.numpy.ones((7, 11)))
    kept = [leaf for leaf in jax.tree.leaves(backward) if leaf.size >= 77]
    assert [leaf.dtype for leaf in kept] == ["bool"]


def test_accelerator_repeats_draws_when_rematerializing(accelerator_code):
    gradients = []
    for rematerialize in [False, True]:
        keras.utils.set_random_seed(0)
        layer = TransformerLayer(5, 2, 0.3, 0.3, rematerialize=rematerialize)
        layer.build((3, 7, 4))
        seeds = [v.value for v in layer.variables if "seed" in v.path]
        assert len(seeds) == 3
        x = np.random.default_rng(0).normal(size=(3, 7, 4)).astype("float32")
        gradients.append(make_gradient(layer)(x, *seeds))
    np.testing.assert_allclose(*gradients, rtol=1e-5, atol=1e-5)


def test_cpu_draws_without_a_branch():
    layer = Dropout(0.1, seed=1)
    gradient = jax.jit(make_gradient(layer)).lower(np.ones((4, 6)), layer.variables[0].value)
    hlo = gradient.compile().as_text()
    assert "conditional" not in hlo and "rng-bit-generator" not in hlo


def draw_with_hash(seed, shape, rate=0.5):
    """Returns masks of GPUs, 1 for kept elements, less their mean."""
    keep = Dropout(rate)._draw_with_hash(ops.convert_to_tensor(seed, "uint32"), shape)
    return np.asarray(keep, "float32") - (1.0 - round(rate * 2**16) / 2**16)


def assert_independent(a, b):
    assert abs((a * b).sum()) < 5.0 * np.sqrt((a**2).sum() * (b**2).mean())


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_hash_draws_independent_elements(rate):
    mask = draw_with_hash((3, 3), (5, 7, 64, 128), rate)
    assert abs(mask.mean()) < 5.0 * np.sqrt((mask**2).mean() / mask.size)
    for axis, size in enumerate(mask.shape):
        for distance in (d for d in (1, 2, 4, 8, 16, 32, 64) if d < size):
            moved = np.moveaxis(mask, axis, 0)
            assert_independent(moved[distance:], moved[:-distance])
    # Rectangles: the four corners of each, in all matrices.
    for d in (1, 2, 16, 32):
        top = mask[:, :, :-d, :-d] * mask[:, :, :-d, d:]
        assert_independent(top, mask[:, :, d:, :-d] * mask[:, :, d:, d:])
    # Sums over an axis vary as those of independent elements.
    for axis in range(4):
        sums = mask.sum(axis)
        ratio = sums.var() / (mask.shape[axis] * (mask**2).mean())
        assert abs(ratio - 1.0) < 5.0 * np.sqrt(2.0 / sums.size)


def test_hash_draws_depend_on_all_bits_of_the_seed():
    shape = (4, 128, 128)
    masks = {}
    for seed in [(7, 0), (7, 1), (0, 7), *((7 ^ (1 << i), 0) for i in range(32))]:
        masks[seed] = draw_with_hash(seed, shape)
    for i in range(1, 32):
        masks[7, 1 << i] = draw_with_hash((7, 1 << i), shape)
    first = masks.pop((7, 0))
    for mask in masks.values():
        assert_independent(first, mask)
        assert_independent(first[1:], mask[:-1])  # Nor is it the mask of another row.
        assert_independent(first[:-1], mask[1:])


def test_hash_draws_are_those_of_a_part_of_the_batch():
    whole = draw_with_hash((1, 2), (6, 5, 7, 11))
    np.testing.assert_array_equal(draw_with_hash((1, 2), (3, 5, 7, 11)), whole[:3])
    np.testing.assert_array_equal(draw_with_hash((1, 2), (30, 7, 11)), whole.reshape(30, 7, 11))
    for shape in [(), (3,), (3, 5), (0, 3, 5)]:
        assert draw_with_hash((1, 2), shape).shape == shape
