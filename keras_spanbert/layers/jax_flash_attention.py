"""Attention with dropout of its weights on NVIDIA GPUs, as Triton kernels."""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from keras_spanbert.layers.dropout import exact_scale, hash_keep
from keras_spanbert.wording import LOG

try:
    from jax.experimental.pallas import triton
except ImportError:  # It is deprecated in JAX 0.11.
    triton = None

# B = batch, L = length, N = heads, D = size of a head.
LOG2_E = math.log2(math.e)
# Each kernel: rows of a block of queries, rows of a block of keys, warps, stages of the pipeline.
FORWARD = (128, 64, 4, 3)
BACKWARD_KEY = (64, 128, 8, 2)
BACKWARD_QUERY = (128, 64, 8, 2)


def supports(shape) -> bool:
    """Returns whether `attend` supports queries of a shape `[B, L, N, D]`."""
    # These sizes ran on an H100, where [3, 192, 2, 16] did not return.
    fits = shape[1] % 128 == 0 and shape[3] in (32, 64)
    if fits and triton is None and jax.default_backend() == "gpu":
        _warn_once()
    return fits and triton is not None


@functools.cache
def _warn_once():
    LOG.warning(
        "`jax.experimental.pallas.triton` cannot be imported from JAX %s: attention with dropout "
        "is slower and takes more memory. JAX 0.10 has it",
        jax.__version__,
    )


def attend(query, key, value, padding_mask, numbers, rate: float):
    """Computes attention with dropout of its weights, float `[B, L, N, D]` to the same shape.

    The inputs are 16-bit, of a shape that `supports` accepts, and the query is already scaled.
    `padding_mask` is bool `[B, L]`, with a true value in each row, or `None`. `numbers` are
    `hash_numbers` `[B, N, 3 L]` of the mask.
    """
    # Weights, scores and the dropout mask exist only in blocks, and the backward pass computes them
    # again (https://arxiv.org/abs/2307.08691). Blocks without tokens must not give NaN. With a much
    # larger number, rounding errors of `_exp` would overflow.
    bias = None if padding_mask is None else jnp.where(padding_mask, 0.0, -1e6)
    return _attend(rate, query, key, value, bias, numbers)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(rate, query, key, value, bias, numbers):
    return _attend_forward(rate, query, key, value, bias, numbers)[0]


def _attend_forward(rate, query, key, value, bias, numbers):
    rows, length, num_heads, _ = query.shape
    sums = jax.ShapeDtypeStruct((rows, num_heads, length), jnp.float32)
    outputs, rest, shifts = _call(
        functools.partial(_forward_kernel, rate),
        FORWARD,
        blocks={"query": query},
        wholes={"key": key, "value": value, "bias": bias, "numbers": numbers},
        outputs=(query, query, sums),
    )
    return outputs, (query, key, value, bias, numbers, outputs, rest, shifts)


def _attend_backward(rate, kept, upstream):
    query, key, value, bias, numbers, outputs, rest, shifts = kept
    wide, rest, upstream_wide = (x.astype(jnp.float32) for x in (outputs, rest, upstream))
    # The sum over keys of weights times their gradients.
    means = (upstream_wide * (wide + rest)).sum(-1).swapaxes(1, 2)
    means = means / exact_scale(rate)  # The kernels scale at the end.
    of_queries = {"query": query, "upstream": upstream, "shifts": shifts, "means": means}
    of_key, of_value = _call(
        functools.partial(_backward_key_kernel, rate),
        BACKWARD_KEY,
        blocks={"key": key, "value": value, "bias": bias},
        wholes={**of_queries, "numbers": numbers},
        outputs=(key, value),
        by_key=True,
    )
    (of_query,) = _call(
        functools.partial(_backward_query_kernel, rate),
        BACKWARD_QUERY,
        blocks=of_queries,
        wholes={"key": key, "value": value, "bias": bias, "numbers": numbers},
        outputs=(query,),
    )
    return of_query, of_key, of_value, None, None


_attend.defvjp(_attend_forward, _attend_backward)


def _call(kernel, sizes, blocks, wholes, outputs, by_key=False):
    """Runs a kernel for each row, head, and block of queries (of keys with `by_key`).

    The kernel takes the size of the blocks it loops over, and references to its block of `blocks`,
    to `wholes` of its row and head, and to its block of each of `outputs`. Arrays are
    `[B, L, N, D]`, `[B, N, L]`, `[B, L]` or `None`.
    """
    rows, length, num_heads, head_dim = outputs[0].shape
    of_queries, of_keys = (math.gcd(size, length) for size in sizes[:2])
    block, step = (of_keys, of_queries) if by_key else (of_queries, of_keys)

    def spec(is_block, x):
        size, at = (block, lambda b: b) if is_block else (length, lambda b: 0)
        if x.ndim == 4:
            return pl.BlockSpec((None, size, None, head_dim), lambda i, n, b: (b, at(i), n, 0))
        if x.ndim == 3:
            size = size if is_block else x.shape[2]
            return pl.BlockSpec((None, None, size), lambda i, n, b: (b, n, at(i)))
        return pl.BlockSpec((None, size), lambda i, n, b: (b, at(i)))

    of_block, of_whole = (functools.partial(spec, is_block) for is_block in (True, False))
    return pl.pallas_call(
        functools.partial(kernel, step),
        grid=(length // block, num_heads, rows),
        in_specs=(jax.tree.map(of_block, blocks), jax.tree.map(of_whole, wholes)),
        out_specs=jax.tree.map(of_block, outputs),
        out_shape=jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), outputs),
        compiler_params=triton.CompilerParams(num_warps=sizes[2], num_stages=sizes[3]),
    )(blocks, wholes)


def _forward_kernel(rate, size, blocks, wholes, outputs, rest, shifts):
    query, numbers = blocks["query"][...], wholes["numbers"]
    multipliers, offsets = _row_numbers(numbers, _slice(pl.program_id(0), query.shape[0]))

    def step(i, carry):
        weighted, total, largest = carry
        at = _slice(i, size)
        value = wholes["value"][at, :]
        scores = _product(query, wholes["key"][at, :])
        if wholes["bias"] is not None:
            scores += wholes["bias"][at][None]
        old, largest = largest, jnp.maximum(largest, scores.max(1))
        shift = -LOG2_E * largest
        weights, shrink = _exp(scores, shift[:, None]), _exp(old, shift)
        total = total * shrink + weights.sum(1)  # The softmax comes before dropout.
        columns = _column_numbers(numbers, at)
        keep = hash_keep(multipliers[:, None], offsets[:, None], columns[None], rate)
        weights = jnp.where(keep, weights, _zero(total)[:, None]).astype(value.dtype)
        return weighted * shrink[:, None] + _dot(weights, value), total, largest

    zeros = jnp.zeros(query.shape[:1], jnp.float32)
    start = jnp.zeros(query.shape, jnp.float32), zeros, zeros - jnp.inf
    num_steps = wholes["key"].shape[0] // size
    weighted, total, largest = jax.lax.fori_loop(0, num_steps, step, start)
    wide = weighted * (exact_scale(rate) / total)[:, None]
    outputs[...] = wide.astype(outputs.dtype)
    # Rounded means would add the same error to all scores of a row.
    rest[...] = (wide - wide.astype(outputs.dtype).astype(jnp.float32)).astype(rest.dtype)
    shifts[...] = -LOG2_E * (largest + jnp.log(total))


def _backward_query_kernel(rate, size, blocks, wholes, of_query):
    query, upstream = blocks["query"][...], blocks["upstream"][...]
    shifts, means = blocks["shifts"][...][:, None], blocks["means"][...][:, None]
    numbers = wholes["numbers"]
    multipliers, offsets = _row_numbers(numbers, _slice(pl.program_id(0), query.shape[0]))

    def step(i, total):
        at = _slice(i, size)
        key = wholes["key"][at, :]
        scores = _product(query, key)
        if wholes["bias"] is not None:
            scores += wholes["bias"][at][None]
        columns = _column_numbers(numbers, at)
        keep = hash_keep(multipliers[:, None], offsets[:, None], columns[None], rate)
        of_weights = jnp.where(keep, _product(upstream, wholes["value"][at, :]), 0.0)
        of_scores = _exp(scores, shifts) * (of_weights - means)
        return total + _dot(of_scores.astype(key.dtype), key)

    num_steps, zeros = wholes["key"].shape[0] // size, jnp.zeros(query.shape, jnp.float32)
    total = jax.lax.fori_loop(0, num_steps, step, zeros)
    of_query[...] = (total * exact_scale(rate)).astype(of_query.dtype)


def _backward_key_kernel(rate, size, blocks, wholes, of_key, of_value):
    key, value, numbers = blocks["key"][...], blocks["value"][...], wholes["numbers"]
    bias = None if blocks["bias"] is None else blocks["bias"][...][:, None]
    columns = _column_numbers(numbers, _slice(pl.program_id(0), key.shape[0]))[:, None]
    zero = _zero(wholes["means"][0])

    def step(i, carry):
        total_of_key, total_of_value = carry
        at = _slice(i, size)
        query, upstream = wholes["query"][at, :], wholes["upstream"][at, :]
        # All matrices are [keys, queries], so that the products below need no transpose.
        scores = _product(key, query)
        if bias is not None:
            scores += bias
        weights = _exp(scores, wholes["shifts"][at][None])
        multipliers, offsets = _row_numbers(numbers, at)
        keep = hash_keep(multipliers[None], offsets[None], columns, rate)
        dropped = jnp.where(keep, weights, zero).astype(value.dtype)
        of_weights = jnp.where(keep, _product(value, upstream), 0.0)
        of_scores = weights * (of_weights - wholes["means"][at][None])
        total_of_key += _dot(of_scores.astype(key.dtype), query)
        return total_of_key, total_of_value + _dot(dropped, upstream)

    num_steps, zeros = wholes["query"].shape[0] // size, jnp.zeros(key.shape, jnp.float32)
    totals = jax.lax.fori_loop(0, num_steps, step, (zeros, zeros))
    for total, output in zip(totals, (of_key, of_value)):
        output[...] = (total * exact_scale(rate)).astype(output.dtype)


def _slice(i, size):
    return pl.ds(i * size, size)


def _row_numbers(numbers, queries):
    """Returns the multipliers and offsets of some queries, see `hash_numbers`."""
    length = numbers.shape[0] // 3
    return numbers[queries], numbers[pl.ds(length + queries.start, queries.size)]


def _column_numbers(numbers, keys):
    length = numbers.shape[0] // 3
    return numbers[pl.ds(2 * length + keys.start, keys.size)]


def _exp(x, offset):
    """Returns `exp(x) * 2**offset`, with half the operations of `jnp.exp2(x * LOG2_E + offset)`."""
    # One multiplication and addition, and no special case for results below 2^-126.
    (result,) = triton.elementwise_inline_asm(
        "fma.rn.ftz.f32 $0, $1, 0f3FB8AA3B, $2; ex2.approx.ftz.f32 $0, $0;",  # log2(e)
        args=[x, jnp.broadcast_to(offset, x.shape)],
        constraints="=f,f,f",
        pack=1,
        result_shape_dtypes=[jax.ShapeDtypeStruct(x.shape, jnp.float32)],
    )
    return result


def _zero(x):
    # With a constant, the compiler would round to 16 bits before the selection, and select in twice
    # as many operations.
    return 0.0 * x


def _dot(a, b):
    """Returns `a @ b` in float32."""
    return jax.lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=jnp.float32)


def _product(a, b):
    """Returns `a @ b.T` in float32."""
    return jax.lax.dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
