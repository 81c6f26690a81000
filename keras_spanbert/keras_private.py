"""The private parts of Keras that this library needs, each with its reason.

They may change with any release: `tests/test_keras_private.py` fails when they do.
"""

import functools
import itertools

import keras
import keras_hub
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.backend.common.variables import AutocastScope, get_autocast_scope
from keras.src.models import functional
from keras.src.saving.serialization_lib import in_safe_mode
from keras.src.utils.backend_utils import in_grain_data_pipeline
from keras.src.utils.io_utils import ask_to_proceed_with_overwrite
from keras_hub.src.utils.preset_utils import get_file

from keras_spanbert.keras_losses import TargetLossModel


def accept_tensorflow_tensors(layer: keras.layers.Layer) -> None:
    """Makes a layer pass its arguments to `call` unconverted.

    `tf.data` passes TensorFlow's tensors on every backend, and a layer would convert them.
    keras-hub's `PreprocessingLayer` is private, and its `Preprocessor` needs a tokenizer.
    """
    layer._convert_input_args = False
    layer._allow_non_tensor_positional_args = True


def in_grain() -> bool:
    """Returns whether the code runs in a pipeline of Grain, where layers return NumPy arrays."""
    # Grain sends them between processes. Keras has no public way to find out.
    return in_grain_data_pipeline()


def is_loading_safely() -> bool:
    """Returns whether Keras loads a model that may not name files outside of itself."""
    # keras-hub's tokenizer asks the same before it reads a vocabulary.
    return bool(in_safe_mode())


def set_dtype_policy(layer: keras.layers.Layer, policy: keras.DTypePolicy) -> None:
    """Replaces a layer's dtype policy.

    The public setter adds `policy` to the layer's policy map if it has one, and quantizes the
    layer a second time.
    """
    layer._dtype_policy = policy


def ask_to_overwrite(path: str) -> bool:
    """Asks the user in the terminal whether a file may be overwritten, as Keras does."""
    return ask_to_proceed_with_overwrite(path)


def set_initial_epoch(model: keras.Model, epoch: int | None) -> None:
    """Makes `fit` start with this epoch, when called from a callback's `on_train_begin`.

    Keras's `BackupAndRestore` does the same. The argument `initial_epoch` of `fit` comes
    too early: the epoch is known only after the model is built and restored.
    """
    model._initial_epoch = epoch


def build_training(model: keras.Model, batch) -> None:
    """Creates the variables of optimizer, losses and metrics for a given kind of batch.

    If the first step creates them, TensorFlow traces the step twice. On JAX and PyTorch `fit`
    creates them itself. The metrics must be built too, and their `build` is also private.
    """
    model._symbolic_build(data_batch=batch)


def order_layers(model: keras.Model) -> None:
    """Lists the layers of a functional model in the order of its graph, as those of a clone are.

    On TensorFlow and JAX attributes come first, so that weights would have another order than on
    PyTorch, and checkpoints could not be resumed there.
    """
    places = {id(layer): place for place, layer in enumerate(model.layers)}
    model._layers.sort(key=lambda layer: places.get(id(layer), len(places)))


def forget_metrics(model: keras.Model) -> None:
    """Removes the metrics of the last `compile`. Keras keeps them if the next call names none."""
    model._compile_metrics = None


def variable_index(optimizer: keras.optimizers.Optimizer, variable) -> int:
    """Returns the index of a variable among those that an optimizer was built with.

    `update_step` gets a Keras or a TensorFlow variable, perhaps of one replica. Keras's own
    optimizers find their moments this way.
    """
    return optimizer._get_variable_index(variable)


def built_variables(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable]:
    """Returns the variables that an optimizer was built with. Only their moments are public."""
    return optimizer._trainable_variables


def schedule_of(optimizer: keras.optimizers.Optimizer):
    """Returns the learning rate's schedule or variable. Only its current value is public."""
    return getattr(optimizer, "_learning_rate", None)


def current_rate(optimizer: keras.optimizers.Optimizer, rate):
    """Returns the value of a number or schedule, as Keras computes `learning_rate`.

    The public `iterations` does not count the batches whose gradients are accumulated.
    """
    return rate(optimizer._iterations) if callable(rate) else rate


def moments(optimizer: keras.optimizers.Adam, variables: list) -> list[list]:
    """Returns first moments, second moments, and largest second moments of some variables, if kept.

    The list of all variables of Keras's Adam is public, but not which moments belong to
    which variable.
    """
    kept = [optimizer._momentums, optimizer._velocities]
    kept.append(optimizer._velocity_hats if optimizer.amsgrad else None)
    places = [variable_index(optimizer, variable) for variable in variables]
    return [[] if each is None else [each[i] for i in places] for each in kept]


def current_values(variables: list) -> list:
    """Returns the PyTorch tensors of variables, not converted to a layer's dtype.

    The public `value` asks for a dtype scope, a stateless scope and a device each time. A model
    of 12 layers has 200 variables, and the optimizer two more for each of them.
    """
    if in_stateless_scope():
        return [variable.value for variable in variables]
    return [variable._value for variable in variables]


def plain_kernel(layer: keras.layers.Layer) -> keras.Variable:
    """Returns the kernel of a dense layer that is neither quantized nor extended by LoRA.

    The public `kernel` looks for both each time, which takes 5 us.
    """
    return layer._kernel


def call_layers(model: keras.Model, inputs, training: bool | None):
    """Returns what a functional model's `call` returns, with less work per layer.

    A layer's public `__call__` converts and checks arguments, builds, resolves `training`
    and masks, and enters scopes, which takes about 0.1 ms. Here the layers' `call` is used.
    Layers of unknown classes, and layers that PyTorch's hooks observe, are called as usual.
    """
    if _fit(inputs, model.input):
        values = {id(symbol): inputs[name] for name, symbol in model.input.items()}
    else:
        values = dict(zip(map(id, model.inputs), model._standardize_inputs(inputs)))
    for depth in sorted(model._nodes_by_depth, reverse=True):
        for node in model._nodes_by_depth[depth]:
            if node.is_input:
                continue
            args = [_fill_in(x, values) for x in node.arguments.args]
            kwargs = {name: _fill_in(x, values) for name, x in node.arguments.kwargs.items()}
            kwargs.pop("training", None)
            outputs = _choose_call(node.operation)(*args, training=training, **kwargs)
            found = [outputs] if len(node.outputs) == 1 else keras.tree.flatten(outputs)
            values.update((id(symbol), value) for symbol, value in zip(node.outputs, found))
    return _fill_in(functional.unpack_singleton(model._outputs_struct), values)


def _fit(inputs, symbols):
    """Returns whether inputs are tensors in a dict that need not be converted."""
    return (
        isinstance(inputs, dict)
        and isinstance(symbols, dict)
        and all(
            hasattr(x, "untyped_storage")
            and len(x.shape) == len(symbols[name].shape)
            and keras.backend.standardize_dtype(x.dtype) == symbols[name].dtype
            for name, x in inputs.items()
        )
    )


def _fill_in(symbols, values):
    if isinstance(symbols, keras.KerasTensor):
        return values[id(symbols)]
    if isinstance(symbols, (list, tuple)):
        return [_fill_in(x, values) for x in symbols]
    if isinstance(symbols, dict):
        return {name: _fill_in(x, values) for name, x in symbols.items()}
    return symbols


def _choose_call(layer):
    cls = type(layer)
    if cls not in _DIRECT and not cls.__module__.startswith("keras_spanbert."):
        return functools.partial(_call_as_usual, layer)
    has_hooks = layer._forward_hooks or layer._forward_pre_hooks
    has_more = layer.activity_regularizer is not None or getattr(layer, "mask_zero", False)
    if not layer.built or has_hooks or has_more or layer.quantization_mode is not None:
        return functools.partial(_call_as_usual, layer)
    return functools.partial(call_directly, layer)


def _call_as_usual(layer, *args, training, **kwargs):
    return functional.operation_fn(layer, training=training)(*args, **kwargs)


_DIRECT = {  # Classes whose `call` is enough.
    *(keras.layers.Dense, keras.layers.Dropout, keras.layers.Embedding),
    *(keras.layers.LayerNormalization, keras.layers.ReversibleEmbedding),
    keras_hub.layers.PositionEmbedding,
}


def call_directly(layer: keras.layers.Layer, *args, training: bool | None, **kwargs):
    """Calls a layer's `call` on tensors, in the layer's dtype."""
    if layer._call_has_training_arg:
        kwargs["training"] = training
    dtype = layer.compute_dtype if layer.autocast else None
    if dtype is not None:
        args = [_as_float(x, dtype) for x in args]
    compute = _PLAIN.get(type(layer), _call)
    scope = get_autocast_scope()
    # Entering a scope that is not needed would make PyTorch's compiler compile twice.
    if dtype in ([None, layer.variable_dtype] if scope is None else [scope.dtype]):
        return compute(layer, *args, **kwargs)
    with AutocastScope(dtype):
        return compute(layer, *args, **kwargs)


def _call(layer, *args, **kwargs):
    return layer.call(*args, **kwargs)


def _embed(layer, ids, **kwargs):
    """Calls an `Embedding`. Keras's `call` converts and checks what is a tensor already."""
    if layer.lora_enabled or not hasattr(ids, "untyped_storage") or ids.is_floating_point():
        return layer.call(ids, **kwargs)
    import torch

    (table,) = current_values([layer._embeddings])
    ids = torch.where(ids < 0, ids + table.shape[0], ids)  # As in Keras.
    outputs = torch.nn.functional.embedding(ids, table)
    is_cast = layer.compute_dtype != layer.variable_dtype
    return keras.ops.cast(outputs, layer.compute_dtype) if is_cast else outputs


def _normalize(layer, x):
    """Calls a `LayerNormalization` with PyTorch's kernel, in float32 or a wider dtype."""
    is_last = layer.axis in (-1, [-1], x.ndim - 1, [x.ndim - 1])
    if not (is_last and layer.center and layer.scale) or layer.rms_scaling:
        return layer.call(x)
    import torch

    dtype = torch.promote_types(x.dtype, torch.float32)
    gamma, beta = (value.to(dtype) for value in current_values([layer.gamma, layer.beta]))
    y = torch.nn.functional.layer_norm(x.to(dtype), x.shape[-1:], gamma, beta, layer.epsilon)
    return y.to(x.dtype)


_PLAIN = {
    keras.layers.Embedding: _embed,
    keras.layers.ReversibleEmbedding: _embed,
    keras.layers.LayerNormalization: _normalize,
}


def _as_float(x, dtype):
    if isinstance(x, (list, dict)):
        return keras.tree.map_structure(lambda each: _as_float(each, dtype), x)
    if not hasattr(x, "is_floating_point"):  # An array, which the model converts.
        return x
    return keras.ops.cast(x, dtype) if x.is_floating_point() else x


class TrainerParts:
    """Loss and metrics of a compiled and built model, looked up once instead of in each step.

    Keras's public `losses` and `metrics` of a model visit all layers each time.
    """

    def __init__(self, model: keras.Model):
        self.optimizer = model.optimizer
        self.metrics = model.metrics
        is_plain = type(model).compute_loss is TargetLossModel.compute_loss
        self._has_plain_loss = is_plain and not model.losses  # Those of regularizers.
        optimizer = model.optimizer
        is_scheduled = isinstance(
            schedule_of(optimizer),
            (keras.Variable, keras.optimizers.schedules.LearningRateSchedule),
        )
        # Whether each step does the same, without decisions on the host. Recomputed layers read
        # the state of the random generator, and coreference chooses spans.
        self.are_fixed = (
            is_plain
            and is_scheduled
            and type(optimizer).__module__.split(".")[0] in ("keras", "keras_spanbert")
            and not isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
            and not optimizer.gradient_accumulation_steps
            and not optimizer.use_ema
            and not any(getattr(x, "rematerialize", False) for x in model._flatten_layers())
        )

    @staticmethod
    def are_enough(model: keras.Model) -> bool:
        """Returns whether these parts and the layers' `call` make up a training step.

        Optimizer, loss and metrics must be built, and there must be weights to train. Layers of
        other libraries may use masks, scopes or losses that only their `__call__` knows.
        """
        parts = [model.optimizer, model._compile_loss, model._compile_metrics]
        layers = list(model._flatten_layers())
        libraries = {type(layer).__module__.split(".")[0] for layer in layers}
        return (
            model.optimizer is not None
            and all(x is None or x.built for x in parts)
            and libraries <= {"keras", "keras_hub", "keras_spanbert"}
            and not any(layer.activity_regularizer for layer in layers)
            and not (model._forward_hooks or model._forward_pre_hooks)
            and bool(model.trainable_variables)
        )

    def compute_loss(self, model, x, y, y_pred, sample_weight):
        """Returns the loss of a batch, and updates its mean over the epoch."""
        if self._has_plain_loss:
            model.mark_targets(x, y_pred, sample_weight, training=True)
            loss = model._compile_loss(y, y_pred, sample_weight)
        else:
            loss = model._compute_loss(x, y, y_pred, sample_weight, training=True)
        num_rows = next(each for each in keras.tree.flatten(x) if each is not None).shape[0]
        model._loss_tracker.update_state(loss, sample_weight=num_rows)
        return loss

    def update_metrics(self, model, y, y_pred, sample_weight) -> None:
        """Updates the compiled metrics."""
        if model._compile_metrics is not None and model._compile_metrics.metrics:
            model._compile_metrics.update_state(y, y_pred, sample_weight)

    def results(self) -> dict:
        """Returns the results of all metrics."""
        results = {}
        for metric in self.metrics:
            result = metric.result()
            results.update(result if isinstance(result, dict) else {metric.name: result})
        return results


def backend_adamw() -> type[keras.optimizers.AdamW]:
    """Returns the class of `keras.optimizers.AdamW`'s instances on this backend.

    On PyTorch, it accumulates the gradients of all variables together, and a subclass of
    the public class would accumulate them one by one.
    """
    return type(keras.optimizers.AdamW.__new__(keras.optimizers.AdamW))


def total_norm(grads: list):
    """Returns the norm of PyTorch's tensors together, in float32.

    The public `torch.nn.utils.get_total_norm` takes twice as long on the host.
    """
    import torch

    grads = [x if x.dtype is torch.float32 else x.float() for x in grads]
    return torch.stack(torch._foreach_norm(grads)).norm()


def fused_adam(
    values: list,
    grads: list,
    momentums: list,
    velocities: list,
    velocity_hats: list,
    *,
    learning_rate,
    beta_1: float,
    beta_2: float,
    epsilon: float,
    scale=None,
) -> None:
    """Updates PyTorch's tensors in place with Adam, without bias correction of the moments.

    The public `torch.optim.adamw.adamw` does as much with a few thousand calls on the host.
    `velocity_hats` are empty without AMSGrad. `learning_rate`, a scalar float32 tensor, includes
    the bias correction. `scale` is a divisor of the gradients.
    """
    import torch

    # With this number of steps, the kernel's own bias correction has no effect.
    step = torch.full((), float("inf"), device=values[0].device)
    dtypes = {value.dtype for value in values}
    for dtype in dtypes:
        of_dtype = [value.dtype == dtype for value in values]
        kept = values, grads, momentums, velocities, velocity_hats
        if len(dtypes) > 1:
            kept = [list(itertools.compress(tensors, of_dtype)) for tensors in kept]
        weights, gradients, *averages = kept
        # The kernel expects memory without gaps.
        packed = [weight.contiguous() for weight in weights]
        gradients = [
            x if x.dtype is dtype and x.is_contiguous() else x.to(dtype).contiguous()
            for x in gradients
        ]
        with torch.no_grad():
            torch._fused_adamw_(
                packed,
                gradients,
                *averages,
                [step] * len(packed),
                lr=learning_rate,
                beta1=beta_1,
                beta2=beta_2,
                weight_decay=0.0,
                eps=epsilon,
                amsgrad=len(velocity_hats) > 0,
                maximize=False,
                grad_scale=scale,
            )
            for weight, updated in zip(weights, packed):
                if updated is not weight:
                    weight.copy_(updated)


class FusedUpdateMixin:
    """Mixin, before the optimizer's class, that clips and updates on PyTorch in `fused_update`.

    Keras clips and updates in two private methods, and its public `update_step` gets one variable
    at a time, which takes a thousand kernels of a few microseconds on a GPU. If a subclass
    overrides `update_step`, that is called instead.
    """

    def _clip_gradients(self, grads):
        if self._uses_fused_update() and (self.global_clipnorm or 0.0) > 0.0:
            return grads  # Clipping is part of the update.
        return super()._clip_gradients(grads)

    def _apply_weight_decay(self, variables):
        if keras.backend.backend() != "torch":
            return super()._apply_weight_decay(variables)
        # Keras's own method is slower, and fails if no variable decays.
        decayed = current_values([v for v in variables if self._use_weight_decay(v)])
        if self.weight_decay and decayed:
            import torch

            with torch.no_grad():
                torch._foreach_mul_(decayed, 1 - self.weight_decay * self.learning_rate)

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

    A cloned layer uses it to find the other layers of its model. Keras's `get_source_inputs`
    returns only the inputs, in time that grows exponentially with the residual connections.
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


def preset_file(preset: str, name: str) -> str | None:
    """Returns the local path of a file of a keras-hub preset, or `None` if the preset lacks it.

    keras-hub downloads presets, but has no public way to read one of their files.
    """
    try:
        return get_file(preset, name)
    except FileNotFoundError:
        return None


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
    """Removes the LoRA weights of a layer. On PyTorch, all `layers` of a model may list them."""
    for variable in lora_variables(layer)[1:]:
        # Functions that TensorFlow has traced may still add it.
        variable.assign(keras.ops.zeros(variable.shape))
        layer._untrack_variable(variable)
        for other in layers if keras.backend.backend() == "torch" else ():
            other._post_untrack_variable(variable)
        delattr(layer, variable.name)
    layer.lora_enabled, layer.lora_rank, layer.lora_alpha = False, None, None
