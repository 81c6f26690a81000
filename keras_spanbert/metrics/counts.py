"""Code shared by metrics that count right answers."""

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
