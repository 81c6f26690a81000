import pytest
from tiny_tagger import LABELS, build

import keras_spanbert as ks
from keras_spanbert.tasks.token_classification.spans import labels_of_spans

TEXT = "annie met bob,in new york."  # Words: annie met bob , in new york .


def tags(spans, labels=LABELS, texts=(TEXT,)):
    words = build().preprocessor.words(list(texts))
    found = labels_of_spans(words, list(texts), spans, labels)
    return [labels[i] for i in found]


def span(start, end, label="place"):
    return {"start": start, "end": end, "label": label}


def test_words_that_a_span_covers_are_in_it():
    spans = [span(17, 25), span(0, 5, "person"), span(11, 12, "person")]  # In part, and any order.
    expected = ["B-person", "O", "B-person", "O", "O", "B-place", "I-place", "O"]
    assert tags([spans]) == expected
    assert tags([[], spans], texts=["", TEXT]) == expected


@pytest.mark.parametrize(
    "labels, expected",
    [
        (["O", "I-place"], ["I-place", "I-place", "I-place"]),
        (["O", *(f"{prefix}-place" for prefix in "BIES")], ["B-place", "I-place", "E-place"]),
        (["O", "place"], ["place", "place", "place"]),
    ],
)
def test_labels_of_other_schemes(labels, expected):
    assert tags([[span(14, 25)]], labels)[4:7] == expected
    if "S-place" in labels:
        assert tags([[span(17, 20)]], labels)[5] == "S-place"


def test_what_tag_gives_is_what_fit_takes():
    model = build()
    texts = [TEXT, "rome and oslo"]
    found = model.tag(texts)
    words = model.preprocessor.words(texts)
    labels = labels_of_spans(words, texts, found, LABELS)
    (first, second), _ = model._tags(texts, 32)
    assert [LABELS[i] for i in labels] == [*first, *second]
    examples = [{"text": text, "entities": of} for text, of in zip(texts, found)]
    scores = model.evaluate_entities(examples)
    assert scores["accuracy"] == 100.0 and scores["total"] == 2
    by_hand = ks.metrics.entities([first, second], [first, second])
    assert {name: scores[name] for name in by_hand} == by_hand


@pytest.mark.parametrize(
    "spans, message",
    [
        ([], "a list of entities for each text. Received: 0 for 1 texts"),
        ([None], "must be a list of {'start', 'end', 'label'}. Received: None for text 0"),
        ([[(0, 5)]], r"must be {'start', 'end', 'label'}, two int.*\(0, 5\) in text 0"),
        ([[{"start": 0, "end": 5}]], "two integers and a string"),
        ([[span(0.0, 5)]], "two integers and a string"),
        ([[span(0, 27)]], "in its text, of 26 characters. Received: .*'end': 27"),
        ([[span(-1, 5)]], "in its text, of 26 characters"),
        ([[span(5, 5)]], "in its text, of 26 characters"),
        ([[span(5, 6)]], "must hold a word. Received: .*' ' in text 0"),
        ([[span(0, 9), span(6, 13)]], "no word of another one. Received: .*'met bob' in text 0"),
        ([[span(0, 5, "group")]], "a type of the model's.*'group' in text 0"),
    ],
)
def test_spans_that_cannot_be_are_named(spans, message):
    with pytest.raises(ValueError, match=message):
        tags(spans)


def test_each_word_has_a_label_where_there_is_no_outside():
    with pytest.raises(ValueError, match="the model has no 'O'"):
        tags([[span(0, 5, "NN")]], ["NN", "VB"])
