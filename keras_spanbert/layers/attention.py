"""Self attention, computed by the fastest kernel of each platform."""

import functools
import math

import keras
from keras import ops

from keras_spanbert.layers.dropout import Dropout
from keras_spanbert.layers.softmax import softmax_backward, softmax_forward, wide_dtype
from keras_spanbert.layers.sublayers import config_of

# B = batch, L = length, H = hidden size, N = heads, D = size of a head; T attends to S.


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SelfAttention(keras.layers.Layer):
    """BERT's multi-head self attention: see `attend`.

    `num_heads` must divide H. `dropout` is the rate of the attention weights. `padding_mask`, int
    or bool `[B, L]`, is 0 for tokens that are not attended to.
    """

    def __init__(
        self, num_heads: int, dropout: float = 0.0, kernel_initializer="glorot_uniform", **kwargs
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.dropout = dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, inputs_shape):
        hidden_dim = inputs_shape[-1]
        head_dim = hidden_dim // self.num_heads
        heads_shape = (self.num_heads, head_dim)

        def dense(equation, shape, name, inputs_shape=inputs_shape):
            layer = keras.layers.EinsumDense(
                equation,
                output_shape=(None, *shape),
                bias_axes=equation[-len(shape) :],
                # Cloned, because a shared instance would draw the same values for all.
                kernel_initializer=self.kernel_initializer.clone(),
                dtype=self.dtype_policy,
                name=name,
            )
            layer.build(inputs_shape)
            return layer

        # Keras uses the names of these attributes in weight files. The letters in the equations
        # follow the order of the axes, because contracted axes may be sorted by letter.
        self.query_dense = dense("abc,cde->abde", heads_shape, "query")
        self.key_dense = dense("abc,cde->abde", heads_shape, "key")
        self.value_dense = dense("abc,cde->abde", heads_shape, "value")
        # With model parallelism, the heads (axis 1) are split over the devices.
        self.dropout_layer = Dropout(self.dropout, model_axis=1, dtype=self.dtype_policy)
        of_heads = (*inputs_shape[:-1], *heads_shape)
        self.output_dense = dense("abcd,cde->abe", (hidden_dim,), "attention_output", of_heads)
        # Built here because a first call would record its input and make PyTorch recompile.
        batch_size, length, _ = inputs_shape
        self.dropout_layer.build((batch_size, self.num_heads, length, length))
        self.built = True

    def call(self, inputs, padding_mask=None, training=None):
        layers = self.query_dense, self.key_dense, self.value_dense
        if training and keras.backend.backend() == "jax":
            from keras_spanbert.layers.jax_gradients import project

            layers = [functools.partial(project, layer) for layer in layers]
        query, key, value = (layer(inputs) for layer in layers)  # [B, L, N, D]
        attended = attend(query, key, value, padding_mask, self.dropout_layer, training)
        return self.output_dense(attended)  # [B, L, H]

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        return {**super().get_config(), **config_of(self, SelfAttention)}


def attend(query, key, value, padding_mask=None, dropout=None, training=None):
    """Computes scaled dot-product attention, float `[B, L, N, D]` to the same shape.

    The softmax of `query . key / sqrt(D)` is over the tokens that are not padding: `padding_mask`,
    int or bool `[B, L]`, is 0 there. A row that is all padding gets the plain mean of its values.
    Padding tokens attend like other tokens. In training, `dropout`, a layer with a `rate`, is
    applied to the weights. The implementation depends on the platform:

    - JAX: splash attention on TPUs and cuDNN's kernel on GPUs, if no dropout is applied and the
      kernel supports the dtype and the shape. With dropout in 16 bits on NVIDIA GPUs, a kernel of
      this library, if `L` is a multiple of 128 and `D` is 32 or 64.
    - PyTorch: `torch.nn.functional.scaled_dot_product_attention`, on CPUs only without dropout.
      Dropout on GPUs uses PyTorch's own random generator, as Keras's `Dropout` does there.
    - Otherwise, and after `keras.config.disable_flash_attention()`: plain products and a softmax in
      float32 or wider. For the backward pass, only the weights, in the values' dtype, and the mask
      of dropout are kept. With dropout in 16 bits on accelerators, JAX also keeps the outputs.
    """
    if dropout is not None and not (training and dropout.rate):
        dropout = None
    backend = keras.backend.backend()
    if padding_mask is not None:
        padding_mask = ops.cast(padding_mask, "bool")
    if backend == "torch" and (dropout is None or isinstance(dropout, Dropout)):
        from keras_spanbert.layers.torch_layers import attend_fused, is_fused

        rate = dropout.rate if dropout else 0.0
        if is_fused(query, rate):
            return attend_fused(query, key, value, padding_mask, rate)
    scale = ops.cast(1.0 / math.sqrt(query.shape[-1]), query.dtype)
    if padding_mask is not None:
        # Kernels differ on rows without tokens, and some return NaN. Here all scores of such a
        # row are 0.
        has_tokens = ops.any(padding_mask, axis=1, keepdims=True)  # [B, 1]
        padding_mask = ops.logical_or(padding_mask, ops.logical_not(has_tokens))
        scale = scale * ops.cast(has_tokens, query.dtype)[:, :, None, None]
    query = query * scale
    plain = functools.partial(_attend, dropout=dropout)
    is_enabled = keras.config.is_flash_attention_enabled() is not False
    if is_enabled and backend == "jax":
        from keras_spanbert.layers import jax_attention

        if dropout is None:
            return jax_attention.attend_fused(query, key, value, padding_mask, plain)
        if jax_attention.fuses_dropout(query, dropout):
            return jax_attention.attend_with_dropout(
                query, key, value, padding_mask, dropout, plain
            )
    return plain(query, key, value, padding_mask)


def _attend(query, key, value, padding_mask, seed=None, dropout=None):
    bias = None
    if padding_mask is not None:
        # Cheaper than `where`: the sum broadcasts, and its gradient needs no computation.
        bias = (1.0 - ops.cast(padding_mask, wide_dtype(query))) * -1e9
        bias = bias[:, None, None, :]  # [B, 1, 1, S]
    if isinstance(dropout, Dropout) and dropout.draws_in_jax:
        from keras_spanbert.layers import jax_gradients

        if jax_gradients.are_cheaper(query.dtype):
            return jax_gradients.attend_with_dropout(query, key, value, bias, dropout, seed)
    weights = _softmax(ops.einsum("bsnd,btnd->bnts", key, query), bias)  # [B, N, T, S]
    if dropout is not None:
        weights = dropout(weights, training=True)
    return ops.einsum("bnts,bsnd->btnd", weights, value)


def _softmax(scores, bias):
    """Returns `softmax_forward`, with `softmax_backward` as its gradient."""
    # In float32 and wider dtypes, autodiff already keeps only the result of the softmax.
    if keras.backend.standardize_dtype(scores.dtype) not in ("bfloat16", "float16"):
        return softmax_forward(scores, bias)
    if keras.backend.backend() == "torch":
        # Keras's custom gradient would keep the scores too, and cause graph breaks.
        from keras_spanbert.layers.torch_layers import HalfSoftmax

        return HalfSoftmax.apply(scores, bias)

    @ops.custom_gradient
    def softmax(scores, *bias):
        weights = softmax_forward(scores, *bias)

        def gradient(upstream):
            return softmax_backward(weights, upstream), *(ops.zeros_like(b) for b in bias)

        return weights, gradient

    return softmax(scores) if bias is None else softmax(scores, bias)
