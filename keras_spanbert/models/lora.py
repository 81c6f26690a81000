"""LoRA: training of small matrices whose product is added to a frozen kernel.

Keras's dense and embedding layers compute with these matrices, and keras-hub's backbones add them.

Reference:
    [Hu et al. 2021](https://arxiv.org/abs/2106.09685).
"""

import io

import h5py
import keras
import numpy as np

from keras_spanbert import files, keras_private, stores
from keras_spanbert.layers.sublayers import flatten_sublayers


def lora_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns the layers of a model that have LoRA weights."""
    layers = flatten_sublayers([model])
    return [layer for layer in layers if getattr(layer, "lora_enabled", False)]


def merged_values(layer: keras.layers.Layer) -> np.ndarray:
    """Returns a layer's kernel or embeddings with its LoRA weights added."""
    table, *factors = keras_private.lora_variables(layer)
    a, b = map(keras.ops.convert_to_numpy, factors)
    values = keras.ops.convert_to_numpy(keras.ops.cast(table, "float32"))
    return values + layer.lora_alpha / layer.lora_rank * np.matmul(a, b)


def merge(model: keras.Model) -> None:
    """Adds the LoRA weights of a model to its kernels, removes them, and unfreezes the model."""
    found = lora_layers(model)
    for layer in found:
        keras_private.lora_variables(layer)[0].assign(merged_values(layer))
        keras_private.remove_lora(layer, flatten_sublayers([model]))
    for layer in flatten_sublayers([getattr(model, "backbone", model)] if found else []):
        layer.trainable = True
    # On TensorFlow, the assignment above does nothing if the value is true already.
    for weight in [weight for layer in found for weight in layer.weights]:
        weight.trainable = True


def enable_as(model: keras.Model, backbone: keras.Model) -> None:
    """Adds LoRA weights to a backbone if another one has them, in the same layers."""
    layers = lora_layers(model)
    if layers:
        backbone.enable_lora(layers[0].lora_rank, sorted({layer.name for layer in layers}))


# === Files, in keras-hub's format ===
def save(backbone: keras.Model, path: str) -> None:
    """Writes the LoRA weights of a backbone: see `SpanBertBackbone.save_lora_weights`."""
    if not str(path).endswith(".lora.h5"):
        raise ValueError(f"`filepath` must end in .lora.h5. Received: {path}")
    layers = _enabled(backbone)
    if not layers:
        raise ValueError(
            f"`enable_lora` must be called first. Received: {backbone.name}, without LoRA weights"
        )
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file["lora/vars/rank"] = next(iter(layers.values())).lora_rank
        for index, layer in layers.items():
            for variable in keras_private.lora_variables(layer)[1:]:
                array = keras.ops.convert_to_numpy(variable)
                file[f"lora/{index}/vars/{variable.name}"] = array
    with files.atomic_write(path, "wb") as file:
        file.write(buffer.getvalue())


def load(backbone: keras.Model, path: str) -> None:
    """Loads LoRA weights into a backbone: see `SpanBertBackbone.load_lora_weights`."""
    rank, arrays = _read(path)
    layers = dict(enumerate(keras_private.layers_with_weights(backbone)))
    names = {layers[i].name for i in arrays if hasattr(layers.get(i), "enable_lora")}
    if lora_layers(backbone):
        has_layers = arrays.keys() == _enabled(backbone).keys()
    else:
        has_layers = {i for i, layer in layers.items() if layer.name in names} == arrays.keys()
    for index in arrays if has_layers else ():
        table = keras_private.lora_variables(layers[index])[0]
        shapes = [(*table.shape[:-1], rank), (rank, table.shape[-1])]
        has_layers &= [array.shape for _, array in sorted(arrays[index].items())] == shapes
        has_layers &= getattr(layers[index], "lora_rank", None) in (None, rank)
    if not has_layers:
        raise ValueError(
            "LoRA weights must belong to the same layers and sizes as those of the backbone. "
            f"Received: {path}, with weights of rank {rank} for {len(arrays)} layers, and "
            f"{backbone.name} with {len(_enabled(backbone))} LoRA layers"
        )
    if not lora_layers(backbone):
        backbone.enable_lora(rank, sorted(names))
    for index, of_layer in arrays.items():
        for variable in keras_private.lora_variables(layers[index])[1:]:
            variable.assign(of_layer[variable.name])


def _enabled(backbone):
    """Returns the layers with LoRA weights by their index, by which the file names them."""
    layers = enumerate(keras_private.layers_with_weights(backbone))
    return {i: layer for i, layer in layers if getattr(layer, "lora_enabled", False)}


def _read(path):
    """Returns the rank, and a dict of arrays by the name of the weight, for each layer."""
    try:
        with h5py.File(stores.local_copy(path)) as file:
            groups = dict(file["lora"])
            rank = int(groups.pop("vars")["rank"][()])
            return rank, {
                int(index): {name: array[()] for name, array in group["vars"].items()}
                for index, group in groups.items()
            }
    except FileNotFoundError:
        raise
    except (OSError, KeyError, ValueError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(f"{path} must have LoRA weights. Received: {reason}") from None
