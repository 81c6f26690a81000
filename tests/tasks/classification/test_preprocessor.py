"""Rows of texts and pairs, compared with the released script."""

import json

import numpy as np

import keras_spanbert as ks


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


def test_blank_second_text_reserves_its_separator():
    tokenizer = ks.SpanBertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"])
    preprocessor = ks.SpanBertTextClassifierPreprocessor(tokenizer, sequence_length=8)
    for second, size in [("", 8), (" ", 7)]:
        assert preprocessor.inputs(["a b c d e f a"], [second])["padding_mask"].sum() == size
