"""Rows of texts and of pairs, against those of the released script."""

import json

import numpy as np
import pytest

import keras_spanbert as ks
from keras_spanbert.models.pairs import encode_pairs

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"]


@pytest.fixture
def preprocessor():
    tokenizer = ks.SpanBertTokenizer(VOCABULARY)
    return ks.SpanBertTextClassifierPreprocessor(tokenizer, sequence_length=8)


def tokens(preprocessor, inputs, row=0):
    names = preprocessor.tokenizer.get_vocabulary()
    return " ".join(names[i] for i in inputs["token_ids"][row] if i)


def test_a_pair_has_two_segments(preprocessor):
    inputs = preprocessor.inputs(["a b"], ["c"])
    assert tokens(preprocessor, inputs) == "[CLS] a b [SEP] c [SEP]"
    np.testing.assert_array_equal(inputs["segment_ids"], [[0, 0, 0, 0, 1, 1, 0, 0]])
    np.testing.assert_array_equal(inputs["padding_mask"], [[1, 1, 1, 1, 1, 1, 0, 0]])


@pytest.mark.parametrize(
    "first, second, row",
    [
        ("a b c d e f", "", "[CLS] a b c d e f [SEP]"),
        ("a b c d e f a", "", "[CLS] a b c d e f [SEP]"),
        # Blank but not empty: room for a second [SEP] is kept, and not used.
        ("a b c d e f a", " ", "[CLS] a b c d e [SEP]"),
        ("a b c d", "e f", "[CLS] a b c [SEP] e f [SEP]"),
        # Equally long: the second one loses first.
        ("a b c", "d e f", "[CLS] a b c [SEP] d e [SEP]"),
        ("a", "b c d e f a", "[CLS] a [SEP] b c d e [SEP]"),
    ],
)
def test_what_is_too_long_is_cut_at_the_longer_text(preprocessor, first, second, row):
    assert tokens(preprocessor, preprocessor.inputs([first], [second])) == row


def test_rows_are_those_of_the_released_script(shared_data):
    folder = shared_data / "reference" / "finetuning" / "classification"
    features = np.load(folder / "features.npz")
    expected = json.loads((folder / "expected.json").read_text())["tasks"]
    tokenizer = ks.SpanBertTokenizer(
        str(shared_data / "reference" / "vocab" / "bert_base_cased.txt")
    )
    groups = sorted({name.rsplit("/", 1)[0] for name in features.files})
    assert len(groups) == 40
    for group in groups:
        task, split, length = group.split("/")
        rows = expected[task]["sets"][split]
        inputs = encode_pairs(
            tokenizer,
            [row["text_a"] for row in rows],
            [row["text_b"] or "" for row in rows],
            int(length),
        )
        for name, field in [
            ("token_ids", "input_ids"),
            ("segment_ids", "segment_ids"),
            ("padding_mask", "input_mask"),
        ]:
            np.testing.assert_array_equal(inputs[name], features[f"{group}/{field}"], group)


def test_texts_come_in_any_form(preprocessor):
    expected = preprocessor.inputs(["a", "b"], ["c", ""])
    examples = [{"text": "a", "text_pair": "c"}, {"text": "b", "text_pair": None}]
    columns = {"text": np.array(["a", "b"]), "text_pair": ("c", "")}
    for given in [examples, columns]:
        inputs = preprocessor.call(given)
        for name, array in expected.items():
            np.testing.assert_array_equal(inputs[name], array)


def test_what_is_no_character_is_left_out(preprocessor):
    inputs = preprocessor.inputs(["a \ud800b", "", " "])
    assert [tokens(preprocessor, inputs, row) for row in range(3)] == [
        "[CLS] a b [SEP]",
        "[CLS] [SEP]",
        "[CLS] [SEP]",
    ]


def test_no_texts_are_no_rows(preprocessor):
    for given in [([],), ([], [])]:
        inputs = preprocessor.inputs(*given)
        assert {x.shape for x in inputs.values()} == {(0, preprocessor.sequence_length)}


@pytest.mark.parametrize(
    "given, rule",
    [
        ((["a"], ["b", "c"]), "must be as many"),
        (("a",), "list of strings"),
        (([1.0],), "list of strings"),
    ],
)
def test_what_are_no_texts_is_told(preprocessor, given, rule):
    with pytest.raises(ValueError, match=rule):
        preprocessor.inputs(*given)


def test_columns_of_other_names_are_told(preprocessor):
    with pytest.raises(ValueError, match="sentence"):
        preprocessor.call({"text": ["a"], "sentence": ["b"]})
    with pytest.raises(ValueError, match="at least 3"):
        ks.SpanBertTextClassifierPreprocessor(preprocessor.tokenizer, 2)
