"""Losses that are means over targets. They use private parts of Keras's training.

These may change with any release: `tests/tasks/test_weights.py` fails when they do.
"""

import functools
from collections.abc import Callable

import keras
from keras import ops
from keras.src.backend.common.masking import get_keras_mask, set_keras_mask
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.losses.loss import unscale_loss_for_distribution
from keras.src.trainers.compile_utils import CompileLoss

from keras_spanbert.distribution import mean_over_replicas
from keras_spanbert.optional import jax


def can_keep(value) -> bool:
    """Whether a variable can keep a value of a step."""
    # A custom train step on JAX, as in Keras's guide, differentiates `compute_loss` outside of a
    # scope, so variables would keep tracers. It updates the metric of the loss itself.
    if keras.backend.backend() != "jax" or in_stateless_scope():
        return True
    return not isinstance(value, jax.core.Tracer)


class TargetMean(keras.metrics.Mean):
    """Mean of a loss over all targets, to which the loss adds each batch itself."""

    def update_state(self, values, sample_weight=None):
        """Does nothing: Keras would weigh batches by their rows, or on TensorFlow all equally."""

    def add(self, mean, count) -> None:
        """Adds a batch with `count` targets."""
        if can_keep(mean):
            super().update_state(mean, sample_weight=count)


class LossTracker(keras.metrics.Mean):
    """The loss of a model over an epoch: its losses over all targets, and all other terms by row.

    Other terms are those of regularizers, or of the user's own `compute_loss` or `train_step`.
    """

    def __init__(self, terms: Callable):
        super().__init__(name="loss")
        self.terms = terms  # Returns the factors and means of the losses.
        self.last = self.add_variable((), "zeros", name="last")  # The batch's loss of `losses`.
        self.single = TargetMean()  # If there is one loss. Keras keeps the means of several.
        # The data's mean number of targets per row, 0 until it is known.
        self.targets_per_row = keras.Variable(
            0.0, dtype="float32", trainable=False, aggregation="only_first_replica"
        )

    def update_state(self, values, sample_weight=None):
        super().update_state(ops.subtract(values, self.last), sample_weight)
        self.last.assign(0.0)

    def reset_state(self):
        super().reset_state()
        self.last.assign(0.0)
        self.single.reset_state()

    def result(self):
        return sum((factor * m.result() for factor, m in self.terms()), super().result())


class TargetLosses(CompileLoss):
    """The losses given to `compile`, with means over an epoch that do not depend on its batches.

    Keras weighs the loss of each batch by its number of rows, or on TensorFlow the losses by name
    not at all. Here it is weighed by its number of targets: those of the labels whose outputs have
    a Keras mask that is true, or all labels without one.
    """

    def __init__(self, loss, loss_weights, output_names):
        super().__init__(loss, loss_weights, output_names=output_names)
        self.divisor = None  # What to divide the sum of a batch by, instead of its targets.
        self.terms = []
        self.tracker = LossTracker(lambda: self.terms)

    def build(self, y_true, y_pred):
        super().build(y_true, y_pred)
        self._metrics[:] = [TargetMean(name=metric.name) for metric in self._metrics]
        means = self._metrics or [self.tracker.single]
        weights = [each.loss_weights for each in self._flat_losses]
        self.terms = [(1.0 if w is None else w, mean) for w, mean in zip(weights, means)]
        self._flat_losses = [
            each._replace(loss=functools.partial(self._compute, each.loss, mean))
            for each, mean in zip(self._flat_losses, means)
        ]

    def call(self, y_true, y_pred, sample_weight=None):
        loss = super().call(y_true, y_pred, sample_weight)
        if loss is not None and can_keep(loss):
            self.tracker.last.assign(unscale_loss_for_distribution(loss))
        return loss

    def _compute(self, loss, mean, y_true, y_pred, sample_weight):
        mask, ignored = get_keras_mask(y_pred), getattr(loss, "ignore_class", None)
        if sample_weight is not None:
            # On PyTorch, Keras multiplies them in place by what a mask requires of the loss, and
            # the metrics would get the product.
            sample_weight = ops.multiply(sample_weight, 1.0)
        value = loss(y_true, y_pred, sample_weight)
        if ignored is not None:
            is_label = ops.not_equal(y_true, ignored)
            mask = is_label if mask is None else ops.logical_and(mask, is_label)
        count = ops.size(y_true) if mask is None else ops.sum(ops.cast(mask, "int32"))
        count = ops.cast(count, "float32")
        mean.add(unscale_loss_for_distribution(value), count)
        divisor = mean_over_replicas(count) if self.divisor is None else self.divisor
        # Keras divided the sum by the targets of this replica alone.
        return value if divisor is count else value * count / ops.maximum(divisor, 1e-7)


class TargetLossModel:
    """Mixin of models whose losses are means over targets: see `TargetLosses`.

    A target is the label of a row, a token or a masked position, whatever its weight. Padding is
    none: rows for which the input `row_mask` is 0, and with `weights_mark_targets` all labels of
    weight 0.
    """

    # Whether a weight of 0 means that a label is padding.
    weights_mark_targets = False
    # Whether training divides a batch's sum by its rows and the data's mean number of targets per
    # row. Otherwise targets of batches with few of them have more weight than others.
    divides_by_rows = False

    def compile(self, *args, **kwargs):
        """Configures training: see `keras.Model.compile`."""
        super().compile(*args, **kwargs)
        if self._compile_loss is not None:
            given = self._compile_loss
            losses = TargetLosses(given._user_loss, given._user_loss_weights, given.output_names)
            # Keras would track them as attributes, and so list their metrics twice.
            object.__setattr__(self, "_compile_loss", losses)
            object.__setattr__(self, "_loss_tracker", losses.tracker)

    def build_loss(self, y_pred) -> None:
        """Builds the loss for a single output, which Keras would do by calling the model."""
        self._compile_loss.build(y_pred, y_pred)
        self._compile_loss.built = True

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """Returns the loss of a batch: see `keras.Model.compute_loss`."""
        self.mark_targets(x, y_pred, sample_weight, training)
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    def mark_targets(self, x, y_pred, sample_weight, training: bool) -> None:
        """Gives the outputs of a batch Keras masks that are true for targets."""
        losses = self._compile_loss
        if not isinstance(losses, TargetLosses):
            return
        losses.divisor = None
        row_mask = x.get("row_mask") if isinstance(x, dict) else None
        for name, output in y_pred.items() if isinstance(y_pred, dict) else [("", y_pred)]:
            weights = sample_weight.get(name) if isinstance(sample_weight, dict) else sample_weight
            mask = row_mask
            if self.weights_mark_targets and weights is not None:
                mask = ops.greater(weights, 0)
            if mask is None or isinstance(output, (list, tuple)):
                continue
            set_keras_mask(output, ops.cast(mask, "bool"))
            if training and self.divides_by_rows:
                rows = ops.shape(output)[0] if row_mask is None else ops.sum(row_mask)
                losses.divisor = self._divisor(ops.sum(ops.cast(mask, "float32")), rows)

    def _divisor(self, count, rows):
        """Returns by what to divide the sum of a batch: see `divides_by_rows`."""
        rows = mean_over_replicas(ops.cast(rows, "float32"))
        variable, rate = self._loss_tracker.targets_per_row, mean_over_replicas(count) / rows
        known = ops.convert_to_tensor(variable)
        # Without known data, the first batch determines it, so that it is the same for all targets.
        rate = ops.where(known > 0, known, rate)
        if can_keep(rate):
            variable.assign(rate)
        return rows * rate

    def count_targets(self, x=None, y=None, sample_weight=None) -> None:
        """Counts the targets per row: see `divides_by_rows`. Without data, forgets their number."""
        if self.divides_by_rows and isinstance(self._compile_loss, TargetLosses):
            rate = 0.0
            if sample_weight is not None:
                weights = ops.convert_to_numpy(sample_weight)
                rate = (weights > 0).sum() / len(weights)
            self._loss_tracker.targets_per_row.assign(rate)
