"""Code shared by metrics that count right answers."""

from collections.abc import Sized


def check_same_examples(labels: Sized, predictions: Sized) -> None:
    """Raises `ValueError` if there are no labels, or another number of predictions."""
    if not len(labels) or len(labels) != len(predictions):
        raise ValueError(
            "`labels` and `predictions` must be of the same examples, one or more. Received: "
            f"{len(labels)} and {len(predictions)}"
        )


def precision_recall_f1(right: int, predicted: int, wanted: int) -> dict:
    """Returns precision, recall and F1 in percent, 0 if a denominator is 0.

    Args:
        right: int. Number of predicted items that are in the labels.
        predicted: int. Number of predicted items.
        wanted: int. Number of items in the labels.
    """
    return {
        "precision": 100.0 * right / predicted if predicted else 0.0,
        "recall": 100.0 * right / wanted if wanted else 0.0,
        "f1": 200.0 * right / (predicted + wanted) if right else 0.0,
    }
