import json
import re

import pytest

from keras_spanbert import metrics
from keras_spanbert.data import coreference

# Our names and those of the official scorer, which truncates percentages to two digits.
OFFICIAL = {"muc": "muc", "b_cubed": "bcub", "ceaf_e": "ceafe", "mentions": "mentions"}
KINDS = {"precision": "p", "recall": "r", "f1": "f1"}


def mentions(*starts):
    return [(start, start) for start in starts]


def score(gold, predicted):
    return metrics.coreference([gold], [predicted])


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def content(shared_data):
    return read_json(shared_data / "reference" / "coref" / "scorer" / "expected.json")


def assert_cut(score, official):
    assert official - 1e-9 <= score <= official + 0.01 + 1e-9


def assert_official(scores, official):
    for name, theirs in OFFICIAL.items():
        for kind, letter in KINDS.items():
            assert_cut(scores[name][kind], official[theirs][letter])
        for kind, letter in [("precision", "p"), ("recall", "r")]:
            whole = official[theirs].get(f"{letter}_den")
            if whole:
                exact = 100.0 * official[theirs][f"{letter}_num"] / whole
                assert scores[name][kind] == pytest.approx(exact, rel=1e-13)
    assert scores["average_f1"] == pytest.approx(official["average_f1"], abs=0.01)


def test_scores_equal_the_official_scorer(content):
    cases = content["cases"]
    assert len(cases) == 19
    for case in cases:
        assert_official(score(case["key"], case["response"]), case["official_v8_01"])
    # Documents are summed.
    golds, predictions = ([case[name] for case in cases] for name in ["key", "response"])
    official = content["micro_over_all_cases"]["official_v8_01"]
    assert_official(metrics.coreference(golds, predictions), official)


def test_lea_equals_the_published_definition(content):
    # The released code differs from the paper for singletons and repeated mentions.
    cases = [c for c in content["cases"] if not re.search("singletons|duplicated", c["name"])]
    assert len(cases) == 14
    for case in cases:
        found = score(case["key"], case["response"])["lea"]
        theirs = {k: 100.0 * case["released_metrics"]["lea"][c] for k, c in KINDS.items()}
        assert found == pytest.approx(theirs)


def test_reference_predictions_equal_the_official_score(shared_data):
    folder = shared_data / "reference" / "coref"
    gold = [document["clusters"] for document in coreference.read(folder / "gold.conll")]
    predictions = read_json(folder / "outputs" / "predictions.json")
    evaluation = read_json(folder / "outputs" / "evaluation.json")
    assert len(evaluation) == 9
    for name, figures in evaluation.items():
        predicted = [predictions[f"{name}/doc{i}"]["clusters_words"] for i in range(4)]
        scores = metrics.coreference(gold, predicted)
        for ours in ["muc", "b_cubed", "ceaf_e"]:
            for kind, letter in [("precision", "p"), ("recall", "r"), ("f1", "f")]:
                assert_cut(scores[ours][kind], figures["official"][OFFICIAL[ours]][letter])


def test_lea_links_a_singleton_to_itself():
    # Recall: 3 * 1/3 and 1 singleton of 5. Precision: 2 * 1/1 and 1 of 2 singletons of 4.
    gold = [mentions(0, 2, 4), mentions(6), mentions(8)]
    predicted = [mentions(0, 2), mentions(4), mentions(6)]
    lea = score(gold, predicted)["lea"]
    assert lea["recall"] == pytest.approx(100 * 2 / 5)
    assert lea["precision"] == pytest.approx(100 * 3 / 4)


def test_first_of_repeated_mentions_counts():
    gold = [mentions(0, 2), mentions(4, 6)]
    first, second = mentions(0, 2), mentions(4, 6, 2)
    perfect = score(gold, gold)
    assert score(gold, [first, second]) == score(gold, [second, first]) == perfect
    # Mentions that are not in gold stay, like in the official scorer.
    scores = score(gold, [*gold, mentions(8, 8)])
    assert scores["muc"]["precision"] == pytest.approx(100 * 2 / 3)
    assert scores["b_cubed"]["precision"] == pytest.approx(100 * 4 / 6)
    assert scores["mentions"]["precision"] == pytest.approx(100 * 4 / 5)
