import numpy as np
import pytest
from comparisons import assert_rows
from tiny_tagger import LABELS, build

import keras_spanbert as ks
from keras_spanbert.tasks.token_classification.preprocessor import spans_to_labels

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##c", "."]


def preprocessor(length=8, **kwargs):
    return ks.SpanBertTokenClassifierPreprocessor(
        ks.SpanBertTokenizer(VOCABULARY), length, **kwargs
    )


def test_rows_equal_the_reference(finetuning, cased_tokenizer):
    _, expected, features = finetuning("token_classification")
    rows = ks.SpanBertTokenClassifierPreprocessor(cased_tokenizer, 64).inputs(
        [sentence["words"] for sentence in expected["sentences"]]
    )
    assert_rows(rows, features)
    np.testing.assert_array_equal(rows["word_index"], features["word_index"])


def test_label_is_on_the_first_token_in_the_best_window():
    # Windows of 4 tokens with a stride of 2: 0-3, 2-5 and 4-6 of 7 tokens. The best one shows the
    # most tokens on the shorter side.
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


def test_longer_and_earlier_windows_come_first():
    # Tokens 0-3, 3-6 and 6-7.
    windows = preprocessor(6, doc_stride=3).windows([["a"] * 8])
    assert windows["is_label"].sum(axis=1).tolist() == [4, 3, 1]
    # Tokens 0-200 and 120-201. The second shows one token more, but the first has 119 more tokens,
    # each of which counts as a hundredth.
    windows = preprocessor(203, doc_stride=120).windows([["a"] * 202])
    assert windows["is_label"].sum(axis=1).tolist() == [201, 1]


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


# === Labels of spans ===
TEXT = "annie met bob,in new york."  # Words: annie met bob , in new york .


def tags(spans, labels=LABELS, texts=(TEXT,), places=None):
    words = build().preprocessor.words(list(texts))
    found = spans_to_labels(words, list(texts), spans, labels, places)
    return [labels[i] for i in found]


def span(start, end, label="place"):
    return {"start": start, "end": end, "label": label}


def test_spans_become_word_labels():
    # In any order and with surrounding blanks.
    spans = [span(16, 25), span(0, 6, "person"), span(10, 13, "person")]
    expected = ["B-person", "O", "B-person", "O", "O", "B-place", "I-place", "O"]
    assert tags([spans]) == expected
    assert tags([[], spans], texts=["", TEXT]) == expected


@pytest.mark.parametrize(
    "labels, expected",
    [
        (["O", "I-place"], ["I-place", "I-place", "I-place"]),
        (["O", *(f"{prefix}-place" for prefix in "BIES")], ["B-place", "I-place", "E-place"]),
        (["O", *(f"{prefix}-place" for prefix in "BILU")], ["B-place", "I-place", "L-place"]),
        (["O", "place"], ["place", "place", "place"]),
    ],
)
def test_other_label_schemes(labels, expected):
    assert tags([[span(14, 25)]], labels)[4:7] == expected
    for single in {"S-place", "U-place"}.intersection(labels):
        assert tags([[span(17, 20)]], labels)[5] == single


def test_output_of_tag_can_be_scored():
    model = build()
    texts = [TEXT, "rome and oslo"]
    found = model.tag(texts)
    examples = [{"text": text, "entities": of} for text, of in zip(texts, found)]
    scores = model.evaluate_entities(examples)
    assert scores["accuracy"] == 100.0 and scores["total"] == 2
    assert model.evaluate_entities(examples[:1])["accuracy"] == 100.0


def test_error_has_the_file_and_line_of_the_example():
    spans = [[], [span(0, 5, "person"), span(0, 9)]]
    examples = [
        {"text": text, "entities": of, "place": place}
        for text, of, place in zip(["rome", TEXT], spans, [None, "a.jsonl, line 2"])
    ]
    model = build()
    for method in [model.preprocess, model.evaluate_entities]:
        with pytest.raises(ValueError, match="no word of another one.* in a.jsonl, line 2$"):
            method(examples)


def test_labels_without_outside_need_a_label_for_each_word():
    with pytest.raises(ValueError, match="the model has no 'O'"):
        tags([[span(0, 5, "NN")]], ["NN", "VB"])
