"""Attention by PyTorch's own kernels, and the softmax's gradient as PyTorch takes it."""

import torch

from keras_spanbert.layers.softmax import softmax_backward, softmax_forward

# B = batch, L = length, N = heads, D = size of a head.


def attend_fused(query, key, value, padding_mask, dropout_rate=0.0):
    """`scaled_dot_product_attention` of a query that is scaled already.

    Args:
        query, key, value: float `[B, L, N, D]`.
        padding_mask: bool `[B, L]` or `None`. No row is False alone.
        dropout_rate: float. Rate on the weights. Defaults to `0.0`.

    Returns:
        float `[B, L, N, D]`.
    """
    # A float mask, which Keras makes of it, rules more kernels out.
    mask = None if padding_mask is None else padding_mask[:, None, None, :]  # [B, 1, 1, L]
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))  # [B, N, L, D]
    outputs = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout_rate, scale=1.0
    )
    return outputs.transpose(1, 2)


class HalfSoftmax(torch.autograd.Function):
    """`softmax_forward` of 16 bits with the gradient of `softmax_backward`."""

    # A class of its own, as `keras.ops.custom_gradient` would keep the scores as well.

    @staticmethod
    def forward(ctx, scores, bias):
        weights = softmax_forward(scores, bias)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx, upstream):
        (weights,) = ctx.saved_tensors
        return softmax_backward(weights, upstream), None
