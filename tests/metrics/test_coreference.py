import json
import random

import pytest

from keras_spanbert import metrics

# Ours and the official scorer's names; it cuts percentages off after two digits.
OFFICIAL = {"muc": "muc", "b_cubed": "bcub", "ceaf_e": "ceafe", "mentions": "mentions"}
KINDS = {"precision": "p", "recall": "r", "f1": "f1"}


def mentions(*starts):
    return [(start, start) for start in starts]


def score(gold, predicted):
    return metrics.coreference([gold], [predicted])


def assert_official(scores, official):
    for name, theirs in OFFICIAL.items():
        for kind, letter in KINDS.items():
            cut = official[theirs][letter]
            assert cut - 1e-9 <= scores[name][kind] <= cut + 0.01 + 1e-9, (name, kind)
        for kind, letter in [("precision", "p"), ("recall", "r")]:
            whole = official[theirs].get(f"{letter}_den")
            if whole:
                exact = 100.0 * official[theirs][f"{letter}_num"] / whole
                assert scores[name][kind] == pytest.approx(exact, rel=1e-13)
    assert scores["average_f1"] == pytest.approx(official["average_f1"], abs=0.01)


def expected(shared_data):
    path = shared_data / "reference" / "coref" / "scorer" / "expected.json"
    return json.loads(path.read_text(encoding="utf-8"))


def test_every_pair_gets_the_official_score(shared_data):
    cases = expected(shared_data)["cases"]
    assert len(cases) == 19
    for case in cases:
        assert_official(score(case["key"], case["response"]), case["official_v8_01"])


def test_documents_are_summed_as_in_the_official_score(shared_data):
    content = expected(shared_data)
    golds, predictions = ([case[name] for case in content["cases"]] for name in ["key", "response"])
    official = content["micro_over_all_cases"]["official_v8_01"]
    assert_official(metrics.coreference(golds, predictions), official)


def test_lea_is_the_published_one(shared_data):
    # The released code's differs from the published score where there are singletons or repeats.
    other = {"key_singletons", "response_singletons", "both_singletons", "only_singletons"}
    other.add("duplicated_response_mention")
    compared = 0
    for case in expected(shared_data)["cases"]:
        if case["name"] not in other:
            found = score(case["key"], case["response"])["lea"]
            theirs = {k: 100.0 * case["released_metrics"]["lea"][c] for k, c in KINDS.items()}
            assert found == pytest.approx(theirs)
            compared += 1
    assert compared == 14


def test_lea_links_a_singleton_to_itself():
    # Of 5 gold mentions, 3 * 1/3 and 1 singleton; of 4 predicted, 2 * 1/1 and 1 of 2 singletons.
    gold = [mentions(0, 2, 4), mentions(6), mentions(8)]
    predicted = [mentions(0, 2), mentions(4), mentions(6)]
    lea = score(gold, predicted)["lea"]
    assert lea["recall"] == pytest.approx(100 * 2 / 5)
    assert lea["precision"] == pytest.approx(100 * 3 / 4)


def test_scores_worked_out_by_hand():
    gold = [mentions(0, 1, 2), mentions(3, 4)]
    predicted = [mentions(0, 1), mentions(2, 3, 4), mentions(5)]
    scores = score(gold, predicted)
    assert scores["muc"] == pytest.approx(dict.fromkeys(KINDS, 100 * 2 / 3))
    # 0 and 1: 2 in common of 3 and 2; 2: 1 of 3 and 3; 3 and 4: 2 of 2 and 3; 5: none.
    recall, precision = (4 / 3 + 1 / 3 + 2) / 5, (2 + 1 / 3 + 4 / 3) / 6
    assert scores["b_cubed"]["recall"] == pytest.approx(100 * recall)
    assert scores["b_cubed"]["precision"] == pytest.approx(100 * precision)
    # Each to that of the same number: 2 * 2 / 5 twice.
    assert scores["ceaf_e"]["recall"] == pytest.approx(100 * 1.6 / 2)
    assert scores["ceaf_e"]["precision"] == pytest.approx(100 * 1.6 / 3)
    assert scores["mentions"]["recall"] == 100.0
    assert scores["mentions"]["precision"] == pytest.approx(100 * 5 / 6)
    thirds = [scores[name]["f1"] for name in ["muc", "b_cubed", "ceaf_e"]]
    assert scores["average_f1"] == pytest.approx(sum(thirds) / 3)


def test_of_a_repeated_mention_the_first_in_the_text_counts():
    gold = [mentions(0, 2), mentions(4, 6)]
    first, second = mentions(0, 2), mentions(4, 6, 2)
    perfect = score(gold, gold)
    assert score(gold, [first, second]) == score(gold, [second, first]) == perfect
    # What is not in gold is left where it stands, as in the official scorer.
    scores = score(gold, [*gold, mentions(8, 8)])
    assert scores["muc"]["precision"] == pytest.approx(100 * 2 / 3)
    assert scores["b_cubed"]["precision"] == pytest.approx(100 * 4 / 6)
    assert scores["mentions"]["precision"] == pytest.approx(100 * 4 / 5)


def test_order_within_lists_changes_nothing():
    generator = random.Random(0)
    gold = [mentions(0, 3, 5, 7), mentions(1), mentions(2, 9), [(2, 5), (7, 9)]]
    predicted = [mentions(0, 3, 9), mentions(1, 7), [(2, 5), (5, 5), (7, 8)]]
    scores = score(gold, predicted)
    for clusters in [gold, predicted]:
        generator.shuffle(clusters)
        for cluster in clusters:
            generator.shuffle(cluster)
    again = score(gold, predicted)
    for name in OFFICIAL:
        assert again[name] == pytest.approx(scores[name])


def test_best_assignment_is_that_of_all_clusters_at_once():
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    generator = np.random.default_rng(0)
    labels = generator.integers(0, 29, size=[2, 97])
    gold, predicted = ([mentions(*np.flatnonzero(row == i)) for i in range(29)] for row in labels)
    gold, predicted = ([cluster for cluster in side if cluster] for side in [gold, predicted])
    similarity = np.array(
        [[2 * len({*g} & {*p}) / (len(g) + len(p)) for p in predicted] for g in gold]
    )
    best = similarity[linear_sum_assignment(similarity, maximize=True)].sum()
    scores = score(gold, predicted)["ceaf_e"]
    assert scores["recall"] == pytest.approx(100 * best / len(gold))
    assert scores["precision"] == pytest.approx(100 * best / len(predicted))


def test_predictions_of_the_reference_get_the_official_score(shared_data):
    from keras_spanbert.data import coreference

    folder = shared_data / "reference" / "coref"
    gold = [document["clusters"] for document in coreference.read(folder / "gold.conll")]
    outputs = folder / "outputs"
    predictions = json.loads((outputs / "predictions.json").read_text(encoding="utf-8"))
    evaluation = json.loads((outputs / "evaluation.json").read_text(encoding="utf-8"))
    assert len(evaluation) == 9
    for name, figures in evaluation.items():
        predicted = [predictions[f"{name}/doc{i}"]["clusters_words"] for i in range(4)]
        scores = metrics.coreference(gold, predicted)
        for ours, theirs in list(OFFICIAL.items())[:3]:
            for kind, letter in [("precision", "p"), ("recall", "r"), ("f1", "f")]:
                cut = figures["official"][theirs][letter]
                assert cut - 1e-9 <= scores[ours][kind] <= cut + 0.01 + 1e-9, (name, ours, kind)


@pytest.mark.parametrize(
    "gold, predicted, error",
    [
        ([], [], "`gold` must hold documents. Received: none"),
        ([[], []], [[]], "must hold the same documents. Received: 2 and 1 of them"),
        ([[[(0, 1, 2)]]], [[]], r"must be a pair of integers.* Received: gold\[0\]\[0\]\[0\]=\(0"),
        ([[]], [[[(0, 0), (2, 1)]]], r"not before it. Received: predicted\[0\]\[0\]\[1\]=\(2, 1\)"),
        ([[[(0.5, 1)]]], [[]], "must be a pair of integers"),
        ([[mentions(1)]], [mentions(1)], r"Received: predicted\[0\]\[0\]\[0\]=1"),
        ([[mentions(1)]], {"a": 1}, "must be lists of documents.*predicted={'a': 1}, which is no"),
        ([["ab"]], [[]], r"gold\[0\]\[0\]='ab', which is no list of mentions"),
    ],
)
def test_mistakes_are_named(gold, predicted, error):
    with pytest.raises(ValueError, match=error):
        metrics.coreference(gold, predicted)
