"""Equal layers one after another, of which a compiler sees one."""

import keras
from keras import ops

from keras_spanbert.layers.parts import with_parts


def can_scan(layers: list[keras.layers.Layer], compute_dtype: str) -> bool:
    """Whether layers compute the same, all in this dtype, of variables of the same kinds.

    Layers of which one alone is quantized, or has LoRA, are no longer alike.
    """
    kinds = {tuple((tuple(v.shape), str(v.dtype)) for v in layer.variables) for layer in layers}
    dtypes = {part.compute_dtype for part in with_parts(layers)}
    return len(kinds) == 1 and dtypes == {compute_dtype}


def scan_layers(layers: list, inputs, padding_mask=None, training: bool = False):
    """Computes `TransformerLayer`s one after another, as `keras.ops.scan` over their variables.

    The same as calling each, but compiled once: their variables are stacked,
    and the steps of a loop take one slice each.

    Args:
        layers: list of `TransformerLayer`, alike as `can_scan` says.
        inputs: float `[B, L, H]`.
        padding_mask: int or bool `[B, L]` or `None`. Defaults to `None`.
        training: bool. Whether to apply dropout. Defaults to `False`.

    Returns:
        float `[B, L, H]`.
    """
    first = layers[0]

    def body(x, values):
        outputs, *seeds = first.stateless(x, values, padding_mask, training)
        return outputs, seeds

    if training and first.rematerialize:
        body = keras.remat(body)
    stacked = [ops.stack(values) for values in zip(*(layer.state() for layer in layers))]
    outputs, seeds = ops.scan(body, inputs, stacked)
    for i, layer in enumerate(layers):
        for seed, values in zip(layer.seeds(), seeds):
            seed.assign(values[i])
    return outputs
