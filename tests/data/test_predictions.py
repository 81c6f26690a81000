"""Predictions are written in the format of each benchmark."""

import functools

import numpy as np
import pytest

from keras_spanbert.data import codah, commonsense_qa, cosmos_qa, glue, semeval2010, swag
from keras_spanbert.data import conll as conll_module
from keras_spanbert.data import tacred as tacred_module

ROWS = [{"id": "0", "choices": list("abcd")}, {"id": "7", "choices": list("abc")}]
TAGGED = [{"words": ["a", "b"], "tags": ["B-x", "O"]}, {"words": ["c"], "tags": None}]
OTHER_TAGS = [{"words": ["a", "b"], "tags": ["NN", "I-x"]}]
conll, tacred = conll_module.write_predictions, tacred_module.write_predictions


def of_glue(task):
    return lambda path, *given: glue.write_predictions(path, task, *given)


def word(text):
    return [{"words": [text], "tags": None}]


@pytest.mark.parametrize(
    "write, examples, predictions, expected",
    [
        (swag.write_predictions, ROWS, np.array([3, 2]), b",pred\n0,3\n7,2\n"),
        (cosmos_qa.write_predictions, ROWS, np.array([3, 2]), b"3\n2\n"),
        (commonsense_qa.write_predictions, ROWS, np.array([3, 2]), b"0,D\n7,C\n"),
        (of_glue("rte"), ROWS, np.array([0, 1]),
         b"index\tprediction\n0\tentailment\n7\tnot_entailment\n"),
        (of_glue("cola"), ROWS, ["1", "0"], b"index\tprediction\n0\t1\n7\t0\n"),
        (of_glue("sts-b"), ROWS, np.array([1 / 3, 5], "float32"),
         b"index\tprediction\n0\t0.333333\n7\t5.000000\n"),
        (tacred, ROWS, ["per:age", "no_relation"], b"0\tper:age\n7\tno_relation\n"),
        # Next to gold tags, which may be missing.
        (conll, TAGGED, [["O", "B-y"], ["B-x"]], b"a\tB-x\tO\nb\tO\tB-y\n\nc\tB-x\n\n"),
        (functools.partial(conll, delimiter=" "), TAGGED[:1], [["O", "B-y"]],
         b"a B-x O\nb O B-y\n\n"),
        (functools.partial(conll, entities=False), OTHER_TAGS, [["VB", "NN"]],
         b"a\tNN\tVB\nb\tI-x\tNN\n\n"),
    ],
)  # fmt: skip
def test_files_have_the_format_of_the_benchmark(tmp_path, write, examples, predictions, expected):
    write(tmp_path / "a", examples, predictions)
    assert (tmp_path / "a").read_bytes() == expected


@pytest.mark.parametrize(
    "write, examples, predictions, message",
    [
        (swag.write_predictions, ROWS, [0], "one item per example. Received: 1 for 2 examples"),
        (swag.write_predictions, ROWS, [0, 3], r"\[1], of 7: .* from 0, below 3. Received: 3"),
        (codah.write_predictions, ROWS, [0, 0], "Only `swag`, .* have a submission format"),
        (conll, word("a"), [], "one item per example. Received: 0 for 1 examples"),
        (conll, word("a"), [["O"] * 2], r"ns\[0]: .* one for each word. .*: 2 tags: \['O"),
        (conll, word("a\tb"), [["O"]], r"words and tags must not be empty or contain '\\t' or li"),
        (conll, word(" "), [["O"]], r"predictions\[0]: words and tags must not be empty"),
        (of_glue("rte"), ROWS, [0], "one item per example. Received: 1 for 2 examples"),
        (of_glue("rte"), ROWS[:1] * 2, [0, 1], r"examples\[1]: an id must not be repeated.*'0'"),
        (
            of_glue("rte"),
            ROWS,
            [0, 2],
            r"\[1]: .* one of entailment, not_entailment, or its index.*: 2",
        ),
        (of_glue("rte"), ROWS, [0, "neutral"], "or its index. Received: 'neutral'"),
        (of_glue("sts-b"), ROWS, [0.5, float("nan")], "must be a finite number. Received: nan"),
        (tacred, ROWS, ["a"], "Received: 1 for 2 examples"),
        (tacred, ROWS, ["a", 3], r"\[1]: .* without tabs or line ends. Received: 3"),
        (tacred, ROWS, ["a", "b\n"], "Received: 'b"),
        (semeval2010.write_predictions, ROWS, ["Cause-Effect"] * 2, "be from Other, .*'Cause-Eff"),
    ],
)
def test_invalid_predictions_are_not_written(tmp_path, write, examples, predictions, message):
    with pytest.raises(ValueError, match=message):
        write(tmp_path / "a", examples, predictions)
    assert not list(tmp_path.iterdir())
