"""Attention with PyTorch's kernels, and a softmax with a custom gradient."""

import keras
import torch

from keras_spanbert.layers.softmax import softmax_backward, softmax_forward

# B = batch, L = length, N = heads, D = size of a head.


def is_fused(x, dropout_rate: float) -> bool:
    """Returns whether `attend_fused` computes attention for inputs like `x`."""
    # On CPUs PyTorch has no fused kernel with dropout.
    is_enabled = keras.config.is_flash_attention_enabled() is not False
    return is_enabled and (not dropout_rate or x.is_cuda)


def attend_fused(query, key, value, padding_mask, dropout_rate=0.0):
    """Calls `scaled_dot_product_attention`, float `[B, L, N, D]` to the same shape.

    `padding_mask` is an int or bool tensor `[B, L]` or `None`.
    """
    mask = None
    if padding_mask is not None:
        # Kernels return NaN for rows without tokens. Here all scores of such a row are 0. With a
        # large negative bias instead of the mask, the gradients of these rows would be wrong.
        mask = padding_mask != 0
        has_tokens = mask.any(1, keepdim=True)  # [B, 1]
        query = query * has_tokens[:, :, None, None]
        mask = (mask | ~has_tokens)[:, None, None, :]  # [B, 1, 1, L]
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))  # [B, N, L, D]
    outputs = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout_rate
    )
    return outputs.transpose(1, 2)


class HalfSoftmax(torch.autograd.Function):
    """`softmax_forward` for 16-bit floats, with `softmax_backward` as its gradient."""

    # `keras.ops.custom_gradient` would store the scores too.

    @staticmethod
    def forward(ctx, scores, bias):
        weights = softmax_forward(scores, bias)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx, upstream):
        (weights,) = ctx.saved_tensors
        return softmax_backward(weights, upstream), None
