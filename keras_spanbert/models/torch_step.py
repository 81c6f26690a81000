"""A training step on PyTorch without work per layer and variable."""

import functools

import keras

from keras_spanbert.distribution import num_torch_processes, sync_metrics
from keras_spanbert.keras_private import TrainerParts, call_directly, current_values


class TorchStep:
    """The training step of a compiled model: Keras's `train_step`, with less work per step.

    The optimizer, loss and metrics must be built. On one GPU, steps that are compiled (`compiles`)
    and do the same each time become CUDA graphs.
    """

    def __init__(self, model: keras.Model, compiles: bool):
        import torch

        # Keras's step finds the variables three times and the metrics once, by visiting all layers.
        self._parts = TrainerParts(model)
        self._variables = model.trainable_variables
        self._parameters = current_values(self._variables)
        self._all_parameters = current_values(model.weights)
        self._graphs = None
        device = self._parameters[0].device
        is_fixed = self._parts.are_fixed and num_torch_processes() == 1 and device.type == "cuda"
        if compiles and is_fixed and device.index == torch.cuda.current_device():
            from keras_spanbert.models.cuda_graphs import StepGraphs

            self._graphs = StepGraphs()
            self._addresses = self._find_addresses()

    @classmethod
    def of(
        cls, model: keras.Model, previous: "TorchStep | None", compiles: bool
    ) -> "TorchStep | None":
        """Returns the step of a model, or `None` if Keras's step is needed.

        `previous`, the step of the last batch, is returned if it still fits.
        """
        if previous is not None and previous._fits(model):
            return previous
        # Keras's step is needed before the loss is built, if nothing is trained, and for layers of
        # other libraries or the user's own, whose methods and hooks only Keras calls.
        return cls(model, compiles) if TrainerParts.are_enough(model) else None

    def _fits(self, model):
        """Returns whether the model has the same optimizer and trains the same variables."""
        if self._graphs is not None and self._addresses != self._find_addresses():
            return False  # Weights were moved, for example by `model.cpu()`.
        num_trainable = sum(parameter.requires_grad for parameter in self._all_parameters)
        are_same = num_trainable == len(self._parameters) and all(
            parameter.requires_grad for parameter in self._parameters
        )
        return are_same and self._parts.optimizer is model.optimizer

    def _find_addresses(self):
        return [parameter.data_ptr() for parameter in self._all_parameters]

    def __call__(self, model: keras.Model, data) -> dict:
        """Trains the model on a batch, and returns its metrics."""
        if self._graphs is None:
            return self._compute(model, data)
        # The graphs must not keep the function: only the garbage collector would free a circle.
        return self._graphs(functools.partial(self._compute, model), data)

    def _compute(self, model, data):
        import torch

        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        y_pred = call_directly(model, x, training=True)
        for parameter in self._parameters:
            parameter.grad = None
        loss = self._parts.compute_loss(model, x, y, y_pred, sample_weight)
        self._parts.optimizer.scale_loss(loss).backward()
        with torch.no_grad():
            gradients = [parameter.grad for parameter in self._parameters]
            self._parts.optimizer.apply(gradients, self._variables)
            self._parts.update_metrics(model, y, y_pred, sample_weight)
            with sync_metrics(self._parts.metrics):
                return self._parts.results()
