"""The kernels of attention with dropout, against the plain computation with the same mask."""

import contextlib
import functools

import keras
import numpy as np
import pytest
from jax_programs import assert_close, shared_by

if keras.backend.backend() != "jax":
    pytest.skip("specific to JAX", allow_module_level=True)

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from keras_spanbert.layers import jax_flash_attention
from keras_spanbert.layers.attention import attend
from keras_spanbert.layers.dropout import Dropout, exact_scale, hash_numbers
from keras_spanbert.layers.jax_attention import flash_attention

B, N = 2, 3
SEED = jnp.array([5, 9], "uint32")


def random_inputs(length, size):
    """Returns query, key, value and output gradients. Keys and values are not centered."""
    draws = np.random.default_rng(0).normal(size=(4, B, length, N, size)).astype("float32")
    query, key, value, upstream = draws
    return query * size**-0.5, key + 1.0, value + 1.0, upstream


def padding(length):
    """Returns a mask with padding on the left, whole blocks and holes, and one token in row 1."""
    mask = np.zeros((B, length), "bool")
    mask[0, 70:-3] = True
    mask[0, 80:90] = False
    mask[1, 100] = True
    return mask


def plain(query, key, value, mask, rate):
    length = query.shape[1]
    scores = jnp.einsum("btnd,bsnd->bnts", query, key)
    if mask is not None:
        scores = jnp.where(mask[:, None, None], scores, -jnp.inf)
    keep = Dropout(rate)._draw_with_hash(SEED, (B, N, length, length))
    weights = jnp.where(keep, jax.nn.softmax(scores) * exact_scale(rate), 0.0)
    return jnp.einsum("bnts,bsnd->btnd", weights, value)


@pytest.fixture
def interpreted(monkeypatch):
    """Replaces the kernels by operations that run on any platform."""
    kernel = functools.partial(pl.pallas_call, interpret=True)
    monkeypatch.setattr(pl, "pallas_call", kernel)
    log2_e = jax_flash_attention.LOG2_E
    monkeypatch.setattr(jax_flash_attention, "_exp", lambda x, n: jnp.exp2(x * log2_e + n))


def outputs_and_gradients(function, *inputs):
    *inputs, upstream = inputs
    outputs, backward = jax.vjp(function, *inputs)
    return outputs, *backward(upstream)


@pytest.mark.parametrize(
    ("length", "size", "padded", "rate"),
    [(128, 32, False, 0.1), (128, 64, True, 0.5), (192, 32, True, 0.1), (256, 16, True, 0.1)],
)
def test_outputs_and_gradients(length, size, padded, rate, interpreted):
    mask = padding(length) if padded else None
    numbers = hash_numbers(SEED, (B, N), length, length)
    given = {"padding_mask": mask, "numbers": numbers, "rate": rate}
    flash = functools.partial(jax_flash_attention.attend, **given)
    inputs = random_inputs(length, size)
    found = jax.jit(functools.partial(outputs_and_gradients, flash))(*inputs)
    expected = outputs_and_gradients(lambda *x: plain(*x, mask, rate), *inputs)
    assert_close(found, expected, 1e-5)


def test_rounding_of_outputs_does_not_affect_gradients(interpreted):
    *inputs, upstream = (jnp.asarray(x, "bfloat16") for x in random_inputs(128, 32))
    inputs[1] += 3.0  # Errors that are the same for all keys do not cancel.
    given = {"padding_mask": None, "numbers": hash_numbers(SEED, (B, N), 128, 128), "rate": 0.1}
    flash = functools.partial(jax_flash_attention.attend, **given)
    found = outputs_and_gradients(flash, *inputs, upstream)
    wide = (x.astype("float32") for x in (*inputs, upstream))
    expected = outputs_and_gradients(lambda *x: plain(*x, None, 0.1), *wide)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == "bfloat16"
        error = np.linalg.norm(one.astype("float32") - other)
        assert error < 0.02 * np.linalg.norm(other)


def test_attend_draws_the_same_mask_with_and_without_the_kernel(interpreted, monkeypatch):
    def choose(*args, default, cuda=None, **others):
        return (cuda or default)(*args)

    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax.lax, "platform_dependent", choose)
    *inputs, _ = (jnp.asarray(x, "bfloat16") for x in random_inputs(128, 32))

    def compute():
        layer = Dropout(0.5, seed=3)
        call = functools.partial(attend, padding_mask=padding(128), dropout=layer, training=True)
        uses_kernel = "pallas_call" in str(jax.make_jaxpr(call)(*inputs))
        layer = Dropout(0.5, seed=3)
        outputs = attend(*inputs, padding(128), layer, training=True)
        return np.asarray(outputs, "float32"), np.asarray(layer.variables[0]), uses_kernel

    found, seed, uses_kernel = compute()
    assert uses_kernel
    monkeypatch.setattr(keras.config, "is_flash_attention_enabled", lambda: False)
    expected, expected_seed, uses_kernel = compute()
    assert not uses_kernel
    assert_close([found], [expected], 2**-6)
    np.testing.assert_array_equal(seed, expected_seed)  # Both take one seed.


@pytest.mark.parametrize(
    ("length", "size", "dtype", "enabled"),
    [
        (128, 32, "bfloat16", True),
        (192, 32, "bfloat16", False),
        (128, 16, "bfloat16", False),
        (128, 32, "float32", False),
    ],
)
def test_attend_uses_the_kernels_on_gpus_only(length, size, dtype, enabled, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")

    def total(x):
        return attend(x, x, x, dropout=Dropout(0.5, seed=1), training=True).sum()

    traced = jax.jit(jax.grad(total)).trace(jnp.ones((B, length, N, size), dtype))
    for platform in ["tpu", "cpu"]:
        assert "triton" not in traced.lower(lowering_platforms=(platform,)).as_text()
    with contextlib.suppress(RuntimeError):  # JAX 0.11 needs a GPU for it.
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
        assert text.count("triton") == 3 * enabled


@pytest.mark.parametrize("mode", ["data", "model"])
def test_devices_run_the_kernel_on_their_rows_and_heads(mode, interpreted):
    devices, mask = keras.distribution.list_devices(), padding(128)
    shape = (2, 3) if len(devices) >= 6 else (1, 1)
    devices = devices[: B if mode == "data" else shape[0] * shape[1]]
    compute = functools.partial(flash_attention, padding_mask=mask, seed=SEED, rate=0.1)
    inputs = random_inputs(128, 32)
    with shared_by(devices, mode, shape):
        traced = str(jax.make_jaxpr(compute)(*inputs[:3]))
        found = jax.jit(functools.partial(outputs_and_gradients, compute))(*inputs)
    heads = "'model'" if mode == "model" else "None"
    assert f"out_specs=(P('batch', None, {heads})" in traced.split("shard_map")[1]
    expected = outputs_and_gradients(lambda *x: plain(*x, mask, 0.1), *inputs)
    assert_close(found, expected, 1e-5)


def test_missing_kernels_are_logged_once(monkeypatch, caplog):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax_flash_attention, "triton", None)
    assert not any(jax_flash_attention.supports((B, length, N, 32)) for length in [128, 192, 256])
    (message,) = caplog.messages
    assert "`jax.experimental.pallas.triton` cannot be imported from JAX" in message
