"""Micro and macro F1, by scikit-learn's definitions."""

import numpy as np


def f1_scores(labels: np.ndarray, predictions: np.ndarray) -> dict:
    """Returns `micro_f1` and `macro_f1` of bool or int `[N, C]`, 1 if row n has class c.

    A class that is neither in the labels nor in the predictions has an F1 of 0, as in
    scikit-learn's `f1_score(..., zero_division=0)` on arrays of this form.
    """
    labels, predictions = np.asarray(labels, bool), np.asarray(predictions, bool)
    right = np.sum(labels & predictions, axis=0)
    marked = np.sum(labels, axis=0) + np.sum(predictions, axis=0)
    by_class = 2.0 * right / np.maximum(marked, 1)
    micro = 2.0 * np.sum(right) / max(np.sum(marked), 1)
    return {"micro_f1": float(micro), "macro_f1": float(np.mean(by_class))}


def accuracy_and_macro_f1(labels: np.ndarray, predictions: np.ndarray) -> dict:
    """Returns `accuracy` and `macro_f1` of class numbers `[N]`, as fractions.

    The mean is over the classes that `labels` or `predictions` have, as in
    scikit-learn's `f1_score(labels, predictions, average="macro")`.
    """
    classes = np.union1d(labels, predictions)
    macro = f1_scores(labels[:, None] == classes, predictions[:, None] == classes)["macro_f1"]
    return {"accuracy": float(np.mean(labels == predictions)), "macro_f1": macro}
