"""Losses: the sum of weight x loss over the number of targets."""

import functools

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_spanbert")
def sparse_crossentropy(y_true, y_pred, from_logits: bool = False, ignore_class=None, axis=-1):
    """Computes the cross-entropy (nats) of labels int `[...]`, in float32 or a wider dtype.

    The arguments are those of `keras.losses.sparse_categorical_crossentropy`.
    """
    if keras.backend.standardize_dtype(y_pred.dtype) in ("bfloat16", "float16"):
        y_pred = ops.cast(y_pred, "float32")
    crossentropy = functools.partial(
        keras.losses.sparse_categorical_crossentropy,
        from_logits=from_logits,
        ignore_class=ignore_class,
        axis=axis,
    )
    # Keras reports errors of other shapes, and attaches a mask for ignored classes.
    is_plain = ignore_class is None and axis == -1
    if not is_plain or tuple(y_true.shape) != tuple(y_pred.shape[:-1]):
        return crossentropy(y_true, y_pred)
    num_classes = ops.shape(y_pred)[-1]  # It may differ between batches.
    if from_logits and keras.backend.backend() == "jax":
        # To make `[B, M, V]` a matrix, a TPU would copy the logits if M is not a multiple of 8. To
        # gather labels by index, devices that share the vocabulary would exchange the logits.
        is_label = ops.arange(num_classes) == ops.expand_dims(y_true, -1)
        of_labels = ops.sum(ops.where(is_label, y_pred, 0.0), axis=-1)
        losses = ops.logsumexp(y_pred, axis=-1) - of_labels
        # Labels outside the classes contribute nothing, as in Keras.
        is_class = ops.logical_and(y_true >= 0, y_true < num_classes)
        return ops.where(is_class, losses, ops.zeros_like(losses))
    # With more axes, Keras on PyTorch would move the class axis, which takes 2.5 times as long.
    rows = ops.reshape(y_pred, (-1, num_classes))
    labels = ops.reshape(y_true, (-1,))
    if from_logits and keras.backend.backend() == "tensorflow":  # Its kernel is slower on CPUs.
        labels = ops.cast(labels, "int32")[:, None]
        of_labels = ops.take_along_axis(rows, labels, axis=-1)[:, 0]
        losses = ops.logsumexp(rows, axis=-1) - of_labels
    else:
        losses = crossentropy(labels, rows)
    return ops.reshape(losses, ops.shape(y_true))


class _WeightedMean:
    """Makes a loss the sum of weight x loss over the number of values, as by default in Keras."""

    def __init__(self, reduction: str = "sum_over_batch_size", **kwargs):
        if reduction == "mean_with_sample_weight":  # In files of earlier versions.
            reduction = "sum_over_batch_size"
        super().__init__(reduction=reduction, **kwargs)


@keras.saving.register_keras_serializable(package="keras_spanbert")
class WeightedMeanCrossentropy(_WeightedMean, keras.losses.SparseCategoricalCrossentropy):
    """The cross-entropy (nats) of labels: the sum of weight x loss over their number.

    A label of weight 0 counts in that number. One whose output has a false Keras mask, which a task
    sets for padding, does not.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.fn = sparse_crossentropy


@keras.saving.register_keras_serializable(package="keras_spanbert")
class WeightedMeanBinaryCrossentropy(_WeightedMean, keras.losses.BinaryCrossentropy):
    """The binary cross-entropy (nats), the mean over classes: see `WeightedMeanCrossentropy`."""


@keras.saving.register_keras_serializable(package="keras_spanbert")
class WeightedMeanSquaredError(_WeightedMean, keras.losses.MeanSquaredError):
    """The squared error: the sum of weight x error over the number of rows."""


@keras.saving.register_keras_serializable(package="keras_spanbert")
class WeightedMean(_WeightedMean, keras.losses.Loss):
    """Computes the sum of weight x loss over the number of losses, which are given as `y_pred`.

    The values of `y_true` are not used, only its shape.
    """

    def call(self, y_true, y_pred):
        return y_pred
