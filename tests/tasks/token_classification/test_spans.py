import pytest
from tiny_tagger import LABELS, build

from keras_spanbert.tasks.token_classification.preprocessor import spans_to_labels

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
