"""Attention with kernels: splash attention on TPUs, cuDNN and our own on GPUs."""

import functools

import jax
import jax.numpy as jnp
import keras
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_kernel,
    splash_attention_mask,
)
from jax.sharding import PartitionSpec

from keras_spanbert.layers import jax_flash_attention, jax_gradients
from keras_spanbert.layers.dropout import Dropout, hash_numbers, shard_axes

# B = batch, L = length, N = heads, D = size of a head.


def attend_fused(query, key, value, padding_mask, plain):
    """Computes attention with the platform's kernel if there is one, otherwise with `plain`.

    Query, key, value and result are float `[B, L, N, D]`. The query is already scaled.
    `padding_mask` is bool `[B, L]`, with a true value in each row, or `None`.
    """
    kernels = {}
    if _is_static(query):
        length, head_dim = query.shape[1], query.shape[3]
        dtypes = (jnp.float32, jnp.bfloat16)
        if length % 128 == 0 and head_dim in range(8, 257, 8) and query.dtype in dtypes:
            kernels["tpu"] = splash
        if _cudnn_supports(query.shape, query.dtype):
            kernels["cuda"] = cudnn
    if not kernels:
        return plain(query, key, value, padding_mask)
    return jax.lax.platform_dependent(query, key, value, padding_mask, default=plain, **kernels)


def fuses_dropout(query, dropout) -> bool:
    """Returns whether `attend_with_dropout` has a kernel for a query `[B, L, N, D]`."""
    return (
        isinstance(dropout, Dropout)
        and dropout.draws_in_jax
        and jax_gradients.are_cheaper(query.dtype)  # Otherwise `plain` must not get a seed.
        and _is_static(query)
        and jax_flash_attention.supports(query.shape)
    )


def attend_with_dropout(query, key, value, padding_mask, dropout, plain):
    """Computes attention with dropout of its weights, with our kernel on NVIDIA GPUs.

    The arrays are those of `attend_fused`. `plain` also takes a seed, and draws the same mask.
    """
    flash = functools.partial(flash_attention, rate=dropout.rate)
    seed = dropout.seed_generator.next()
    return jax.lax.platform_dependent(
        query, key, value, padding_mask, seed, default=plain, cuda=flash
    )


def flash_attention(query, key, value, padding_mask, seed, rate):
    """Computes our own kernel for attention with dropout, as `splash`."""
    rows, length, num_heads, _ = query.shape
    # Computed for all devices, so that the mask does not depend on their number.
    numbers = hash_numbers(seed, (rows, num_heads), length, length)
    compute = functools.partial(jax_flash_attention.attend, rate=rate)
    return _on_each_device(compute, query, key, value, padding_mask, numbers)


def _is_static(query):
    return all(isinstance(size, int) for size in query.shape)  # Exports have symbolic sizes.


def splash(query, key, value, padding_mask):
    """Computes splash attention, on each device for its own rows and heads."""
    return _on_each_device(_splash, query, key, value, padding_mask)


def _on_each_device(compute, query, key, value, padding_mask, *numbers):
    """Calls a function on each device, with its rows and heads. Numbers are `[B, N, ...]`."""
    mesh, axes = shard_axes(query.shape, model_axis=2)
    if mesh is None:
        return compute(query, key, value, padding_mask, *numbers)
    # The partitioner cannot shard a kernel.
    tokens, heads = PartitionSpec(axes[0]), PartitionSpec(*axes[:3])
    specs = heads, heads, heads, None if padding_mask is None else tokens
    return jax.shard_map(
        compute,
        mesh=mesh,
        in_specs=(*specs, *(PartitionSpec(axes[0], axes[2]) for _ in numbers)),
        out_specs=heads,
        check_vma=False,
    )(query, key, value, padding_mask, *numbers)


def _splash(query, key, value, padding_mask):
    rows, length, num_heads, _ = query.shape
    block = next(size for size in (512, 384, 256, 128) if length % size == 0)
    mask = splash_attention_mask.FullMask((length, length))  # Attention is not causal.
    kernel = splash_attention_kernel.make_splash_mha(
        mask=splash_attention_mask.MultiHeadMask([mask] * num_heads),
        block_sizes=splash_attention_kernel.BlockSizes(
            block_q=block,
            block_kv=block,
            block_q_dkv=block,
            block_kv_dkv=block,
            use_fused_bwd_kernel=True,
        ),
        head_shards=1,
        q_seq_shards=1,
    )
    segments = None
    if padding_mask is not None:
        # All queries are in segment 1 and attend to the keys of that segment, the real tokens.
        segments = splash_attention_kernel.SegmentIds(
            q=jnp.ones((rows, length), jnp.int32), kv=padding_mask.astype(jnp.int32)
        )
    query, key, value = (x.swapaxes(1, 2) for x in (query, key, value))  # [B, N, L, D]
    return jax.vmap(kernel)(query, key, value, segments).swapaxes(1, 2)


def cudnn(query, key, value, padding_mask):
    """Computes attention with cuDNN, which represents padding as the length of a row."""
    # cuDNN can also apply dropout, but XLA does not call it in a way that is safe for training: the
    # seed is a constant of the program, and the masks depend on how often each kernel ran before,
    # so that they differ after a restart and with CUDA graphs. Some kernels also round the rate.
    lengths = None
    if padding_mask is not None:
        # Attention does not depend on the order of the keys, so padding can move to the end.
        order = jnp.argsort(~padding_mask, axis=1, stable=True)
        # cuDNN may leave the gradients of padding uninitialized. Here they become 0.
        tokens = padding_mask[:, :, None, None]
        key, value = (_permute(jnp.where(tokens, x, 0), order) for x in (key, value))
        lengths = padding_mask.sum(axis=1, dtype=jnp.int32)
    return jax.nn.dot_product_attention(
        query, key, value, scale=1.0, key_value_seq_lengths=lengths, implementation="cudnn"
    )


@jax.custom_vjp
def _permute(x, order):
    return jnp.take_along_axis(x, order[:, :, None, None], axis=1)


def _permute_backward(order, upstream):
    # JAX's own gradient would be a scatter-add, as it cannot know that the indices are unique.
    return _permute(upstream, jnp.argsort(order, axis=1)), None


_permute.defvjp(lambda x, order: (_permute(x, order), order), _permute_backward)


@functools.cache
def _cudnn_supports(shape, dtype):
    if not keras.distribution.list_devices()[0].startswith("gpu"):
        return False
    array = jax.ShapeDtypeStruct(shape, dtype)

    def total(x):
        return cudnn(x, x, x, None).sum()

    try:
        jax.eval_shape(jax.grad(total), array)
    except (RuntimeError, ValueError):  # NotImplementedError is a RuntimeError.
        return False
    return True
