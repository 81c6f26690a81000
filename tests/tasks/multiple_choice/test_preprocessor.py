import numpy as np
import pytest
from multiple_choice_reference import FOLDER, questions

import keras_spanbert as ks

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "e", "##x"]


def build(sequence_length=8):
    return ks.SpanBertMultipleChoicePreprocessor(ks.SpanBertTokenizer(VOCABULARY), sequence_length)


def tokens(row):
    return " ".join(VOCABULARY[i] for i in row).removesuffix(" [PAD]").split(" [PAD]")[0]


@pytest.mark.parametrize("length", [80, 32])
def test_rows_equal_the_reference(shared_data, length):
    preprocessor = ks.SpanBertMultipleChoicePreprocessor(
        ks.SpanBertTokenizer(str(shared_data / "reference" / "vocab" / "bert_base_cased.txt")),
        sequence_length=length,
    )
    prompts, choices, _ = questions(shared_data)
    inputs = preprocessor.inputs(prompts, choices)
    with np.load(shared_data / FOLDER / "features.npz") as reference:
        for name, theirs in [
            ("token_ids", "input_ids"),
            ("segment_ids", "segment_ids"),
            ("padding_mask", "input_mask"),
        ]:
            np.testing.assert_array_equal(inputs[name], reference[f"{length}/{theirs}"])
            assert inputs[name].dtype == np.int32
    np.testing.assert_array_equal(inputs["choice_mask"], np.ones((20, 4)))


def test_empty_choices_in_lists_and_arrays():
    by_list = build().inputs(["a"], [["", "b", "c"]])
    assert tokens(by_list["token_ids"][0, 0]) == "[CLS] a [SEP]"
    by_array = build().inputs(["a"], np.array([["", "b", "c"]]))
    np.testing.assert_array_equal(by_list["choice_mask"], [[1, 1, 1]])
    lists = np.empty(1, object)
    lists[0] = ["", "b", "c"]
    np.testing.assert_array_equal(build().inputs(["a"], lists)["choice_mask"], [[1, 1, 1]])
    np.testing.assert_array_equal(by_array["choice_mask"], [[0, 1, 1]])
    assert not by_array["padding_mask"][0, 0].any()


def test_very_long_and_blank_texts():
    long = "a b c d e " * 10_000
    inputs = build(512).inputs([long, "a"], [[long, " "], ["\u200b", "b"]])
    assert inputs["padding_mask"].sum(axis=2).tolist() == [[512, 511], [3, 5]]
    assert build().inputs([], [])["token_ids"].shape == (0, 0, 8)
