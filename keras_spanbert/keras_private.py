"""What of Keras's private parts cannot be avoided, each with its reason.

They may change with any release: `tests/test_keras_private.py` fails when they do.
"""

import keras


def take_tensors_of_tensorflow(layer: keras.layers.Layer) -> None:
    """Has a layer hand its arguments to `call` as they are.

    `tf.data` hands in TensorFlow's tensors whatever the backend, which a layer
    would turn into the backend's. Keras has a public way for whole layers of its
    own, keras-hub's `PreprocessingLayer` is private, and its `Preprocessor` is
    for what has a tokenizer.
    """
    layer._convert_input_args = False
    layer._allow_non_tensor_positional_args = True


def set_initial_epoch(model: keras.Model, epoch: int | None) -> None:
    """Has `fit` begin with this epoch, from a callback's `on_train_begin`.

    Keras's `BackupAndRestore` does it so. The argument `initial_epoch` of `fit`
    comes too early: what is restored is known only once the model is built.
    """
    model._initial_epoch = epoch


def build_training(model: keras.Model, batch) -> None:
    """Makes the variables of optimizer, losses and metrics, for what a batch is like.

    Where the first step makes them, TensorFlow traces the step twice. JAX's and
    PyTorch's `fit` does the same by itself; without the metrics, whose `build` is
    private too, nothing is won.

    Args:
        model: compiled `keras.Model`.
        batch: `(x, y, sample_weight)` of tensors, arrays or `tf.TensorSpec`s.
    """
    model._symbolic_build(data_batch=batch)


def variable_index(optimizer: keras.optimizers.Optimizer, variable) -> int:
    """The place of a variable among those that an optimizer was built with.

    `update_step`, which is there for subclasses to write, gets Keras's variable or
    TensorFlow's, one of a replica's perhaps: Keras's own optimizers find their
    moments so, and there is no public way.
    """
    return optimizer._get_variable_index(variable)


def moments(optimizer: keras.optimizers.Adam, variables: list) -> list[list]:
    """What Keras's Adam keeps of each of some variables: first moments, second ones, and others.

    The list of all variables of an optimizer is public, and which of them are
    whose moments is not. The third list, of the largest second moments, is empty
    but where they are kept.
    """
    kept = [optimizer._momentums, optimizer._velocities]
    kept.append(optimizer._velocity_hats if optimizer.amsgrad else None)
    places = [variable_index(optimizer, variable) for variable in variables]
    return [[] if each is None else [each[i] for i in places] for each in kept]


class UpdatesTogether:
    """Has an optimizer clip by the global norm and update on PyTorch by `update_together`.

    To be named before the optimizer's class. On a GPU a step of each variable's
    own for the norm, the factor and the update is a thousand kernels of some
    microseconds. Keras clips and updates in two calls that have no public names,
    and its public `update_step` gets one variable at a time. A subclass with an
    `update_step` of its own is updated by that.
    """

    def _clip_gradients(self, grads):
        if self._updates_together() and (self.global_clipnorm or 0.0) > 0.0:
            return grads  # It is part of the update.
        return super()._clip_gradients(grads)

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        if keras.backend.backend() != "torch":
            super()._backend_update_step(grads, trainable_variables, learning_rate)
        elif self._updates_together():
            self.update_together(grads, trainable_variables, learning_rate)
        else:  # Keras would do so for a subclass of its own, too.
            for grad, variable in zip(grads, trainable_variables):
                self.update_step(grad, variable, learning_rate)

    def _updates_together(self):
        classes = type(self).__mro__
        first = next(c for c in classes if {"update_together", "update_step"} & set(vars(c)))
        return keras.backend.backend() == "torch" and "update_together" in vars(first)


def operations_before(tensors: list[keras.KerasTensor]) -> list:
    """The operations, layers among them, that compute tensors of a functional model.

    A layer that is cloned finds the other layers of its model so. Keras has a
    public way from a model to its layers, and none from a tensor: its
    `get_source_inputs` gives the inputs alone, and takes time that grows
    exponentially with the number of residual connections.
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
