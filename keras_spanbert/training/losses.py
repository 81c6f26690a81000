"""The loss of a masked token, on one device or many."""

import keras
from keras import ops

from keras_spanbert.training.distribution import mean_over_replicas


@keras.saving.register_keras_serializable(package="keras_spanbert")
def sparse_crossentropy(y_true, y_pred, **kwargs):
    """Cross-entropy (nats) of labels.

    As Keras's, over the rows of a matrix: PyTorch takes 2.5 times as long where
    logits have more axes, since Keras has them change places.

    Args:
        y_true: int `[...]`. The labels.
        y_pred: float `[..., V]`.
        **kwargs: see `keras.losses.sparse_categorical_crossentropy`.

    Returns:
        `[...]`.

    Example:
    ```python
    sparse_crossentropy(np.array([[3, 0]]), logits, from_logits=True)  # [1, 2]
    ```
    """
    rows = ops.reshape(y_pred, (-1, y_pred.shape[-1]))
    losses = keras.losses.sparse_categorical_crossentropy(
        ops.reshape(y_true, (-1,)), rows, **kwargs
    )
    return ops.reshape(losses, ops.shape(y_pred)[:-1])


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

    def __init__(self, reduction="mean_with_sample_weight", **kwargs):
        super().__init__(reduction=reduction, **kwargs)
        # With a class to ignore Keras sends a mask along with the losses.
        if self.ignore_class is None and kwargs.get("axis", -1) == -1:
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
