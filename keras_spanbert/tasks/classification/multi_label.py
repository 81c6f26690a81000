"""Several labels per text: conversion of names to arrays of 0 and 1, and a training metric."""

import keras
import numpy as np
from keras import ops

from keras_spanbert.checks import to_python
from keras_spanbert.layers.array_functions import is_symbolic
from keras_spanbert.models.labels import check_labels_in_graph, label_id


def is_assigned(logits):
    """Returns whether a row gets each class: its probability, the sigmoid, is at least 0.5."""
    return logits >= 0.0


@keras.saving.register_keras_serializable(package="keras_spanbert")
def binary_accuracy(y_true, y_pred):
    """Returns the share of each row's classes that are right: labels, logits `[N, C]` to `[N]`."""
    are_right = ops.equal(ops.cast(y_true, "bool"), is_assigned(y_pred))
    return ops.mean(ops.cast(are_right, "float32"), axis=-1)


def label_rows(labels, names: list[str]):
    """Returns the labels of N texts, any number each, as int32 `[N, C]` of 0 and 1.

    Args:
        labels: list, array or tensor of N rows. A row is a list or set of names, in
            which `""` is padding, or C values: 1 for each class of the text and 0
            for the others.
        names: list of C strings.

    Raises:
        ValueError: if a row is something else, or a name is not in `names`.
    """
    if is_symbolic(labels):
        return _rows_in_graph(labels, names)
    numbers_of = {name: i for i, name in enumerate(names)}
    rows = to_python(labels)
    kinds = (list, set, frozenset)
    if not isinstance(rows, list) or not all(isinstance(row, kinds) for row in rows):
        raise ValueError(
            "Labels must be a list of rows, each a list of names or of 0 and 1, because a text can "
            f"have several labels. Received: {rows!r:.80}"
        )
    found = np.zeros((len(rows), len(names)), np.int32)
    for i, row in enumerate(rows):
        if all(isinstance(value, (str, bytes)) for value in row):
            chosen = [label_id(v, numbers_of, f"row {i}") for v in row if v]
            found[i, chosen] = 1
        elif len(row) == len(names) and all(value in (0, 1) for value in row):
            found[i] = list(row)
        else:
            raise ValueError(
                "The labels of a row must be a list of names, or a 0 or 1 for each of the model's "
                f"{len(names)} classes. Received: {row!r:.80} in row {i}"
            )
    return found


def _rows_in_graph(labels, names):
    import tensorflow as tf

    labels = labels.to_tensor() if isinstance(labels, tf.RaggedTensor) else labels
    if labels.shape.rank != 2:
        raise ValueError(
            "Labels must be rows of names or of 0 and 1, because a text can have several labels. "
            f"Received: {labels!r:.80}"
        )
    if labels.dtype == tf.string:
        is_name = labels[:, :, None] == tf.constant(names)
        found, is_right = tf.reduce_any(is_name, axis=1), tf.reduce_any(is_name, axis=2)
        is_right |= labels == ""  # Padding.
    else:
        found = tf.ensure_shape(labels, [None, len(names)])
        is_right = (found == 0) | (found == 1)
    return check_labels_in_graph(tf.cast(found, tf.int32), is_right, labels, names)
