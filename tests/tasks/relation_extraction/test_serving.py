"""The served function gives the results of `extract`."""

import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_close
from tiny_extractor import build

import keras_spanbert as ks

TEXTS = [
    # Text, subject, object.
    ("ann runs acme", (0, 3), (9, 13)),
    ("  the old\u3000ann  left bob . ", (10, 13), (20, 23)),
    ("annbob saw-LRB-ibex", (0, 3), (3, 6)),  # Spans within words.
    ("ann runs the old firm", (0, 3), (4, 21)),
    ("ann runs the old firm", (4, 21), (9, 16)),  # Nested spans.
    ("ann left the old firm", (0, 12), (4, 21)),
    ("\u00e9 \U0001f600 ann [SEP] [MASK] saw\x1cthe acme \u200b.", (4, 7), (23, 31)),
    ("x" * 120 + " ann saw acme", (0, 120), (129, 133)),
    ("ann" + " and" * 60 + " left" + " and" * 60 + " bob", (0, 3), (489, 492)),
    ("old " * 40 + "ann left bob" + " firm" * 40, (160, 163), (169, 172)),
    ("ann " * 30 + "left " + "bob " * 30, (0, 119), (125, 244)),  # Spans longer than the model.
    ("-LRB- Ann -rrb- RUNS \u0130 acme", (0, 5), (10, 15)),
]


def compiled(model):
    function, signature = model.serving_function()
    assert [spec.name for spec in signature] == [
        *("text", "subject_start", "subject_end", "object_start", "object_end"),
        *(["subject_type", "object_type"] if model.preprocessor.mode != "text" else []),
    ]
    return tf.function(function, input_signature=signature)


def served(model, function, texts, subjects, objects, *types):
    spans = [np.array(spans, "int32")[:, i] for spans in (subjects, objects) for i in range(2)]
    columns = [tf.constant(column) for column in [texts, *spans, *types]]
    outputs = function(*columns)
    assert outputs["scores"].shape == (len(texts), len(model.relations))
    assert function(*(column[:0] for column in columns))["scores"].shape[0] == 0
    best = tf.reduce_max(outputs["scores"], axis=1)
    np.testing.assert_allclose(outputs["score"], best, rtol=1e-6)
    found = zip(outputs["relation"].numpy(), outputs["score"].numpy())
    return [{"relation": relation.decode(), "score": score} for relation, score in found]


@pytest.mark.parametrize(
    "mode, truncation", [("ner", "window"), ("text", "window"), ("text_ner", "released")]
)
def test_serving_equals_extract(mode, truncation):
    model = build(mode)
    model.preprocessor = ks.SpanBertRelationExtractorPreprocessor(
        model.preprocessor.tokenizer, 16, mode, truncation=truncation
    )
    texts, subjects, objects = map(list, zip(*TEXTS))
    types = [["PERSON", "COMPANY"] * 6, ["COMPANY", "COMPANY", "PERSON"] * 4]
    types = types if mode != "text" else []
    if types:
        columns = {"text": texts, "subject": subjects, "object": objects}
        model.preprocessor.adapt({**columns, "subject_type": types[0], "object_type": types[1]})
    wanted = model.extract(texts, subjects, objects, *types)
    assert len({round(answer["score"], 6) for answer in wanted}) > 3
    found = served(model, compiled(model), texts, subjects, objects, *types)
    assert_close(found, wanted, 1e-5)


@pytest.fixture(scope="module")
def of_people():
    model = build("ner")
    model.preprocessor.adapt(
        {"text": ["ann saw"], "subject": [(0, 3)], "object": [(4, 7)]}
        | {"subject_type": ["PERSON"], "object_type": ["PERSON"]}
    )
    return model, compiled(model)


@pytest.mark.parametrize(
    "text, subject, object, kind, error",
    [
        ("ann saw", (0, 3), (4, 8), "PERSON", "must be characters of the text"),
        ("ann saw", (-1, 3), (4, 7), "PERSON", "must be characters of the text"),
        ("ann saw", (3, 4), (4, 7), "PERSON", "not all blank"),
        ("ann saw", (0, 3), (4, 7), "DOG", "`object_type` must be one of PERSON"),
    ],
)
def test_invalid_inputs_are_refused(of_people, text, subject, object, kind, error):
    with pytest.raises(tf.errors.InvalidArgumentError, match=error):
        served(*of_people, [text], [subject], [object], ["PERSON"], [kind])


def test_serving_needs_known_types():
    with pytest.raises(ValueError, match="needs `subject_type` .* known types: none"):
        compiled(build("ner")).get_concrete_function()
