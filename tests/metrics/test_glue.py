import json
import math

import keras
import numpy as np
import pytest

from keras_spanbert import metrics
from keras_spanbert.metrics.counts import accuracy_and_macro_f1, f1_scores

# Other keys of the released code are means by which it selects a model.
OURS = {"acc": "accuracy", "f1": "f1", "mcc": "matthews_correlation"}
OURS |= {"pearson": "pearson", "spearmanr": "spearman"}


def test_reference_predictions_get_the_expected_scores(shared_data):
    path = shared_data / "reference" / "finetuning" / "classification" / "scores.json"
    cases = json.loads(path.read_text(encoding="utf-8"))
    assert len(cases) == 55
    scored = 0
    for case in cases:
        arguments = case["task"], case["gold"], case["predictions"]
        if case["task"] == "sts-b":
            # Scores of the released code.
            arguments = "sts-b", *(np.array(values, "float32") for values in arguments[1:])
        if "raises" in case["result"]:
            with pytest.raises(ValueError, match="at least two examples. Received: one"):
                metrics.glue(*arguments)
            continue
        expected = {
            OURS[name]: math.nan if value is None else value
            for name, value in case["result"].items()
            if name in OURS
        }
        scores = metrics.glue(*arguments)
        assert scores == pytest.approx(expected, rel=1e-12, abs=1e-12, nan_ok=True), case["name"]
        scored += 1
    assert scored == 54


def test_scores_computed_by_hand():
    labels, predictions = [1, 1, 1, 0, 0], [1, 1, 0, 1, 0]
    assert metrics.glue("mrpc", labels, predictions) == pytest.approx(
        {"accuracy": 3 / 5, "f1": 2 * 2 / (3 + 3)}
    )
    # (2 * 1 - 1 * 1) / sqrt(3 * 3 * 2 * 2)
    assert metrics.glue("CoLA", labels, predictions) == pytest.approx(
        {"matthews_correlation": 1 / 6}
    )
    # Two of three right: covariance 2 * 3 - (1 + 1 + 0), variances 9 - 3 and 9 - 5.
    assert metrics.glue("ax", [0, 1, 2], [0, 1, 1]) == pytest.approx(
        {"matthews_correlation": (6 - (1 * 1 + 1 * 2 + 1 * 0)) / math.sqrt(6 * 4)}
    )
    scores = metrics.glue("STS_B", [1.0, 2.0, 3.0, 4.0], [1, 2, 4, 3])
    assert scores == pytest.approx({"pearson": 0.8, "spearman": 0.8})


def test_class_names_and_indices_are_equivalent():
    labels = ["neutral", "contradiction", "entailment"]
    for predictions in [np.array([2, 0, 0]), keras.ops.convert_to_tensor([2, 0, 0])]:
        assert metrics.glue("mnli", labels, predictions)["accuracy"] == pytest.approx(2 / 3)
    assert metrics.glue("QNLI", ["entailment", "not_entailment"], [0, 1]) == {"accuracy": 1.0}
    assert metrics.glue("sst2", ["0", "1"], [0, 1]) == {"accuracy": 1.0}


def test_micro_and_macro_f1_by_hand():
    """scikit-learn 1.9.1 gives the same results."""
    labels = np.array([[1, 0, 1, 0], [0, 0, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]])
    predictions = np.array([[1, 0, 0, 0], [0, 0, 1, 0], [1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 0, 0]])
    # Per class: 6/6, 0/2, 2/4, and 0 for the class that never occurs.
    expected = {"micro_f1": 8 / 12, "macro_f1": 1.5 / 4}
    assert f1_scores(labels, predictions) == pytest.approx(expected)
    nothing = np.zeros((2, 3), bool)
    assert f1_scores(nothing, nothing) == {"micro_f1": 0.0, "macro_f1": 0.0}
    # Class 2 does not occur, so the mean is over 4/6, 2/3 and 2/3.
    found = accuracy_and_macro_f1(np.array([0, 0, 0, 1, 3, 3]), np.array([0, 0, 1, 1, 3, 0]))
    assert found == pytest.approx({"accuracy": 4 / 6, "macro_f1": 2 / 3})
