import pytest

from keras_spanbert import metrics


def example(name, pronoun, a, b):
    return {"id": name, "pronoun": pronoun, "a_coref": a, "b_coref": b}


EXAMPLES = [
    example("1", "her", True, False),
    example("2", "She", False, True),
    example("3", "his", True, False),
    example("4", "him", False, False),
]


def test_scores_computed_by_hand():
    predictions = {
        "1": (True, False),  # Right.
        "2": (True, True),  # One right, one wrong.
        "3": (True, False),  # Right.
        "4": (False, True),  # One wrong.
    }
    scores = metrics.gap(EXAMPLES, predictions)
    assert scores["overall"] == pytest.approx({"precision": 60.0, "recall": 100.0, "f1": 75.0})
    assert scores["feminine"] == pytest.approx({"precision": 200 / 3, "recall": 100.0, "f1": 80.0})
    assert scores["masculine"] == pytest.approx({"precision": 50.0, "recall": 100.0, "f1": 200 / 3})
    assert scores["bias"] == pytest.approx(80.0 / (200 / 3))


def test_missing_predictions_count_as_misses():
    scores = metrics.gap(EXAMPLES, {"1": (True, False), "3": (True, None), "9": (True, True)})
    # Correct: A of 1 and 3. Missed: both of 2 and 4, and B of 3.
    assert scores["overall"]["recall"] == pytest.approx(100 * 2 / 7)
    assert scores["overall"]["precision"] == 100.0
    assert scores["masculine"]["recall"] == pytest.approx(100 * 1 / 4)
    scores = metrics.gap(EXAMPLES, {"1": (True, False)})
    assert scores["masculine"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert scores["bias"] is None
