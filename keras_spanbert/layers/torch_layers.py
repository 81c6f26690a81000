"""The layers of the encoder and the heads as plain functions of PyTorch tensors.

With 12 Keras layers, whose calls take about 0.1 ms each and launch more kernels, a GPU would wait
for the host. `torch.compile` can compile these functions, but takes minutes for Keras's layers.
"""

import functools
import types

import keras
import torch
from torch.nn import functional

from keras_spanbert.keras_private import current_values, plain_kernel
from keras_spanbert.layers.softmax import softmax_backward, softmax_forward
from keras_spanbert.wording import LOG

# B = batch, L = length, H = hidden size, N = heads, D = size of a head.

_ACTIVATIONS = {
    keras.activations.gelu: functional.gelu,
    keras.activations.relu: functional.relu,
    keras.activations.tanh: torch.tanh,
}


def are_plain(layers) -> bool:
    """Returns whether dense layers are neither quantized nor extended by LoRA."""
    return not any(layer.lora_enabled or layer.quantization_mode for layer in layers)


def torch_activation(activation):
    """Returns PyTorch's function for one of Keras's activations, or the activation itself."""
    return _ACTIVATIONS.get(activation, activation)


def values(layers, dtype) -> list[torch.Tensor]:
    """Returns kernels and biases, or gammas and betas, of layers in their order, in a dtype."""
    variables = []
    for layer in layers:
        if isinstance(layer, keras.layers.LayerNormalization):
            variables += layer.gamma, layer.beta
        else:
            variables += plain_kernel(layer), layer.bias
    return [x if x.dtype is dtype else x.to(dtype) for x in current_values(variables)]


def linear(x, kernel, bias):
    """Returns `x W + b` for `x` `[..., K]`, a kernel `[K, ...]` and a bias of the other axes."""
    return functional.linear(x, kernel.flatten(1).t(), bias.flatten())


def transformer_layer(
    x, padding_mask, weights, num_heads, activation, epsilon, dropout, attention_dropout, attend
):
    """Computes a `TransformerLayer` of `x` `[B, L, H]`.

    `weights` are 16 tensors: kernels and biases of query, key, value and attention output, gamma
    and beta, kernels and biases of both feedforward layers, gamma and beta. `attend` takes the
    arguments of `attend_fused`, with `attention_dropout` as the last. Rates are 0 outside training.
    """
    o_kernel, o_bias, gamma_1, beta_1, kernel_1, bias_1, kernel_2, bias_2, gamma_2, beta_2 = (
        weights[6:]
    )
    shape = x.shape[-1:]
    # One product for queries, keys and values.
    kernel, bias = torch.cat(weights[0:6:2], 1), torch.cat(weights[1:6:2])  # [H, 3 N, D], [3 N, D]
    projected = linear(x, kernel, bias).unflatten(-1, (3, num_heads, -1))
    query, key, value = projected.unbind(2)  # [B, L, N, D]
    attended = attend(query, key, value, padding_mask, attention_dropout)
    attended = linear(attended.flatten(2), o_kernel.flatten(0, 1), o_bias)
    attended = functional.dropout(attended, dropout, dropout > 0.0)
    x = functional.layer_norm(attended + x, shape, gamma_1, beta_1, epsilon)
    fed_forward = linear(activation(linear(x, kernel_1, bias_1)), kernel_2, bias_2)
    fed_forward = functional.dropout(fed_forward, dropout, dropout > 0.0)
    return functional.layer_norm(fed_forward + x, shape, gamma_2, beta_2, epsilon)


_failures = set()


@functools.cache
def _compiled(*kind):
    """Returns `transformer_layer`, compiled for one kind of layer."""
    # PyTorch limits how often it compiles the same code, and decides by the code which sizes may
    # vary. Each kind has its own code, so that only numbers of rows and lengths vary.
    name = f"transformer_layer_{_compiled.cache_info().currsize}"
    code = transformer_layer.__code__.replace(co_name=name)
    function = types.FunctionType(code, globals(), name)
    return torch.compile(function, fullgraph=True)


def compiled_layer(x, padding_mask, weights, *args):
    """Calls `transformer_layer` compiled, or uncompiled if PyTorch's compiler fails."""
    sizes = [x.shape[-1], weights[10].shape[-1]]
    kind = (x.dtype, x.device.type, *sizes, padding_mask is None, *args)
    if kind not in _failures:
        try:
            return _compiled(*kind)(x, padding_mask, weights, *args)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            # For example without a C++ compiler, or without Triton on a GPU.
            if not _failures:
                LOG.warning(
                    "PyTorch cannot compile the layers here, so steps are slower: %s: %s",
                    type(error).__name__,
                    str(error).strip().split("\n")[0],
                )
            _failures.add(kind)
    return transformer_layer(x, padding_mask, weights, *args)


def hidden_layer(x, dense, norm):
    """Computes a `Dense` layer with its activation, and a `LayerNormalization`."""
    kernel, bias, gamma, beta = values([dense, norm], x.dtype)
    x = torch_activation(dense.activation)(linear(x, kernel, bias))
    return functional.layer_norm(x, x.shape[-1:], gamma, beta, norm.epsilon)


def project(head, x):
    """Computes the logits `[..., V]` of a `TiedHead` for hidden vectors `[..., H]`."""
    if head.token_embedding is None:
        table, bias = current_values([head._output_kernel, head._output_bias])
        table = table.t()
    else:
        table, bias = current_values([head.token_embedding.embeddings, head._output_bias])
    return functional.linear(x, table.to(x.dtype), bias.to(x.dtype))


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
    outputs = functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout_rate
    )
    return outputs.transpose(1, 2)


class HalfSoftmax(torch.autograd.Function):
    """`softmax_forward` for 16-bit floats, with `softmax_backward` as its gradient."""

    @staticmethod
    def forward(ctx, scores, bias):
        weights = softmax_forward(scores, bias)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx, upstream):
        (weights,) = ctx.saved_tensors
        return softmax_backward(weights, upstream), None
