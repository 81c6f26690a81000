"""Attention: one definition, computed by what is fastest where it runs."""

import functools
import math

import keras
from keras import ops

from keras_spanbert.layers.softmax import softmax_backward, softmax_forward, wide_dtype

# B = batch, L = length, N = heads, D = size of a head; T attends to S.


def attend(query, key, value, padding_mask=None, dropout=None, training=None):
    """Each token's mean of the values, weighted by the softmax of its scores.

    The scores are `query . key / sqrt(D)`, their softmax is over the tokens that
    are no padding, and dropout falls on its weights. A row of padding alone is
    the plain mean of its values. What is padding attends as others do.

    It is computed by

    - the kernel of splash attention on TPUs and of cuDNN on GPUs with JAX, where
      no weight is dropped and the kernel takes dtype and shape;
    - `torch.nn.functional.scaled_dot_product_attention` with PyTorch, on CPUs
      where no weight is dropped; on GPUs it drops by PyTorch's own generator, as
      Keras's `Dropout` does there;
    - else plain matrix products, with a softmax in float32 at least, of which
      the backward pass keeps nothing but the weights in the values' dtype.

    After `keras.config.disable_flash_attention()` it is always the last.

    Args:
        query, key, value: float `[B, L, N, D]`.
        padding_mask: int or bool `[B, L]`, 0 where no token may attend to.
            Defaults to `None`, all ones.
        dropout: layer with a `rate`, which drops weights. Defaults to `None`.
        training: bool. Whether to drop weights. Defaults to `None`, no.

    Returns:
        float `[B, L, N, D]`.

    Example:
    ```python
    from keras_spanbert.layers.attention import attend

    x = keras.random.normal((2, 5, 3, 4))
    outputs = attend(x, x, x, padding_mask=np.ones((2, 5)))  # [2, 5, 3, 4]
    ```

    Reference:
        [Vaswani et al. 2017](https://arxiv.org/abs/1706.03762), section 3.2.1.
    """
    scale = ops.cast(1.0 / math.sqrt(query.shape[-1]), query.dtype)
    if padding_mask is not None:
        padding_mask = ops.cast(padding_mask, "bool")
        # Kernels have answers of their own to rows without tokens, some of them NaN: here all
        # scores of such a row are 0.
        has_tokens = ops.any(padding_mask, axis=1, keepdims=True)  # [B, 1]
        padding_mask = ops.logical_or(padding_mask, ops.logical_not(has_tokens))
        scale = scale * ops.cast(has_tokens, query.dtype)[:, :, None, None]
    query = query * scale
    if dropout is not None and not (training and dropout.rate):
        dropout = None
    plain = functools.partial(_attend, dropout=dropout)
    backend = keras.backend.backend()
    if keras.config.is_flash_attention_enabled() is False:
        return plain(query, key, value, padding_mask)
    if backend == "jax" and dropout is None:
        from keras_spanbert.layers.jax_attention import attend_fused

        return attend_fused(query, key, value, padding_mask, plain)
    if backend == "torch" and (dropout is None or query.is_cuda):
        from keras_spanbert.layers.torch_attention import attend_fused

        return attend_fused(query, key, value, padding_mask, dropout.rate if dropout else 0.0)
    return plain(query, key, value, padding_mask)


def _attend(query, key, value, padding_mask, dropout=None):
    scores = ops.einsum("bsnd,btnd->bnts", key, query)
    bias = None
    if padding_mask is not None:
        # Added, not selected: it broadcasts, and its gradient costs nothing.
        bias = (1.0 - ops.cast(padding_mask, wide_dtype(scores))) * -1e9
        bias = bias[:, None, None, :]  # [B, 1, 1, S]
    weights = _softmax(scores, bias)  # [B, N, T, S]
    if dropout is not None:
        weights = dropout(weights, training=True)
    return ops.einsum("bnts,bsnd->btnd", weights, value)


def _softmax(scores, bias):
    """`softmax_forward` with the gradient of `softmax_backward`."""
    # Autodiff keeps the result as well: in float32 and more that is all.
    if keras.backend.standardize_dtype(scores.dtype) not in ("bfloat16", "float16"):
        return softmax_forward(scores, bias)
    if keras.backend.backend() == "torch":
        # Keras's custom gradient would keep the scores too, and break graphs.
        from keras_spanbert.layers.torch_attention import HalfSoftmax

        return HalfSoftmax.apply(scores, bias)

    @ops.custom_gradient
    def softmax(scores, *bias):
        weights = softmax_forward(scores, *bias)

        def gradient(upstream):
            return softmax_backward(weights, upstream), *(ops.zeros_like(b) for b in bias)

        return weights, gradient

    return softmax(scores) if bias is None else softmax(scores, bias)
