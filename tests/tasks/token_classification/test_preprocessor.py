import json

import numpy as np
import pytest
import tensorflow.experimental.numpy as tnp

import keras_spanbert as ks
from keras_spanbert.text.tokens import doc_spans, is_max_context

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##c", "."]


def preprocessor(length=8, **kwargs):
    return ks.SpanBertTokenClassifierPreprocessor(
        ks.SpanBertTokenizer(VOCABULARY), length, **kwargs
    )


@pytest.fixture(scope="module")
def reference(shared_data):
    folder = shared_data / "reference"
    expected = json.loads((folder / "finetuning/token_classification/expected.json").read_text())
    tokenizer = ks.SpanBertTokenizer(str(folder / "vocab" / "bert_base_cased.txt"))
    with np.load(folder / "finetuning/token_classification/features.npz") as file:
        return expected["sentences"], tokenizer, dict(file)


def test_rows_equal_the_reference(reference):
    sentences, tokenizer, features = reference
    rows = ks.SpanBertTokenClassifierPreprocessor(tokenizer, 64).inputs(
        [sentence["words"] for sentence in sentences]
    )
    names = {"token_ids": "input_ids", "padding_mask": "input_mask"}
    for name, array in rows.items():
        assert array.dtype == np.int32
        np.testing.assert_array_equal(array, features[names.get(name, name)], err_msg=name)


def test_label_is_on_the_first_token_in_the_best_window():
    # Windows of 4 tokens with a stride of 2: 0-3, 2-5 and 4-6 of 7 tokens.
    windows = preprocessor(6, doc_stride=2).windows([["a", "bc", "a", "a", "bc"]])
    assert windows["example_index"].tolist() == [0, 0, 0]
    assert windows["word_index"].tolist() == [
        [-1, 0, 1, 1, 2, -1],
        [-1, 1, 2, 3, 4, -1],
        [-1, 3, 4, 4, -1, -1],
    ]
    assert windows["is_label"].astype(int).tolist() == [
        [0, 1, 1, 0, 0, 0],
        [0, 0, 1, 1, 0, 0],
        [0, 0, 1, 0, 0, 0],
    ]


@pytest.mark.parametrize("xp", [np, tnp])
def test_best_windows_of_tokens_by_hand(xp):
    # The same windows. The best one shows the most tokens on the shorter side.
    spans = doc_spans(xp, np.int32([1]), np.int32([7]), length=6, stride=2)
    is_best = np.asarray(is_max_context(xp, spans, length=6, stride=2))
    assert is_best.astype(int).tolist() == [
        [0, 1, 1, 1, 0, 0],
        [0, 0, 1, 1, 0, 0],
        [0, 0, 1, 1, 0, 0],
    ]


@pytest.mark.parametrize("length, stride", [(3, None), (7, 1), (16, None), (16, 14)])
def test_each_word_with_tokens_has_one_label_in_all_windows(length, stride):
    rng = np.random.default_rng(0)
    texts = [rng.choice(["a", "bc", "xyz", "\u200b", "."], n).tolist() for n in [0, 1, 40, 301]]
    windows = preprocessor(length, doc_stride=stride).windows(texts)
    places = np.nonzero(windows["is_label"])
    found = zip(windows["example_index"][places[0]], windows["word_index"][places])
    expected = [
        (i, j) for i, text in enumerate(texts) for j, word in enumerate(text) if word != "\u200b"
    ]
    assert sorted(found) == expected


def test_words_of_strings_come_from_the_tokenizer():
    texts = ["a.bc  xyz", "", "\u200b", "bc\ud800 a"]
    words = preprocessor().words(texts)
    assert words.num_words.tolist() == [4, 0, 0, 2]
    slices = [
        text[start:end]
        for text, bounds in zip(texts, np.split(words.bounds, np.cumsum(words.num_words)))
        for start, end in bounds
    ]
    assert slices == ["a", ".", "bc", "xyz", "bc", "a"]
    windows = preprocessor().windows(texts)
    assert windows["is_label"].sum(axis=1).tolist() == [4, 0, 0, 2]


def test_default_stride_and_invalid_words():
    with pytest.raises(ValueError, match=r"`words` must be a list of lists of strings.*\['a b'\]"):
        preprocessor().inputs(["a b"])
    assert preprocessor(512).doc_stride == 128 and preprocessor(64).doc_stride == 31
    assert preprocessor(3).doc_stride == 1
