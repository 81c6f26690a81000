"""What scores share that count right answers."""

from collections.abc import Sized


def check_same_examples(labels: Sized, predictions: Sized) -> None:
    """Raises a ValueError where there are no labels, or predictions are not as many."""
    if not len(labels) or len(labels) != len(predictions):
        raise ValueError(
            "`labels` and `predictions` must be of the same examples, one or more. Received: "
            f"{len(labels)} and {len(predictions)}"
        )


def precision_recall_f1(right: int, predicted: int, wanted: int) -> dict:
    """Precision, recall and F1 in percent, 0 where a denominator is.

    Args:
        right: int. How many of those that are predicted are wanted.
        predicted: int.
        wanted: int.
    """
    return {
        "precision": 100.0 * right / predicted if predicted else 0.0,
        "recall": 100.0 * right / wanted if wanted else 0.0,
        "f1": 200.0 * right / (predicted + wanted) if right else 0.0,
    }
