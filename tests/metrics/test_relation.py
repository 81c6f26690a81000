import json
import math

import keras
import pytest

from keras_spanbert import metrics

KINDS = ("precision", "recall", "f1")


def test_reference_predictions_get_the_expected_scores(shared_data):
    path = shared_data / "reference" / "finetuning" / "relation" / "expected.json"
    cases = json.loads(path.read_text(encoding="utf-8"))["scores"]
    assert len(cases) == 10
    for case in cases:
        scores = metrics.relation(case["gold"], case["predictions"], no_relation=0)
        assert scores == pytest.approx({kind: 100 * case["result"][kind] for kind in KINDS})


def test_class_indices_can_be_tensors():
    labels, predictions = (keras.ops.convert_to_tensor(x) for x in ([0, 1, 2, 2], [1, 1, 2, 0]))
    scores = metrics.relation(labels, predictions, no_relation=0)
    assert scores == pytest.approx(dict.fromkeys(KINDS, 200 / 3))
    assert {type(score) for score in scores.values()} == {float}
    with pytest.raises(ValueError, match="`labels` must be a list of values"):
        metrics.relation(labels[0], predictions[0], no_relation=0)


def read(path):
    return dict(line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())


def test_answer_files_get_the_official_score(shared_data):
    folder = shared_data / "reference" / "finetuning" / "semeval"
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    gold = read(shared_data / "data" / "semeval2010_task8" / "TEST_FILE_KEY.TXT")
    assert len(expected) == 6
    for name, tables in expected.items():
        answers = read(folder / f"{name}.txt")
        predictions = [answers.get(sentence) for sentence in gold]
        scores = metrics.semeval2010_task8(gold.values(), predictions)
        assert f"{scores['macro_f1']:.2f}" == f"{tables['official']:.2f}"
        table = tables["9 relations, direction counted (official)"]
        for kind in KINDS:
            for mean in ["macro", "micro"]:
                assert f"{scores[f'{mean}_{kind}']:.2f}" == f"{table[mean][kind]:.2f}", name
            for relation, figures in scores["by_relation"].items():
                assert f"{figures[kind]:.2f}" == f"{table['relations'][relation][kind]:.2f}"
        assert {*table["relations"]} - {*scores["by_relation"]} == {"_Other"}


def test_answers_in_both_directions_count_in_precision():
    labels = ["Cause-Effect(e1,e2)", "Cause-Effect(e1,e2)", "Message-Topic(e1,e2)", "Other"]
    predictions = ["Cause-Effect(e1,e2)", "Cause-Effect(e2,e1)", "Cause-Effect(e2,e1)", None]
    scores = metrics.semeval2010_task8(labels, predictions)
    cause = {"precision": 100 / 3, "recall": 50.0, "f1": 40.0}
    assert scores["by_relation"]["Cause-Effect"] == pytest.approx(cause)
    # Relations without examples are not part of the mean.
    assert scores["macro_f1"] == pytest.approx(20.0)
    assert scores["micro_recall"] == pytest.approx(100 / 3)
    scores = metrics.semeval2010_task8(["Other"], ["Cause-Effect(e1,e2)"])
    assert scores["macro_f1"] == 0.0 and scores["by_relation"] == {}
    assert not any(map(math.isnan, [scores["micro_f1"], scores["macro_recall"]]))
