"""Gradients that are cheaper on accelerators than those of JAX's differentiation.

These functions support reverse-mode differentiation only.
"""

import functools
import math

import jax
import jax.numpy as jnp
import keras

from keras_spanbert.layers.softmax import softmax_forward


def are_cheaper(dtype) -> bool:
    """Returns whether the gradients of this module are faster for a dtype on this platform."""
    # On CPUs, those of layers made steps of base in bfloat16 0 to 5% slower.
    is_16_bit = keras.backend.standardize_dtype(dtype) in ("bfloat16", "float16")
    return is_16_bit and jax.default_backend() != "cpu"


def project(layer, x):
    """Calls a `Dense` or `EinsumDense` layer without activation, whose bias `add_bias` adds."""
    x, bias = _without_bias(layer, x)
    return x if bias is None else add_bias(x, bias)


def _without_bias(layer, x):
    """Returns what a layer computes before it adds its bias, and the bias if it is not added."""
    bias = layer.bias
    if bias is None or layer.compute_dtype != x.dtype:
        return layer(x), None
    mapping = [(variable, variable.value) for variable in layer.variables if variable is not bias]
    # XLA removes the addition of zeros.
    with keras.StatelessScope(state_mapping=[*mapping, (bias, jnp.zeros_like(bias.value))]):
        x = layer(x)
    return x, bias.value.astype(x.dtype)


@jax.custom_vjp
def add_bias(x, bias):
    """Adds a bias to the last axes of `x`. On TPUs, its gradient is a matrix product."""
    return x + bias


def _add_bias_backward(bias, upstream):
    axes = tuple(range(upstream.ndim - bias.ndim))
    # For queries, keys and values `[B, L, N, D]`, the TPU compiler estimates that a sum over rows
    # takes 27 times as long as the product.
    return upstream, _sum(upstream, axes, platform="tpu")


add_bias.defvjp(lambda x, bias: (x + bias, bias), _add_bias_backward)


def _sum(x, axes, platform):
    """Sums over the first axes, on one platform by a matrix product."""
    return jax.lax.platform_dependent(
        x,
        default=functools.partial(jnp.sum, axis=axes),
        **{platform: functools.partial(_sum_by_product, axes=axes)},
    )


def _sum_by_product(x, axes):
    # With a single row of ones, XLA would turn the product into a sum.
    ones = jnp.ones((8, *(x.shape[axis] for axis in axes)), x.dtype)
    dimensions = (tuple(axis + 1 for axis in axes), axes), ((), ())
    precision = "highest" if x.dtype == jnp.float32 else None  # The default rounds to bfloat16.
    sums = jax.lax.dot_general(
        ones, x, dimensions, precision=precision, preferred_element_type=jnp.float32
    )
    return sums[0].astype(x.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def repeat(x, rows):
    """Repeats `x` along a new first axis. On GPUs, its gradient is a matrix product."""
    return jnp.broadcast_to(x, (rows, *x.shape))


def _repeat_backward(rows, _, upstream):
    # XLA would store the operand `[B, L, H]` of a sum over rows as `[L, H, B]`, and with it the
    # hidden states and dropout masks of all layers, and transpose them for each product.
    return (_sum(upstream, (0,), platform="cuda"),)


repeat.defvjp(lambda x, rows: (repeat(x, rows), None), _repeat_backward)


def activate(activation, layer, x):
    """Calls a `Dense` layer and one of Keras's activations, which is computed again backward."""
    if activation not in vars(keras.activations).values():
        return activation(layer(x))  # It may read variables, which would have no gradients here.
    # The product before the bias is added is kept: the sum would be another array to write.
    # `keras.remat` would also add a barrier after the upstream gradient, so that the compiler could
    # not fuse the derivative with the matrix product before it.
    x, bias = _without_bias(layer, x)
    activation = _gelu if activation is keras.activations.gelu else activation
    if bias is None:
        return _recompute(activation, x)
    return _recompute(lambda x, bias: activation(x + bias), x, bias)


def _gelu(x):
    """Computes GELU in float32."""
    # JAX would round the constants to 16 bits and compute `erfc` with two polynomials and an
    # exponential, which takes a GPU twice as long as reading and writing the array.
    wide = x.astype(jnp.float32)
    return (0.5 * wide * (1.0 + jax.lax.erf(wide * math.sqrt(0.5)))).astype(x.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _recompute(function, *arrays):
    return function(*arrays)


def _recompute_backward(function, arrays, upstream):
    # Without the barrier, XLA would keep values of the forward pass.
    _, backward = jax.vjp(function, *jax.lax.optimization_barrier(arrays))
    return backward(upstream)


_recompute.defvjp(lambda function, *arrays: (function(*arrays), arrays), _recompute_backward)


def normalize(layer, x):
    """Calls a `LayerNormalization` of the last axis, for 16-bit `x`."""
    if layer.compute_dtype != x.dtype:
        return layer(x)
    with jax.named_scope(layer.name):
        return _normalize(layer.epsilon, x, layer.gamma.value, layer.beta.value)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _normalize(epsilon, x, gamma, beta):
    return _normalize_forward(epsilon, x, gamma, beta)[0]


def _normalize_forward(epsilon, x, gamma, beta):
    wide, gamma_wide, beta_wide = (array.astype(jnp.float32) for array in (x, gamma, beta))
    mean = wide.mean(-1, keepdims=True)
    squares = jnp.square(wide).mean(-1, keepdims=True)
    # XLA computes both means in one pass and fuses it with the operation that makes `x`. Hidden
    # states have small means, so the difference is accurate. The lower bound limits the effect of
    # cancellation in rows that are almost constant.
    variance = jnp.maximum(squares - jnp.square(mean), 2.0**-22 * squares)
    scale = jax.lax.rsqrt(variance + epsilon)
    outputs = (wide - mean) * scale * gamma_wide + beta_wide
    # JAX's differentiation would keep several arrays in float32.
    return outputs.astype(x.dtype), (x, mean, scale, gamma)


def _normalize_backward(epsilon, kept, upstream):
    x, mean, scale, gamma = kept
    wide = upstream.astype(jnp.float32)
    normal = (x.astype(jnp.float32) - mean) * scale
    scaled = wide * gamma.astype(jnp.float32)
    centered = scaled - scaled.mean(-1, keepdims=True)
    gradient = scale * (centered - normal * (scaled * normal).mean(-1, keepdims=True))
    rows = tuple(range(x.ndim - 1))
    of_weights = ((wide * normal).sum(rows), wide.sum(rows))
    return gradient.astype(x.dtype), *(array.astype(gamma.dtype) for array in of_weights)


_normalize.defvjp(_normalize_forward, _normalize_backward)


@jax.custom_vjp
def multiply(x, table):
    """Returns the products `[..., V]` of 16-bit `x` `[..., H]` and `table` `[V, H]` in float32."""
    dimensions = ((x.ndim - 1,), (1,)), ((), ())
    return jax.lax.dot_general(x, table, dimensions, preferred_element_type=jnp.float32)


def _multiply_backward(kept, upstream):
    x, table = kept
    upstream = upstream.astype(x.dtype)  # JAX would multiply in float32.
    of_x = jnp.einsum("...v,vh->...h", upstream, table)
    return of_x, jnp.einsum("...v,...h->vh", upstream, x)


multiply.defvjp(lambda x, table: (multiply(x, table), (x, table)), _multiply_backward)


def attend_with_dropout(query, key, value, bias, dropout, seed=None):
    """Computes attention with dropout of its weights, 16-bit float `[B, L, N, D]` to that shape.

    The query is already scaled. `bias`, float32 `[B, 1, 1, S]` or `None`, has no gradient.
    `dropout` is a layer that `draws_in_jax`, with `seed` or else with its next seed.
    """
    rows, length, num_heads, _ = query.shape
    seed = dropout.seed_generator.next() if seed is None else seed
    keep = dropout.draw_in_jax(seed, (rows, num_heads, length, key.shape[1]))
    return _attend(dropout.scale_in_jax, query, key, value, bias, keep)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(scale, query, key, value, bias, keep):
    return _attend_forward(scale, query, key, value, bias, keep)[0]


def _attend_forward(scale, query, key, value, bias, keep):
    weights = softmax_forward(jnp.einsum("bsnd,btnd->bnts", key, query), bias)
    dropped = jnp.where(keep, scale(weights), 0)
    # Kept in float32, because rounded means would add the same error to all scores of a row. The
    # gradients of the weights are not rounded either, so that the sum over a row stays 0.
    outputs = jnp.einsum("bnts,bsnd->btnd", dropped, value, preferred_element_type=jnp.float32)
    return outputs.astype(query.dtype), (query, key, value, keep, weights, outputs)


def _attend_backward(scale, kept, upstream):
    query, key, value, keep, weights, outputs = kept
    # The sum over S of weights times their gradients equals the sum over D of outputs times theirs
    # (https://arxiv.org/abs/2205.14135, appendix B.2), so the gradients of the weights are not
    # stored.
    means = (upstream.astype(jnp.float32) * outputs).sum(-1).swapaxes(1, 2)[..., None]
    of_dropped = jnp.einsum("bsnd,btnd->bnts", value, upstream, preferred_element_type=jnp.float32)
    dropped = jnp.where(keep, scale(weights), 0)
    of_scores = dropped.astype(jnp.float32) * of_dropped - weights.astype(jnp.float32) * means
    of_scores = of_scores.astype(query.dtype)
    return (
        jnp.einsum("bnts,bsnd->btnd", of_scores, key),
        jnp.einsum("bnts,btnd->bsnd", of_scores, query),
        jnp.einsum("bnts,btnd->bsnd", dropped, upstream),
        None,
        None,
    )


_attend.defvjp(_attend_forward, _attend_backward)
