import json

import numpy as np
import pytest

from keras_spanbert import metrics
from keras_spanbert.metrics.squad import normalize_answer, normalize_characters


def data(**answers):
    qas = [
        {"id": i, "question": "?", "answers": [{"text": t, "answer_start": 0} for t in texts]}
        for i, texts in answers.items()
    ]
    return {"data": [{"paragraphs": [{"context": "c", "qas": qas}]}]}


def test_normalization_equals_the_official_one():
    assert normalize_answer("The  Cat's (a) hat in\tan U.S.A. theory!") == "cats hat in usa theory"
    # Only ASCII punctuation is removed.
    assert normalize_answer("«Ünïcode», –") == "«ünïcode» –"


def test_scores_computed_by_hand():
    dataset = data(a=["the cat", "a black cat"], b=["seven"], c=["one two"], d=["x"])
    predictions = {"a": "Black cat!", "b": "eight", "c": "two three two"}  # d is missing.
    # a: exact. b: nothing. c: one word in common of 3 and 2. d: nothing.
    scores = metrics.squad(dataset, predictions)
    assert scores == {"exact": 25.0, "f1": pytest.approx(100 * (1 + 0 + 2 / 5 + 0) / 4), "total": 4}
    dataset = data(a=["cat"], b=["dog house"], c=[], d=[])
    predictions = {"a": "cat", "b": "dog", "c": "", "d": "bird"}
    assert metrics.squad(dataset, predictions) == {
        "exact": 50.0, "f1": pytest.approx(100 * (1 + 2 / 3 + 1 + 0) / 4), "total": 4,
        "HasAns_exact": 50.0, "HasAns_f1": pytest.approx(100 * (1 + 2 / 3) / 2), "HasAns_total": 2,
        "NoAns_exact": 50.0, "NoAns_f1": 50.0, "NoAns_total": 2,
    }  # fmt: skip


def test_best_threshold_equals_the_official_script():
    generator = np.random.default_rng(0)
    num_none = num_tied = 0
    for _ in range(200):
        names = [f"q{i}" for i in range(9)]
        right = dict(zip(names, generator.integers(2, size=9)))
        golds = {name: ["cat"] * int(generator.integers(2)) for name in [*names[:8]]}
        golds["q8"] = []
        predictions = {n: ("cat" if right[n] else "dog") if golds[n] else "" for n in names}
        predictions |= {name: "cat" for name in names[::3] if not golds[name]}
        order = generator.permutation(names).tolist()
        low = generator.choice([-4.0, 0.0, 1.0])
        no_answer = {name: low + float(generator.integers(12)) for name in order}

        # The official script starts without answers and adds one question at a time.
        total = best = sum(not answers for answers in golds.values())
        threshold = 0.0
        for name in sorted(no_answer, key=no_answer.get):
            total += right[name] if golds[name] else -bool(predictions[name])
            if total > best:
                best, threshold = total, no_answer[name]
        is_none = best == sum(not answers for answers in golds.values())
        lowest = min(no_answer.values())

        found = metrics.squad(data(**golds), predictions, no_answer_scores=no_answer)
        assert found["best_exact"] == pytest.approx(100 * best / 9)
        if is_none and lowest <= 0.0:
            assert lowest - 1e-9 < found["best_exact_thresh"] < lowest
        else:
            assert found["best_exact_thresh"] == threshold
        best = found["best_exact_thresh"]
        again = metrics.squad(data(**golds), predictions, False, no_answer, best)
        is_tied = list(no_answer.values()).count(best) > 1
        assert again["exact"] == pytest.approx(found["best_exact"]) or is_tied
        num_none, num_tied = num_none + is_none, num_tied + is_tied
    assert num_none > 10 and num_tied > 10


def test_answers_with_only_articles():
    # Version 1.1 compares the empty rest, and version 2.0 skips such answers.
    assert metrics.squad(data(a=["the"]), {"a": "an"})["exact"] == 100.0
    assert metrics.squad(data(a=["the"]), {"a": "an"})["f1"] == 0.0
    both = metrics.squad(data(a=["the"], b=[]), {"a": "an", "b": ""})
    assert both["exact"] == both["f1"] == 100.0
    assert metrics.squad(data(a=["the"], b=["x"]), {"b": "x"})["exact"] == 50.0


# Words as MLQA's script counts them for Chinese, in each script without blanks between words.
def test_characters_are_words():
    for text, words in [
        ("《北京》市，", "北 京 市"),
        ("在1901年 The iPhone 6s手机", "在 1901 年 the iphone 6s 手 机"),
        ("東京タワー（とう）３３３", "東 京 タ ワ ー と う ３３３"),
        ("ไทย 2 กรุงเทพฯ!", "ไ ท ย 2 ก ร ุ ง เ ท พ ฯ"),
        ("the U.S. – «café»", "the us café"),
        ("서울에서 ومصر", "서울에서 ومصر"),
        ("ລາວ မြန်မာ ខ្មែរ", "ລ າ ວ မ ြ န ် မ ာ ខ ្ ម ែ រ"),
        ("𠀀㐀々〇ｱ", "𠀀 㐀 々 〇 ｱ"),
        ("。", ""),
    ]:
        assert normalize_characters(text) == words


def test_scores_by_character():
    golds = {"a": ["東京都", "京都"], "b": ["กรุงเทพ"], "c": ["1901年"], "d": ["the cat"]}
    predictions = {"a": "東京", "b": "เทพ", "c": "1901年。", "d": "cat"}
    scores = metrics.squad(data(**golds), predictions, by_character=True)
    # In common: a 2 of 2 and 3, b 3 of 3 and 7, c all, d 1 of 1 and 2.
    f1 = [4 / 5, 6 / 10, 1.0, 2 / 3]
    assert scores == {"exact": 25.0, "f1": pytest.approx(100 * sum(f1) / 4), "total": 4}
    by_word = metrics.squad(data(**golds), predictions)
    assert by_word["f1"] == 25.0 and by_word["exact"] == 25.0  # Only d, without its article.
    with_none = {**golds, "e": []}
    none = dict.fromkeys(with_none, 0.0) | {"e": 1.0}
    scores = metrics.squad(data(**with_none), {**predictions, "e": "東"}, True, none, 0.5)
    assert scores["f1"] == scores["best_f1"] == pytest.approx(100 * (sum(f1) + 1.0) / 5)


def test_questions_without_prediction_are_counted(caplog):
    dataset = data(a=["x"], b=["y"], c=["z"])
    assert metrics.squad(dataset, {"b": "y", "other": "z"})["exact"] == pytest.approx(100 / 3)
    (record,) = caplog.records
    assert "2 of 3 questions have no prediction" in record.getMessage()
    assert record.getMessage().endswith("the first a")
    caplog.clear()
    metrics.squad(dataset, {"a": "", "b": "", "c": ""})
    assert not caplog.records


def test_numbers_as_ids_equal_their_digits():
    dataset = data(**{"17": ["x"], "18": []})
    for question in dataset["data"][0]["paragraphs"][0]["qas"]:
        question["id"] = int(question["id"])
    for kind in [int, str]:
        predictions, scores = {kind(17): "x", kind(18): ""}, {kind(17): 0.0, kind(18): 1.0}
        assert metrics.squad(dataset, predictions, no_answer_scores=scores)["best_exact"] == 100.0


@pytest.mark.parametrize("name", ["dataset", "predictions", "no_answer_scores"])
def test_wrong_argument_is_named(name):
    arguments = {"dataset": data(a=["x"]), "predictions": {"a": "x"}}
    of_any = [7, ["x"], "x", {"a": None}, {"a": ["x"]}, {"a": np.nan}]
    for wrong in [*of_any, *([] if name == "no_answer_scores" else [None, {"a": 7}])]:
        with pytest.raises(ValueError, match=rf"`{name}(\['a'\])?` must be .*Received: "):
            metrics.squad(**{**arguments, name: wrong})


def test_invalid_threshold_is_named():
    with pytest.raises(ValueError, match="`no_answer_threshold` must be a number or None"):
        metrics.squad(data(a=["x"]), {"a": "x"}, False, {"a": 1.0}, "1")
    with pytest.raises(ValueError, match="must be None because `no_answer_scores` is None.*=0.5"):
        metrics.squad(data(a=["x"]), {"a": "x"}, no_answer_threshold=0.5)


def test_reference_predictions_get_the_expected_score(shared_data):
    folder = shared_data / "reference" / "squad"
    dataset = json.loads((folder / "dev_subset.json").read_text(encoding="utf-8"))
    reference = json.loads((folder / "dev_predictions.json").read_text(encoding="utf-8"))
    scores = metrics.squad(dataset, reference["v1_predictions"])
    assert scores["exact"] == pytest.approx(reference["exact"])
    assert scores["f1"] == pytest.approx(reference["f1"])


def test_missing_entries_are_named():
    with pytest.raises(ValueError, match="must contain questions. Received: none"):
        metrics.squad({"data": []}, {})
    with pytest.raises(ValueError, match="`no_answer_scores` must have every question.*no b"):
        metrics.squad(data(a=["x"], b=[]), {}, no_answer_scores={"a": 1.0})
    twice = {"data": data(a=["x"])["data"] * 2}
    with pytest.raises(ValueError, match="an id of its own. Received: 'a' again"):
        metrics.squad(twice, {"a": "x"})
