"""Rows of texts and pairs, compared with the released script."""

import json

import numpy as np
import pytest

import keras_spanbert as ks

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"]


@pytest.fixture
def preprocessor():
    tokenizer = ks.SpanBertTokenizer(VOCABULARY)
    return ks.SpanBertTextClassifierPreprocessor(tokenizer, sequence_length=8)


def tokens(preprocessor, inputs, row=0):
    names = preprocessor.tokenizer.get_vocabulary()
    return " ".join(names[i] for i in inputs["token_ids"][row] if i)


@pytest.mark.parametrize(
    "first, second, row",
    [
        ("a b c d e f a", "", "[CLS] a b c d e f [SEP]"),
        # Blank but not empty: space for a second [SEP] is reserved but not used.
        ("a b c d e f a", " ", "[CLS] a b c d e [SEP]"),
        ("a b c d", "e f", "[CLS] a b c [SEP] e f [SEP]"),
        # Equal lengths: the second one is truncated first.
        ("a b c", "d e f", "[CLS] a b c [SEP] d e [SEP]"),
    ],
)
def test_longer_text_is_truncated(preprocessor, first, second, row):
    assert tokens(preprocessor, preprocessor.inputs([first], [second])) == row


def test_rows_equal_the_released_script(shared_data):
    folder = shared_data / "reference" / "finetuning" / "classification"
    features = np.load(folder / "features.npz")
    expected = json.loads((folder / "expected.json").read_text())["tasks"]
    tokenizer = ks.SpanBertTokenizer(str(shared_data / "reference/vocab/bert_base_cased.txt"))
    groups = sorted({name.rsplit("/", 1)[0] for name in features.files})
    assert len(groups) == 40
    for group in groups:
        task, split, length = group.split("/")
        rows = expected[task]["sets"][split]
        preprocessor = ks.SpanBertTextClassifierPreprocessor(tokenizer, int(length))
        inputs = preprocessor.inputs(
            [row["text_a"] for row in rows], [row["text_b"] or "" for row in rows]
        )
        for name, field in [
            ("token_ids", "input_ids"),
            ("segment_ids", "segment_ids"),
            ("padding_mask", "input_mask"),
        ]:
            np.testing.assert_array_equal(inputs[name], features[f"{group}/{field}"], group)
