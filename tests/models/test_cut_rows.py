"""Preprocessors log how many rows are truncated, once for each number of rows."""

import pytest

import keras_spanbert as ks

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"]
SYMBOLS = {"SUBJ_START": "[UNK]", "SUBJ_END": "[MASK]", "OBJ_START": "c", "OBJ_END": "a"}
EXAMPLE = {
    **{"subj_start": 0, "subj_end": 0, "obj_start": 1, "obj_end": 1},
    **{"subj_type": None, "obj_type": None, "relation": None},
}
LENGTH = 11


def build(cls, **kwargs):
    return cls(ks.SpanBertTokenizer(VOCABULARY), sequence_length=LENGTH, **kwargs)


def make_relations(texts):
    preprocessor = build(ks.SpanBertRelationExtractorPreprocessor, mode="text", symbols=SYMBOLS)
    preprocessor([{"token": text.split(), **EXAMPLE} for text in texts])


TEXT = build(ks.SpanBertTextClassifierPreprocessor)
CHOICE = build(ks.SpanBertMultipleChoicePreprocessor)
WORD = build(ks.SpanBertTokenClassifierPreprocessor)


@pytest.mark.parametrize(
    ("make_rows", "num_others"),  # The number of other tokens in a row.
    [
        (lambda texts: TEXT.inputs(["a"] * len(texts), texts), 4),
        (lambda texts: CHOICE.inputs(["a"], [texts]), 4),
        (lambda texts: WORD.inputs([text.split() for text in texts]), 2),
        (make_relations, 6),
    ],
)
def test_cut_rows_are_counted(make_rows, num_others, caplog):
    most = LENGTH - num_others
    make_rows(["b " * size for size in [2, most, most - 1, most]])
    assert not caplog.messages
    make_rows(["b " * size for size in [most + 1, 2, most, most + 7]])
    assert caplog.messages == [
        "Rows longer than 11 tokens were cut: 2 of 4. `sequence_length` "
        "(--sequence_length) changes this"
    ]


def test_calls_of_the_same_size_are_logged_once(caplog):
    preprocessor = build(ks.SpanBertTextClassifierPreprocessor)
    for _ in range(2):
        preprocessor(["b " * 10] * 1000 + ["b"] * 500)
        preprocessor(["b " * 10, "b"])
        preprocessor(["b " * 10] * 2)
    logged = [message.split(": ")[1].partition(". ")[0] for message in caplog.messages]
    assert logged == ["1,000 of 1,500", "1 of 2"]
