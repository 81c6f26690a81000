import json

import pytest

from keras_spanbert import metrics

KINDS = {"precision": "precision", "recall": "recall", "f1": "f1-score"}


def sentences(path):
    """Reads the tags in the last column of a file. Blank lines end sentences."""
    blocks = [[]]
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line.strip():
            blocks[-1].append(line.split("\t")[-1].strip())
        elif blocks[-1]:
            blocks.append([])
    return [block for block in blocks if block]


def assert_scores(gold, predicted, expected):
    for strict, mode in [(False, "default"), (True, "strict_iob2")]:
        scores = metrics.entities(gold, predicted, strict=strict)
        report = expected[mode]
        for ours, theirs in KINDS.items():
            assert scores[ours] == pytest.approx(100 * report["micro avg"][theirs]), mode
        types = {name for name in report if not name.endswith(" avg")}
        assert {*scores["by_type"]} == types
        for name in types:
            figures = {ours: 100 * report[name][theirs] for ours, theirs in KINDS.items()}
            figures["support"] = report[name]["support"]
            assert scores["by_type"][name] == pytest.approx(figures)


def test_reference_predictions_get_the_expected_scores(shared_data):
    folder = shared_data / "reference" / "finetuning" / "token_classification"
    content = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
    gold = sentences(shared_data / "data" / content["gold"])
    assert len(gold) == 1009 and len(content["scores"]) == 7 and len(content["small"]) > 5
    for name, expected in content["scores"].items():
        assert_scores(gold, sentences(folder / "predictions" / f"{name}.txt"), expected)
    for case in content["small"]:
        if case["result"] is None:  # seqeval fails if both sides have no entities.
            scores = metrics.entities(case["gold"], case["predicted"])
            assert scores == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "by_type": {}}
        else:
            assert_scores(case["gold"], case["predicted"], case["result"])


@pytest.mark.parametrize(
    "tags, spans, strict_spans",
    [
        # The type and the words of each entity, end exclusive.
        ("B-x I-x O", {("x", 0, 2)}, {("x", 0, 2)}),
        ("I-x I-x B-x", {("x", 0, 2), ("x", 2, 3)}, {("x", 2, 3)}),
        ("B-x I-y I-x", {("x", 0, 1), ("y", 1, 2), ("x", 2, 3)}, {("x", 0, 1)}),
        ("B-a-b I-a-b", {("a-b", 0, 2)}, {("a-b", 0, 2)}),
        ("B-x E-x I-x", {("x", 0, 2), ("x", 2, 3)}, None),
        ("B-x L-x I-x U-x", {("x", 0, 2), ("x", 2, 3), ("x", 3, 4)}, None),
        ("B-x I-x L-x L-x", {("x", 0, 3), ("x", 3, 4)}, None),
        ("S-x E-x I-x O E-x", {("x", 0, 1), ("x", 1, 2), ("x", 2, 3), ("x", 4, 5)}, None),
    ],
)
def test_tags_are_read_like_conlleval(tags, spans, strict_spans):
    tags = tags.split()
    for strict, wanted in [(False, spans), (True, strict_spans)]:
        if wanted is None:
            with pytest.raises(ValueError, match="A tag must be O or B-type, I-type. Received"):
                metrics.entities([tags], [tags], strict=strict)
            continue
        gold = ["O"] * len(tags)
        for kind, start, end in sorted(wanted):
            gold[start:end] = [f"B-{kind}"] + [f"I-{kind}"] * (end - start - 1)
        scores = metrics.entities([gold], [tags], strict=strict)
        assert scores["precision"] == scores["recall"] == 100.0
        assert sum(of_one["support"] for of_one in scores["by_type"].values()) == len(wanted)


def test_sentences_can_be_a_column():
    column = pytest.importorskip("pandas").Series([["B-x", "I-x", "O"]])
    assert metrics.entities(column, column)["f1"] == 100.0
