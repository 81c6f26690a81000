"""Micro and macro F1, by scikit-learn's definitions."""

import numpy as np


def f1_scores(labels: np.ndarray, predictions: np.ndarray) -> dict:
    """Computes micro and macro F1.

    A class that is neither in the labels nor in the predictions has an F1 of 0, as
    in scikit-learn's `f1_score(..., zero_division=0)` on arrays of this form.

    Args:
        labels: bool or int `[N, C]`. 1 if row n has class c.
        predictions: the same, for the same rows.

    Returns:
        Dict of fractions: `micro_f1`, the F1 of all decisions together, and
        `macro_f1`, the mean of the classes' F1.

    Example:
    ```python
    f1_scores(np.array([[1, 0], [1, 1]]), np.array([[1, 0], [0, 1]]))["macro_f1"]  # 0.8333
    ```
    """
    labels, predictions = np.asarray(labels, bool), np.asarray(predictions, bool)
    right = np.sum(labels & predictions, axis=0)
    marked = np.sum(labels, axis=0) + np.sum(predictions, axis=0)
    by_class = 2.0 * right / np.maximum(marked, 1)
    micro = 2.0 * np.sum(right) / max(np.sum(marked), 1)
    return {"micro_f1": float(micro), "macro_f1": float(np.mean(by_class))}


def accuracy_and_macro_f1(labels: np.ndarray, predictions: np.ndarray) -> dict:
    """Computes accuracy and macro F1 of one class per row.

    The mean is over the classes that `labels` or `predictions` have, as in
    scikit-learn's `f1_score(labels, predictions, average="macro")`.

    Args:
        labels: int `[N]`. Numbers of classes.
        predictions: the same, for the same rows.

    Returns:
        Dict of fractions: `accuracy` and `macro_f1`.

    Example:
    ```python
    accuracy_and_macro_f1(np.array([0, 0, 1]), np.array([0, 1, 1]))["macro_f1"]  # 0.6667
    ```
    """
    classes = np.union1d(labels, predictions)
    macro = f1_scores(labels[:, None] == classes, predictions[:, None] == classes)["macro_f1"]
    return {"accuracy": float(np.mean(labels == predictions)), "macro_f1": macro}
