"""The private parts of Keras that this library needs, each with its reason.

They may change with any release: `tests/test_keras_private.py` fails when they do.
"""

import keras
import keras_hub
from keras_hub.src.utils.preset_utils import get_preset_loader


def accept_tensorflow_tensors(layer: keras.layers.Layer) -> None:
    """Makes a layer pass its arguments to `call` unconverted.

    `tf.data` passes TensorFlow's tensors on every backend, and a layer would convert
    them to the backend's. Keras has no suitable public way: keras-hub's
    `PreprocessingLayer` is private, and its `Preprocessor` is for layers with a
    tokenizer.
    """
    layer._convert_input_args = False
    layer._allow_non_tensor_positional_args = True


def set_initial_epoch(model: keras.Model, epoch: int | None) -> None:
    """Makes `fit` start with this epoch, when called from a callback's `on_train_begin`.

    Keras's `BackupAndRestore` does the same. The argument `initial_epoch` of `fit` comes
    too early: the epoch is known only after the model is built and restored.
    """
    model._initial_epoch = epoch


def build_training(model: keras.Model, batch) -> None:
    """Creates the variables of optimizer, losses and metrics for a given kind of batch.

    If the first step creates them, TensorFlow traces the step twice. On JAX and PyTorch
    `fit` creates them itself. The metrics must be built too, and their `build` is also
    private.

    Args:
        model: compiled `keras.Model`.
        batch: `(x, y, sample_weight)` of tensors, arrays or `tf.TensorSpec`s.
    """
    model._symbolic_build(data_batch=batch)


def variable_index(optimizer: keras.optimizers.Optimizer, variable) -> int:
    """Returns the index of a variable among those that an optimizer was built with.

    Subclasses override `update_step`, which gets a Keras or a TensorFlow variable,
    perhaps of one replica. Keras's own optimizers find their moments this way, and there
    is no public way.
    """
    return optimizer._get_variable_index(variable)


def moments(optimizer: keras.optimizers.Adam, variables: list) -> list[list]:
    """Returns first moments, second moments, and largest second moments of some variables.

    The list of all variables of Keras's Adam is public, but not which moments belong to
    which variable. The third list is empty unless the largest second moments are kept.
    """
    kept = [optimizer._momentums, optimizer._velocities]
    kept.append(optimizer._velocity_hats if optimizer.amsgrad else None)
    places = [variable_index(optimizer, variable) for variable in variables]
    return [[] if each is None else [each[i] for i in places] for each in kept]


class FusedUpdateMixin:
    """Mixin for an optimizer that clips and updates on PyTorch in `fused_update`.

    List it before the optimizer's class in the bases. Computing norm, factor and update
    for each variable takes a thousand kernels of a few microseconds on a GPU. Keras clips and
    updates in two private methods, and its public `update_step` gets one variable at a
    time. If a subclass overrides `update_step`, that is called instead.
    """

    def _clip_gradients(self, grads):
        if self._uses_fused_update() and (self.global_clipnorm or 0.0) > 0.0:
            return grads  # Clipping is part of the update.
        return super()._clip_gradients(grads)

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        if keras.backend.backend() != "torch":
            super()._backend_update_step(grads, trainable_variables, learning_rate)
        elif self._uses_fused_update():
            self.fused_update(grads, trainable_variables, learning_rate)
        else:  # As Keras does for subclasses.
            for grad, variable in zip(grads, trainable_variables):
                self.update_step(grad, variable, learning_rate)

    def _uses_fused_update(self):
        classes = type(self).__mro__
        first = next(c for c in classes if {"fused_update", "update_step"} & set(vars(c)))
        return keras.backend.backend() == "torch" and "fused_update" in vars(first)


def operations_before(tensors: list[keras.KerasTensor]) -> list:
    """Returns the operations, including layers, that compute tensors of a functional model.

    A cloned layer uses it to find the other layers of its model. Keras has a public way
    from a model to its layers, but none from a tensor: its `get_source_inputs` returns
    only the inputs, and takes time that grows exponentially with the number of residual
    connections.
    """
    operations, visited, to_visit = [], set(), list(tensors)
    while to_visit:
        tensor = to_visit.pop()
        if not hasattr(tensor, "_keras_history"):
            continue
        operation, node_index, _ = tensor._keras_history
        if (id(operation), node_index) not in visited:
            visited.add((id(operation), node_index))
            operations.append(operation)
            to_visit.extend(operation._inbound_nodes[node_index].input_tensors)
    return operations


def load_preset(cls: type, preset: str, load_weights: bool = True, **kwargs):
    """Loads what keras-hub's `cls.from_preset` loads, for backbones of any class.

    The public method refuses a preset whose backbone is a subclass of the class's
    `backbone_cls`, because it compares the two classes for equality.

    Args:
        cls: class of a task, preprocessor or tokenizer.
        preset: string. A keras-hub preset.
        load_weights: bool. Used for tasks only. Defaults to `True`.
        **kwargs: arguments of the class that replace the preset's.
    """
    loader = get_preset_loader(preset)
    if issubclass(cls, keras_hub.models.Task):
        return loader.load_task(cls, load_weights, "num_classes" not in kwargs, **kwargs)
    if issubclass(cls, keras_hub.models.Preprocessor):
        return loader.load_preprocessor(cls, **kwargs)
    return loader.load_tokenizer(cls, **kwargs)


def lora_variables(layer: keras.layers.Layer) -> list[keras.Variable]:
    """Returns a layer's kernel or embeddings, and its two LoRA weights, `None` if it has none.

    The public attribute of the kernel has the LoRA weights added.
    """
    kind = "embeddings" if isinstance(layer, keras.layers.Embedding) else "kernel"
    names = f"lora_{kind}_a", f"lora_{kind}_b"
    return [getattr(layer, f"_{kind}"), *(getattr(layer, name, None) for name in names)]


def layers_with_weights(backbone: keras_hub.models.Backbone) -> list[keras.layers.Layer]:
    """Returns the layers whose indices keras-hub uses in files of LoRA weights."""
    return [layer for layer in backbone._flatten_layers(include_self=False) if layer.weights]


def remove_lora(layer: keras.layers.Layer, layers: list[keras.layers.Layer]) -> None:
    """Removes the LoRA weights of a layer. Keras can only add them.

    Args:
        layer: a layer with LoRA weights.
        layers: list of layers. All layers of the model, which on PyTorch may list the weights.
    """
    for variable in lora_variables(layer)[1:]:
        # Functions that TensorFlow has traced may still add it.
        variable.assign(keras.ops.zeros(variable.shape))
        layer._untrack_variable(variable)
        for other in layers if keras.backend.backend() == "torch" else ():
            other._post_untrack_variable(variable)
        delattr(layer, variable.name)
    layer.lora_enabled, layer.lora_rank, layer.lora_alpha = False, None, None
