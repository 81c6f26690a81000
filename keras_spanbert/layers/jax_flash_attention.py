"""Attention with dropout of its weights on NVIDIA GPUs, as Triton kernels."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from keras_spanbert.layers.dropout import exact_scale, hash_keeps

# B = batch, L = length, N = heads, D = size of a head.
LOG2_E = math.log2(math.e)
# Each kernel: rows of a block of queries, rows of a block of keys, warps, stages of the pipeline.
FORWARD = (128, 64, 4, 3)
BACKWARD_KEY = (64, 128, 8, 2)
BACKWARD_QUERY = (128, 64, 8, 2)


def supports(query) -> bool:
    """Returns whether `attend` supports queries `[B, L, N, D]`."""
    length, head_dim = query.shape[1], query.shape[3]
    is_16_bit = query.dtype in (jnp.bfloat16, jnp.float16)
    return is_16_bit and length % 64 == 0 and head_dim in (16, 32, 64, 128)


def attend(query, key, value, padding_mask, keys, rate: float, interpret=False):
    """Computes attention with dropout of its weights.

    Weights, scores and the dropout mask exist only in blocks. The backward pass
    computes them again.

    Args:
        query, key, value: float `[B, L, N, D]` that `supports` accepts. The query is
            already scaled.
        padding_mask: bool `[B, L]` or `None`. Each row has a true value.
        keys: uint32 `[B, N, 2]`, `layers.dropout.hash_keys` of the mask `[B, N, L, L]`.
        rate: float. Fraction of the weights to drop.
        interpret: bool. Whether to run the kernels as JAX operations, on any platform.

    Returns:
        float `[B, L, N, D]`.

    Reference:
        [Dao 2023](https://arxiv.org/abs/2307.08691).
    """
    # A finite number, so that blocks without tokens do not give NaN.
    bias = None if padding_mask is None else jnp.where(padding_mask, 0.0, -1e30)
    return _attend(rate, interpret, query, key, value, bias, keys)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attend(rate, interpret, query, key, value, bias, keys):
    return _attend_forward(rate, interpret, query, key, value, bias, keys)[0]


def _attend_forward(rate, interpret, query, key, value, bias, keys):
    rows, length, num_heads, _ = query.shape
    sums = jax.ShapeDtypeStruct((rows, num_heads, length), jnp.float32)
    outputs, log_sums = _call(
        functools.partial(_forward_kernel, rate),
        FORWARD,
        interpret,
        blocks={"query": query},
        wholes={"key": key, "value": value, "bias": bias, "keys": keys},
        outputs=(query, sums),
    )
    return outputs, (query, key, value, bias, keys, outputs, log_sums)


def _attend_backward(rate, interpret, kept, upstream):
    query, key, value, bias, keys, outputs, log_sums = kept
    # The sum over keys of weights times their gradients.
    means = (upstream.astype(jnp.float32) * outputs.astype(jnp.float32)).sum(-1).swapaxes(1, 2)
    means = means / exact_scale(rate)  # The kernels scale at the end.
    of_queries = {"query": query, "upstream": upstream, "log_sums": log_sums, "means": means}
    of_key, of_value = _call(
        functools.partial(_backward_key_kernel, rate),
        BACKWARD_KEY,
        interpret,
        blocks={"key": key, "value": value, "bias": bias},
        wholes={**of_queries, "keys": keys},
        outputs=(key, value),
        by_key=True,
    )
    (of_query,) = _call(
        functools.partial(_backward_query_kernel, rate),
        BACKWARD_QUERY,
        interpret,
        blocks=of_queries,
        wholes={"key": key, "value": value, "bias": bias, "keys": keys},
        outputs=(query,),
    )
    return of_query, of_key, of_value, None, None


_attend.defvjp(_attend_forward, _attend_backward)


def _call(kernel, sizes, interpret, blocks, wholes, outputs, by_key=False):
    """Runs a kernel for each row, head, and block of queries (of keys with `by_key`).

    Args:
        kernel: function of the size of the blocks it loops over, and of references to
            its block of `blocks`, to `wholes` of its row and head, and to its block of
            each output.
        sizes: see `FORWARD`.
        interpret: see `attend`.
        blocks, wholes: dicts of arrays `[B, L, N, D]`, `[B, N, L]`, `[B, L]` or `None`.
        outputs: arrays with the shapes and dtypes of the outputs.
        by_key: bool.
    """
    rows, length, num_heads, head_dim = outputs[0].shape
    of_queries, of_keys = (math.gcd(size, length) for size in sizes[:2])
    block, step = (of_keys, of_queries) if by_key else (of_queries, of_keys)

    def spec_of_block(x):
        if x.ndim == 4:
            return pl.BlockSpec((None, block, None, head_dim), lambda i, n, b: (b, i, n, 0))
        if x.ndim == 3:
            return pl.BlockSpec((None, None, block), lambda i, n, b: (b, n, i))
        return pl.BlockSpec((None, block), lambda i, n, b: (b, i))

    def spec_of_whole(x):
        if x.ndim == 4:
            return pl.BlockSpec((None, length, None, head_dim), lambda i, n, b: (b, 0, n, 0))
        if x.ndim == 3:
            return pl.BlockSpec((None, None, x.shape[2]), lambda i, n, b: (b, n, 0))
        return pl.BlockSpec((None, length), lambda i, n, b: (b, 0))

    return pl.pallas_call(
        functools.partial(kernel, step),
        grid=(length // block, num_heads, rows),
        in_specs=(jax.tree.map(spec_of_block, blocks), jax.tree.map(spec_of_whole, wholes)),
        out_specs=jax.tree.map(spec_of_block, outputs),
        out_shape=jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), outputs),
        compiler_params=triton.CompilerParams(num_warps=sizes[2], num_stages=sizes[3]),
        interpret=interpret,
    )(blocks, wholes)


def _forward_kernel(rate, size, blocks, wholes, outputs, log_sums):
    query = blocks["query"][...]
    queries = _positions(query)[:, None]

    def step(i, carry):
        weighted, total, largest = carry
        at = pl.ds(i * size, size)
        value = wholes["value"][at, :]
        scores = _product(query, wholes["key"][at, :]) * LOG2_E
        if wholes["bias"] is not None:
            scores += wholes["bias"][at][None]
        old, largest = largest, jnp.maximum(largest, scores.max(1))
        weights, shrink = jnp.exp2(scores - largest[:, None]), jnp.exp2(old - largest)
        total = total * shrink + weights.sum(1)  # The softmax comes before dropout.
        keeps = _keeps(wholes, rate, queries, _positions(value, i)[None])
        weights = jnp.where(keeps, weights, 0.0).astype(value.dtype)
        return weighted * shrink[:, None] + _dot(weights, value), total, largest

    zeros = jnp.zeros(query.shape[:1], jnp.float32)
    start = jnp.zeros(query.shape, jnp.float32), zeros, zeros - jnp.inf
    num_steps = wholes["key"].shape[0] // size
    weighted, total, largest = jax.lax.fori_loop(0, num_steps, step, start)
    outputs[...] = (weighted * (exact_scale(rate) / total)[:, None]).astype(outputs.dtype)
    log_sums[...] = largest + jnp.log(total) * LOG2_E


def _backward_query_kernel(rate, size, blocks, wholes, of_query):
    query, upstream = blocks["query"][...], blocks["upstream"][...]
    log_sums, means = blocks["log_sums"][...][:, None], blocks["means"][...][:, None]
    queries = _positions(query)[:, None]

    def step(i, total):
        at = pl.ds(i * size, size)
        key = wholes["key"][at, :]
        scores = _product(query, key) * LOG2_E - log_sums
        if wholes["bias"] is not None:
            scores += wholes["bias"][at][None]
        of_weights = _product(upstream, wholes["value"][at, :])
        keeps = _keeps(wholes, rate, queries, _positions(key, i)[None])
        of_scores = jnp.exp2(scores) * (jnp.where(keeps, of_weights, 0.0) - means)
        return total + _dot(of_scores.astype(key.dtype), key)

    num_steps, zeros = wholes["key"].shape[0] // size, jnp.zeros(query.shape, jnp.float32)
    total = jax.lax.fori_loop(0, num_steps, step, zeros)
    of_query[...] = (total * exact_scale(rate)).astype(of_query.dtype)


def _backward_key_kernel(rate, size, blocks, wholes, of_key, of_value):
    key, value = blocks["key"][...], blocks["value"][...]
    bias = 0.0 if blocks["bias"] is None else blocks["bias"][...][:, None]
    keys = _positions(key)[:, None]

    def step(i, carry):
        total_of_key, total_of_value = carry
        at = pl.ds(i * size, size)
        query, upstream = wholes["query"][at, :], wholes["upstream"][at, :]
        # All matrices are [keys, queries], so that no product needs a transpose of its first.
        scores = _product(key, query) * LOG2_E - wholes["log_sums"][at][None]
        if blocks["bias"] is not None:
            scores += bias
        weights = jnp.exp2(scores)
        keeps = _keeps(wholes, rate, _positions(query, i)[None], keys)
        dropped = jnp.where(keeps, weights, 0.0).astype(value.dtype)
        of_weights = jnp.where(keeps, _product(value, upstream), 0.0)
        of_scores = weights * (of_weights - wholes["means"][at][None])
        total_of_key += _dot(of_scores.astype(key.dtype), query)
        return total_of_key, total_of_value + _dot(dropped, upstream)

    num_steps, zeros = wholes["query"].shape[0] // size, jnp.zeros(key.shape, jnp.float32)
    totals = jax.lax.fori_loop(0, num_steps, step, (zeros, zeros))
    for total, output in zip(totals, (of_key, of_value)):
        output[...] = (total * exact_scale(rate)).astype(output.dtype)


def _positions(block, i=None):
    """Returns the positions of a block's tokens, uint32. By default it is the kernel's block."""
    size = block.shape[0]
    first = (pl.program_id(0) if i is None else i) * size
    return first.astype(jnp.uint32) + jnp.arange(size, dtype=jnp.uint32)


def _keeps(wholes, rate, queries, keys):
    """Returns which weights to keep. One of the positions is a column, the other a row."""
    length = np.uint32((wholes["key"] if "key" in wholes else wholes["query"]).shape[0])
    return hash_keeps(queries * length + keys, wholes["keys"][0], wholes["keys"][1], rate)


def _dot(a, b):
    """Returns `a @ b` in float32."""
    return jax.lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=jnp.float32)


def _product(a, b):
    """Returns `a @ b.T` in float32."""
    return jax.lax.dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
