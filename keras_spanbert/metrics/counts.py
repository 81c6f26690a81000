"""Code shared by metrics that count right answers, and F1 by scikit-learn's definitions."""

import numpy as np

from keras_spanbert.checks import check_rows


def check_same_examples(labels, predictions) -> tuple[list, list]:
    """Returns labels and predictions as lists. Checks that they are not empty and equally long."""
    labels, predictions = check_rows("labels", labels), check_rows("predictions", predictions)
    if not len(labels) or len(labels) != len(predictions):
        raise ValueError(
            "`labels` and `predictions` must be of the same examples, one or more. Received: "
            f"{len(labels)} and {len(predictions)}"
        )
    return labels, predictions


def precision_recall_f1(right: int, predicted: int, wanted: int) -> dict:
    """Returns precision, recall and F1 in percent, 0 if a denominator is 0.

    `right` of the `predicted` items are among the `wanted` ones, those in the labels.
    """
    return {
        "precision": 100.0 * right / predicted if predicted else 0.0,
        "recall": 100.0 * right / wanted if wanted else 0.0,
        "f1": 200.0 * right / (predicted + wanted) if right else 0.0,
    }


def f1_scores(labels: np.ndarray, predictions: np.ndarray) -> dict:
    """Returns `micro_f1` and `macro_f1` of bool or int `[N, C]`, 1 if row n has class c.

    As in scikit-learn with `zero_division=0`, a class that does not occur has an F1 of 0.
    """
    labels, predictions = np.asarray(labels, bool), np.asarray(predictions, bool)
    right = np.sum(labels & predictions, axis=0)
    marked = np.sum(labels, axis=0) + np.sum(predictions, axis=0)
    by_class = 2.0 * right / np.maximum(marked, 1)
    micro = 2.0 * np.sum(right) / max(np.sum(marked), 1)
    return {"micro_f1": float(micro), "macro_f1": float(np.mean(by_class))}


def accuracy_and_macro_f1(labels: np.ndarray, predictions: np.ndarray) -> dict:
    """Returns `accuracy` and `macro_f1` of class numbers `[N]`, as fractions.

    As in scikit-learn, the mean is over the classes that `labels` or `predictions` have.
    """
    classes = np.union1d(labels, predictions)
    macro = f1_scores(labels[:, None] == classes, predictions[:, None] == classes)["macro_f1"]
    return {"accuracy": float(np.mean(labels == predictions)), "macro_f1": macro}
