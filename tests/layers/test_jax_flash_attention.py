"""The kernels of attention with dropout, against the plain computation with the same mask."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "jax":
    pytest.skip("specific to JAX", allow_module_level=True)

import jax
import jax.numpy as jnp

from keras_spanbert.layers import jax_flash_attention
from keras_spanbert.layers.dropout import Dropout, exact_scale, hash_numbers

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


def outputs_and_gradients(function, *inputs):
    *inputs, upstream = inputs
    outputs, backward = jax.vjp(function, *inputs)
    return outputs, *backward(upstream)


@pytest.mark.parametrize(
    ("length", "size", "padded", "rate"),
    [(128, 32, False, 0.1), (128, 64, True, 0.5), (192, 32, True, 0.1), (256, 16, True, 0.1)],
)
def test_outputs_and_gradients(length, size, padded, rate):
    mask = padding(length) if padded else None
    numbers = hash_numbers(SEED, (B, N), length, length)

    def flash(*inputs):
        return jax_flash_attention.attend(*inputs, mask, numbers, rate, interpret=True)

    inputs = random_inputs(length, size)
    found = jax.jit(lambda *args: outputs_and_gradients(flash, *args))(*inputs)
    expected = outputs_and_gradients(lambda *x: plain(*x, mask, rate), *inputs)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5 * np.abs(other).max())
