"""LoRA (https://arxiv.org/abs/2106.09685): small trained matrices, added to frozen kernels."""

import io

import h5py
import keras
import numpy as np

from keras_spanbert import cache, files, keras_private
from keras_spanbert.checks import check_counts, check_in
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
    for changed in [model, getattr(model, "backbone", model)]:
        forget_functions(changed)


def forget_functions(model: keras.Model) -> None:
    """Removes the functions that TensorFlow traced. They would ignore new LoRA weights."""
    model.train_function = model.test_function = model.predict_function = None


def forget_old_functions(model: keras.Model) -> None:
    """Calls `forget_functions` if the model has other weights than in the last call."""
    # `enable_lora` and `merge_lora` of the backbone do not know the models that use it.
    weights = [id(weight) for weight in model.weights]
    if vars(model).get("function_weights", weights) != weights:
        forget_functions(model)
    object.__setattr__(model, "function_weights", weights)


class LoraBackbone:
    """Adds methods to a backbone that add LoRA weights, and save and load them.

    The files have keras-hub's format.
    """

    def enable_lora(self, rank: int, target_layer_names: list[str] | None = None) -> None:
        """Freezes all weights, and adds trainable LoRA matrices to some layers.

        For a task, call `task.backbone.enable_lora(rank)`: its heads stay trainable. Then
        `compile` it, if it has been trained before.

        Args:
            rank: int. Number of columns of the first matrix and rows of the second one.
            target_layer_names: list of strings. Names of the dense and embedding layers that get
                matrices: `"query"`, `"key"`, `"value"`, `"attention_output"`,
                `"feedforward_intermediate_dense"`, `"feedforward_output_dense"`,
                `"token_embedding"` and so on. Defaults to `None`: query and value, as in the paper.

        Raises:
            ValueError: if an argument is out of its range, a layer has LoRA weights already, or
                the backbone is quantized.

        Example:
        ```python
        classifier.backbone.enable_lora(rank=8)
        classifier.compile(keras_spanbert.AdamW(2e-4))
        classifier.fit(texts, labels)
        classifier.backbone.save_lora_weights("classifier.lora.h5")
        classifier.save_task_weights("classifier.weights.h5")  # The head.
        ```

        Reference:
            [Hu et al. 2021](https://arxiv.org/abs/2106.09685).
        """
        check_counts(rank=rank)
        names = target_layer_names
        names = self.default_lora_layer_names() if names is None else list(names)
        layers = [layer for layer in flatten_sublayers([self]) if layer is not self]
        found = {layer.name for layer in layers if hasattr(layer, "enable_lora")}
        unknown = [] if target_layer_names is None else sorted(set(names) - found)
        rule = f"among {', '.join(sorted(found))}"
        check_in("target_layer_names", unknown or names, names and not unknown, rule)
        if lora_layers(self):
            raise ValueError(
                "LoRA can be enabled once: call `merge_lora()` to start again. Received: "
                f"{self.name}, which has LoRA weights"
            )
        if any(layer.quantization_mode for layer in layers):
            raise ValueError(
                'LoRA needs a float model: load the preset with `dtype="float32"`. Received: '
                f"{self.name}, which is quantized"
            )
        super().enable_lora(rank, names)
        forget_functions(self)
        for layer in lora_layers(self):
            if getattr(layer, "bias", None) is not None:
                layer.bias.trainable = False  # `save_lora_weights` does not save it.

    def save_lora_weights(self, filepath: str) -> None:
        """Saves the LoRA matrices, the only weights of the backbone that `fit` has changed.

        The heads of a task are trained too. `task.save_task_weights(path)` saves them, and
        `task.load_task_weights(path)` loads them.

        Args:
            filepath: string. It must end in `.lora.h5`.

        Raises:
            ValueError: if the backbone has no LoRA weights, or `filepath` another ending.
        """
        if not str(filepath).endswith(".lora.h5"):
            raise ValueError(f"`filepath` must end in .lora.h5. Received: {filepath}")
        layers = _enabled(self)
        if not layers:
            raise ValueError(
                f"`enable_lora` must be called first. Received: {self.name}, without LoRA weights"
            )
        buffer = io.BytesIO()
        with h5py.File(buffer, "w") as file:
            file["lora/vars/rank"] = next(iter(layers.values())).lora_rank
            for index, layer in layers.items():
                for variable in keras_private.lora_variables(layer)[1:]:
                    array = keras.ops.convert_to_numpy(variable)
                    file[f"lora/{index}/vars/{variable.name}"] = array
        with files.atomic_write(filepath, "wb") as file:
            file.write(buffer.getvalue())

    def load_lora_weights(self, filepath: str) -> None:
        """Loads the matrices that `save_lora_weights` saved.

        The backbone must have the weights that LoRA training started from. It gets LoRA
        matrices in the same layers, if it has none yet.

        Args:
            filepath: string.

        Raises:
            ValueError: if the file has no LoRA weights, or they belong to another backbone or to
                other layers.
        """
        rank, arrays = _read(filepath)
        layers = dict(enumerate(keras_private.layers_with_weights(self)))
        names = {layers[i].name for i in arrays if hasattr(layers.get(i), "enable_lora")}
        if lora_layers(self):
            has_layers = arrays.keys() == _enabled(self).keys()
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
                f"Received: {filepath}, with weights of rank {rank} for {len(arrays)} layers, and "
                f"{self.name} with {len(_enabled(self))} LoRA layers"
            )
        if not lora_layers(self):
            self.enable_lora(rank, sorted(names))
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
        with h5py.File(cache.local_copy(path)) as file:
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
