import json

import pytest

from keras_spanbert import metrics
from keras_spanbert.metrics.squad import normalize_answer


def data(**answers):
    qas = [
        {"id": i, "question": "?", "answers": [{"text": t, "answer_start": 0} for t in texts]}
        for i, texts in answers.items()
    ]
    return {"data": [{"paragraphs": [{"context": "c", "qas": qas}]}]}


@pytest.mark.parametrize(
    "text, normal",
    [
        ("The  Cat's (a) hat!", "cats hat"),
        ("An apple\ta day", "apple day"),
        ("theory", "theory"),
        ("U.S.A.", "usa"),
        ("«Ünïcode», –", "«ünïcode» –"),  # ASCII punctuation alone is dropped.
    ],
)
def test_normalization_is_the_official_one(text, normal):
    assert normalize_answer(text) == normal


def test_scores_of_version_1_worked_out_by_hand():
    dataset = data(a=["the cat", "a black cat"], b=["seven"], c=["one two"], d=["x"])
    predictions = {"a": "Black cat!", "b": "eight", "c": "two three two"}  # d is missing.
    # a: exact. b: nothing. c: one word in common of 3 and 2. d: nothing.
    scores = metrics.squad(dataset, predictions)
    assert scores == {
        "exact": 25.0,
        "f1": pytest.approx(100 * (1 + 0 + 2 / 5 + 0) / 4),
        "total": 4,
    }


def test_scores_of_version_2_worked_out_by_hand():
    dataset = data(a=["cat"], b=["dog house"], c=[], d=[])
    predictions = {"a": "cat", "b": "dog", "c": "", "d": "bird"}
    assert metrics.squad(dataset, predictions) == {
        "exact": 50.0,
        "f1": pytest.approx(100 * (1 + 2 / 3 + 1 + 0) / 4),
        "total": 4,
        "HasAns_exact": 50.0,
        "HasAns_f1": pytest.approx(100 * (1 + 2 / 3) / 2),
        "HasAns_total": 2,
        "NoAns_exact": 50.0,
        "NoAns_f1": 50.0,
        "NoAns_total": 2,
    }


def test_best_threshold_is_that_of_trying_all():
    dataset = data(a=["cat"], b=["dog"], c=[], d=[], e=["owl"])
    predictions = {"a": "cat", "b": "dog", "c": "x", "d": "", "e": "bat"}
    no_answer = {"a": -3.0, "b": 2.0, "c": 1.0, "d": 0.5, "e": 4.0}
    scores = metrics.squad(dataset, predictions, no_answer)
    tried = {
        t: metrics.squad(dataset, predictions, no_answer, no_answer_threshold=t)["f1"]
        for t in [-10.0, *no_answer.values()]
    }
    assert scores["best_f1"] == scores["best_exact"] == max(tried.values()) == 60.0
    assert tried[scores["best_f1_thresh"]] == 60.0
    # Above the threshold, no answer.
    assert tried[-10.0] == 40.0 and tried[4.0] == pytest.approx(scores["f1"])


@pytest.mark.parametrize("scores, threshold", [([0.2, 0.3], 0.0), ([-5.0, 3.0], -5.0)])
def test_best_threshold_may_be_to_answer_none(scores, threshold):
    dataset, predictions = data(a=["cat"], b=[]), {"a": "dog", "b": "x"}
    no_answer = dict(zip("ab", scores))
    best = metrics.squad(dataset, predictions, no_answer)
    assert best["best_f1"] == 50.0
    assert best["best_f1_thresh"] == pytest.approx(threshold)
    found = metrics.squad(dataset, predictions, no_answer, best["best_f1_thresh"])
    assert found["f1"] == 50.0 and found["NoAns_f1"] == 100.0


def test_answers_of_nothing_but_articles():
    # Version 1.1 compares what is left of them, version 2.0 leaves them out.
    assert metrics.squad(data(a=["the"]), {"a": "an"})["exact"] == 100.0
    assert metrics.squad(data(a=["the"]), {"a": "an"})["f1"] == 0.0
    both = metrics.squad(data(a=["the"], b=[]), {"a": "an", "b": ""})
    assert both["exact"] == both["f1"] == 100.0


def test_predictions_of_the_reference_get_its_score(shared_data):
    folder = shared_data / "reference" / "squad"
    dataset = json.loads((folder / "dev_subset.json").read_text(encoding="utf-8"))
    reference = json.loads((folder / "dev_predictions.json").read_text(encoding="utf-8"))
    scores = metrics.squad(dataset, reference["v1_predictions"])
    assert scores["exact"] == pytest.approx(reference["exact"])
    assert scores["f1"] == pytest.approx(reference["f1"])


def test_gold_answers_of_the_whole_development_set_score_100(shared_data):
    with open(shared_data / "data" / "squad" / "dev-v1.1.json", encoding="utf-8") as file:
        dataset = json.load(file)
    golds = {
        question["id"]: question["answers"][-1]["text"]
        for article in dataset["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    }
    scores = metrics.squad(dataset, golds)
    assert scores["exact"] == 100.0 and scores["total"] == 10570
    assert scores["f1"] == pytest.approx(100.0, abs=0.01)


def test_mistakes_name_what_is_missing():
    with pytest.raises(ValueError, match="must hold questions. Received: none"):
        metrics.squad({"data": []}, {})
    with pytest.raises(ValueError, match="`no_answer_scores` must hold every question.*no b"):
        metrics.squad(data(a=["x"], b=[]), {}, no_answer_scores={"a": 1.0})
