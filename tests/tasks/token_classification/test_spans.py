import pytest
from tiny_tagger import LABELS, build

import keras_spanbert as ks
from keras_spanbert.tasks.token_classification.spans import labels_of_spans

TEXT = "annie met bob,in new york."  # Words: annie met bob , in new york .


def tags(spans, labels=LABELS, texts=(TEXT,), places=None):
    words = build().preprocessor.words(list(texts))
    found = labels_of_spans(words, list(texts), spans, labels, places)
    return [labels[i] for i in found]


def span(start, end, label="place"):
    return {"start": start, "end": end, "label": label}


def test_words_that_a_span_covers_are_in_it():
    # In any order, and with blanks around.
    spans = [span(16, 25), span(0, 6, "person"), span(10, 13, "person")]
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
        ([[span(0, 3)]], "begin and end where words do. Received: .*'ann' of 'annie' in text 0"),
        ([[span(7, 13)]], "begin and end where words do. Received: .*'et bob' of 'met bob' in te"),
        ([[span(10, 13), span(17, 22)]], "words do. Received: .*'new y' of 'new york' in text 0"),
        ([[span(0, 5, "group")]], "a type of the model's.*'group' in text 0"),
    ],
)
def test_spans_that_cannot_be_are_named(spans, message):
    with pytest.raises(ValueError, match=message):
        tags(spans)


def test_message_has_the_place_of_an_example_that_was_read():
    texts = ["rome", TEXT]
    with pytest.raises(ValueError, match="'group' in a.jsonl, line 2$"):
        tags([[], [span(0, 5, "group")]], texts=texts, places=[None, "a.jsonl, line 2"])
    with pytest.raises(ValueError, match="'group' in text 0$"):
        tags([[span(0, 4, "group")], []], texts=texts, places=[None, "a.jsonl, line 2"])
    spans = [[], [span(0, 5, "person"), span(0, 9)]]
    examples = [
        {"text": text, "entities": of, "place": f"a.jsonl, line {i}"}
        for i, (text, of) in enumerate(zip(texts, spans), start=1)
    ]
    model = build()
    for method in [model.preprocess, model.evaluate_entities]:
        with pytest.raises(ValueError, match="no word of another one.* in a.jsonl, line 2$"):
            method(examples)


def test_each_word_has_a_label_where_there_is_no_outside():
    with pytest.raises(ValueError, match="the model has no 'O'"):
        tags([[span(0, 5, "NN")]], ["NN", "VB"])
