"""The loss of a masked token, on one device or many."""

import functools

import keras
from keras import ops

from keras_spanbert.distribution import mean_over_replicas


@keras.saving.register_keras_serializable(package="keras_spanbert")
def sparse_crossentropy(y_true, y_pred, from_logits: bool = False, ignore_class=None, axis=-1):
    """Cross-entropy (nats) of labels, in float32 or more.

    It is Keras's, over the rows of a matrix: with more axes Keras has PyTorch
    move that of the classes to second place, which takes 2.5 times as long. On
    TensorFlow it is written out: its kernel for CPUs takes longer. On JAX too,
    over the axes as they are: a TPU would copy logits `[B, M, V]` to rows where
    M is no multiple of 8, and devices that have parts of the vocabulary sum
    up their parts, where a gathered label would have them exchange logits.

    Args:
        y_true: int `[...]`. The labels.
        y_pred: float `[..., V]`.
        from_logits, ignore_class, axis: see
            `keras.losses.sparse_categorical_crossentropy`.

    Returns:
        `[...]`.

    Example:
    ```python
    sparse_crossentropy(np.array([[3, 0]]), logits, from_logits=True)  # [1, 2]
    ```
    """
    if keras.backend.standardize_dtype(y_pred.dtype) in ("bfloat16", "float16"):
        y_pred = ops.cast(y_pred, "float32")
    crossentropy = functools.partial(
        keras.losses.sparse_categorical_crossentropy,
        from_logits=from_logits,
        ignore_class=ignore_class,
        axis=axis,
    )
    # Keras tells what is wrong with other shapes, and sends a mask along with ignored classes.
    is_plain = ignore_class is None and axis == -1
    if not is_plain or tuple(y_true.shape) != tuple(y_pred.shape[:-1]):
        return crossentropy(y_true, y_pred)
    num_classes = ops.shape(y_pred)[-1]  # It may differ from batch to batch.
    if from_logits and keras.backend.backend() == "jax":
        is_label = ops.arange(num_classes) == ops.expand_dims(y_true, -1)
        of_labels = ops.sum(ops.where(is_label, y_pred, 0.0), axis=-1)
        losses = ops.logsumexp(y_pred, axis=-1) - of_labels
        # Labels that are no class count nothing, as in Keras.
        is_class = ops.logical_and(y_true >= 0, y_true < num_classes)
        return ops.where(is_class, losses, ops.zeros_like(losses))
    rows = ops.reshape(y_pred, (-1, num_classes))
    labels = ops.reshape(y_true, (-1,))
    if from_logits and keras.backend.backend() == "tensorflow":
        labels = ops.cast(labels, "int32")[:, None]
        of_labels = ops.take_along_axis(rows, labels, axis=-1)[:, 0]
        losses = ops.logsumexp(rows, axis=-1) - of_labels
    else:
        losses = crossentropy(labels, rows)
    return ops.reshape(losses, ops.shape(y_true))


@keras.saving.register_keras_serializable(package="keras_spanbert")
class WeightedMeanCrossentropy(keras.losses.SparseCategoricalCrossentropy):
    """Cross-entropy (nats) of labels, as mean over the weights of all replicas.

    Keras's own `reduction="mean_with_sample_weight"` gives the mean of the
    replicas' means, which counts a token more where its replica has few.

    Args:
        **kwargs: see `keras.losses.SparseCategoricalCrossentropy`.

    Example:
    ```python
    loss = WeightedMeanCrossentropy(from_logits=True)
    loss([[3, 0]], logits, sample_weight=[[1.0, 0.0]])
    ```
    """

    def __init__(self, reduction: str = "mean_with_sample_weight", **kwargs):
        super().__init__(reduction=reduction, **kwargs)
        self.fn = sparse_crossentropy

    def __call__(self, y_true, y_pred, sample_weight=None):
        loss = super().__call__(y_true, y_pred, sample_weight)
        if sample_weight is None:  # As many in each replica.
            return loss
        weight = ops.sum(ops.cast(sample_weight, loss.dtype))
        mean = mean_over_replicas(weight)
        if mean is weight:
            return loss
        return loss * weight / ops.maximum(mean, keras.config.epsilon())
