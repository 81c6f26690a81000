"""Attention with PyTorch's kernels, and a softmax with a custom gradient."""

import torch

from keras_spanbert.layers.softmax import softmax_backward, softmax_forward

# B = batch, L = length, N = heads, D = size of a head.


def attend_fused(query, key, value, padding_mask, dropout_rate=0.0):
    """Calls `scaled_dot_product_attention`.

    Args:
        query, key, value: float `[B, L, N, D]`.
        padding_mask: int or bool `[B, L]` or `None`.
        dropout_rate: float. Dropout rate of the attention weights. Defaults to `0.0`.

    Returns:
        float `[B, L, N, D]`.
    """
    bias = None
    if padding_mask is not None:
        # With a bool mask, kernels return NaN for rows without tokens. This number absorbs all
        # scores of such a row, so that they are equal.
        lowest = max(-1e9, torch.finfo(query.dtype).min)
        bias = (padding_mask == 0)[:, None, None, :].to(query.dtype) * lowest  # [B, 1, 1, L]
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))  # [B, N, L, D]
    outputs = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=bias, dropout_p=dropout_rate
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
