import numpy as np
import pytest
import tensorflow as tf
from multiple_choice_reference import FOLDER, questions

import keras_spanbert as ks
from keras_spanbert.data import swag

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "e", "##x"]


def build(sequence_length=8):
    return ks.SpanBertMultipleChoicePreprocessor(ks.SpanBertTokenizer(VOCABULARY), sequence_length)


def tokens(row):
    return " ".join(VOCABULARY[i] for i in row).removesuffix(" [PAD]").split(" [PAD]")[0]


@pytest.mark.parametrize("length", [80, 32])
def test_rows_are_those_of_the_reference(shared_data, length):
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


def test_rows_of_swags_file_are_those_of_the_reference(shared_data):
    tokenizer = ks.SpanBertTokenizer(str(shared_data / FOLDER / "model" / "vocab.txt"))
    preprocessor = ks.SpanBertMultipleChoicePreprocessor(tokenizer, sequence_length=80)
    inputs = preprocessor.call(swag.read(shared_data / FOLDER / "swag_layout.csv"))
    with np.load(shared_data / FOLDER / "features.npz") as reference:
        np.testing.assert_array_equal(inputs["token_ids"], reference["80/model_ids"][:10])


def test_examples_as_readers_give_them():
    rows = [
        {"prompt": ("a", "b"), "choices": ["d", "e"], "label": 0},
        {"prompt": "c", "choices": ["a", "b", "c"], "label": None},
    ]
    found, expected = (
        build().inputs(*given)
        for given in [(rows,), ([x["prompt"] for x in rows], [x["choices"] for x in rows])]
    )
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def test_rows_worked_out_by_hand():
    inputs = build().inputs(
        ["a", ("b", "c"), ("", "d")], [["b", "c"], ["a b", "d", "e"], ["a"] * 2]
    )
    assert inputs["token_ids"].shape == (3, 3, 8)
    found = [[tokens(row) for row in rows] for rows in inputs["token_ids"]]
    assert found[0] == ["[CLS] a [SEP] b [SEP]", "[CLS] a [SEP] c [SEP]", "[PAD]"]
    assert found[1][0] == "[CLS] b [SEP] c a b [SEP]"
    assert found[1][2] == "[CLS] b [SEP] c e [SEP]"
    assert found[2][0] == "[CLS] d [SEP] a [SEP]"  # An empty context is none.
    np.testing.assert_array_equal(inputs["choice_mask"], [[1, 1, 0], [1, 1, 1], [1, 1, 0]])
    np.testing.assert_array_equal(
        inputs["padding_mask"].sum(axis=2), [[5, 5, 0], [7, 6, 6], [5, 5, 0]]
    )
    np.testing.assert_array_equal(
        inputs["segment_ids"].sum(axis=2), [[2, 2, 0], [4, 3, 3], [2, 2, 0]]
    )


def test_what_is_too_long_loses_the_end_of_the_longer():
    long = "a b c d e " * 10
    inputs = build(9).inputs(
        [long, "a", ("a b", "c")], [["d", long], ["b", long], [long, long + "a"]]
    )
    found = [[tokens(row) for row in rows] for rows in inputs["token_ids"]]
    assert found[0] == ["[CLS] a b c d e [SEP] d [SEP]", "[CLS] a b c [SEP] a b c [SEP]"]
    assert found[1][1] == "[CLS] a [SEP] a b c d e [SEP]"
    assert found[2] == ["[CLS] a b [SEP] c a b c [SEP]"] * 2


FORMS = {
    "pairs": {"prompt": [("a", "b"), ("", "c")], "choices": [["d", "e"], ["a", "b", "c"]]},
    "contexts": {"context": ["a", ""], "prompt": ["b", "c"], "choices": [["d", "e"], list("abc")]},
    "arrays": {
        "context": np.array(["a", ""]),
        "prompt": np.array(["b", "c"], object),
        "choices": np.array([["d", "e", ""], ["a", "b", "c"]]),
    },
    "tensors": {
        "context": tf.constant(["a", ""]),
        "prompt": tf.constant(["b", "c"]),
        "choices": tf.constant([["d", "e", ""], ["a", "b", "c"]]),
    },
    "rows of arrays": {
        "prompt": [["a", "b"], "c"],
        "choices": [np.array(["d", "e"]), tf.constant(["a", "b", "c"])],
    },
    "examples": [
        {"prompt": ("a", "b"), "choices": ["d", "e"]},
        {"prompt": "c", "choices": ("a", "b", "c")},
    ],
}


@pytest.mark.parametrize("form", FORMS)
def test_questions_in_any_container(form):
    expected = build().inputs([("a", "b"), "c"], [["d", "e"], ["a", "b", "c"]])
    inputs = build().call(FORMS[form])
    assert inputs.keys() == expected.keys()
    for name, array in inputs.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


def test_empty_choice_of_a_list_is_a_choice_and_none_of_an_array():
    by_list = build().inputs(["a"], [["", "b", "c"]])
    assert tokens(by_list["token_ids"][0, 0]) == "[CLS] a [SEP]"
    by_array = build().inputs(["a"], np.array([["", "b", "c"]]))
    np.testing.assert_array_equal(by_list["choice_mask"], [[1, 1, 1]])
    np.testing.assert_array_equal(by_array["choice_mask"], [[0, 1, 1]])
    assert not by_array["padding_mask"][0, 0].any()


def test_very_long_and_odd_texts():
    long = "a b c d e " * 10_000
    inputs = build(512).inputs([long, "\ud800 a"], [[long, " "], ["\u200b", "b\ud800"]])
    assert inputs["padding_mask"].sum(axis=2).tolist()[0] == [512, 511]
    assert tokens(inputs["token_ids"][1, 1]) == "[CLS] a [SEP] b [SEP]"
    nothing = build().inputs([], [])
    assert nothing["token_ids"].shape == (0, 0, 8)


@pytest.mark.parametrize(
    "prompts, choices, contexts, error",
    [
        ("a", [["a", "b"]], None, "`prompts` must be a list of strings. Received: prompts='a'"),
        ([1], [["a", "b"]], None, r"`prompts` must be .* Received: prompts\[0\]=1"),
        ([("a", 1)], [["a", "b"]], None, r"pair of strings.* Received: prompts\[0\]=\('a', 1\)"),
        ([("a", "b", "c")], [["a", "b"]], None, "or a pair of strings"),
        ([("a", "b")], [["a", "b"]], ["c"], "`prompts` must be strings where `contexts` are given"),
        (["a"], ["ab"], None, r"strings for each prompt, 2 or more. Received: choices\[0\]='ab'"),
        (["a"], [["a", None]], None, r"Received: choices\[0\]\[1\]=None"),
        (["a"], [["a"]], None, r"2 choices or more. Received: 1 in choices\[0\]=\['a'\]"),
        (["a"], [[]], None, "2 choices or more. Received: 0"),
        (["a"], np.array([["a", ""]]), None, "2 choices or more. Received: 1"),
        (["a"], "ab", None, "a list of lists of strings. Received: choices='ab'"),
        (["a"], None, None, "a list of lists of strings. Received: choices=None"),
        (["a", "b"], [["a", "b"]], None, "as many. Received: 2, 1"),
        (["a"], [["a", "b"]], ["a", "b"], "as many. Received: 1, 1, 2"),
    ],
)
def test_what_are_no_questions_is_named(prompts, choices, contexts, error):
    with pytest.raises(ValueError, match=error):
        build().inputs(prompts, choices, contexts)


@pytest.mark.parametrize(
    "x, error",
    [
        ({"question": ["a"], "choices": [["a", "b"]]}, '"prompt" and "choices".*of type dict'),
        (["a", "b"], "of type list"),
        ([{"choices": ["a", "b"], "label": 0}], r"have a `prompt`. Received: x\[0\]=\{'choices"),
    ],
)
def test_what_is_no_x_is_named(x, error):
    with pytest.raises(ValueError, match=error):
        build().call(x)


@pytest.mark.parametrize("length", [0, 4, 2.5, None])
def test_length_that_holds_no_pair_is_named(length):
    with pytest.raises(ValueError, match=f"`sequence_length` must .*sequence_length={length}"):
        build(length)
