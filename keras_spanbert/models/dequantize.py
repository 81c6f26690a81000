"""Converts quantized models to float models, which can be trained."""

import math

import keras
from keras import ops

from keras_spanbert.layers.sublayers import flatten_sublayers


def dequantize(model: keras.Model, dtype: str | keras.DTypePolicy) -> keras.Model:
    """Returns a copy of a quantized backbone or task with float weights and a dtype policy.

    Its weights are the rounded values that the quantized layers use. Activations are
    no longer quantized.
    """
    config, backbone = model.get_config(), getattr(model, "backbone", model)
    copy = type(backbone).from_config({**backbone.get_config(), "dtype": dtype})
    if backbone is not model:
        copy = type(model)(**{**config, "backbone": copy, "preprocessor": model.preprocessor})
    values = {variable.path: variable for variable in model.weights}
    quantized = {
        layer.path: layer for layer in flatten_sublayers([model]) if layer.quantization_mode
    }
    for variable in copy.weights:
        layer, _, name = variable.path.rpartition("/")
        if layer in quantized and name in ["kernel", "embeddings"]:
            variable.assign(_float_weights(quantized[layer], variable.shape))
        else:
            variable.assign(values[variable.path])
    return copy


def _float_weights(layer, shape):
    """Computes a quantized layer's weights from its outputs for an identity matrix.

    This does not depend on how Keras packs and scales quantized weights.
    """
    if isinstance(layer, keras.layers.Embedding):
        return ops.convert_to_numpy(layer(ops.arange(shape[0])))
    num_axes = 1  # The axes of the kernel that are contracted with the inputs.
    if isinstance(layer, keras.layers.EinsumDense):
        inputs, kernel = layer.equation.partition("->")[0].split(",")
        num_axes = len(set(inputs) & set(kernel))
    layer.activation = keras.activations.linear
    size = math.prod(shape[:num_axes])
    identity = ops.reshape(ops.eye(size), (1, size, *shape[:num_axes]))
    outputs = layer(identity) - layer(ops.zeros_like(identity))  # Subtracts the bias.
    return ops.convert_to_numpy(ops.reshape(outputs, shape))
