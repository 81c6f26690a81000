"""What is served against `extract`."""

import numpy as np
import pytest
import tensorflow as tf
from tiny_extractor import TYPES, VERBS, build

import keras_spanbert as ks
from keras_spanbert.data import semeval2010

TEXTS = [
    # Text, subject, object.
    ("ann runs acme", (0, 3), (9, 13)),
    ("  the old\u3000ann  left bob . ", (10, 13), (20, 23)),
    ("annbob saw-LRB-ibex", (0, 3), (3, 6)),  # Cut within words.
    ("ann runs the old firm", (0, 3), (4, 21)),
    ("ann runs the old firm", (4, 21), (9, 16)),  # One in the other.
    ("ann left the old firm", (0, 12), (4, 21)),
    ("\u00e9 \U0001f600 ann [SEP] [MASK] saw\x1cthe acme \u200b.", (4, 7), (23, 31)),
    ("x" * 120 + " ann saw acme", (0, 120), (129, 133)),
    ("ann" + " and" * 60 + " left" + " and" * 60 + " bob", (0, 3), (489, 492)),
    ("old " * 40 + "ann left bob" + " firm" * 40, (160, 163), (169, 172)),
    ("ann " * 30 + "left " + "bob " * 30, (0, 119), (125, 244)),  # Too long themselves.
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
    outputs = function(*(tf.constant(column) for column in [texts, *spans, *types]))
    assert outputs["scores"].shape == (len(texts), len(model.relations))
    best = tf.reduce_max(outputs["scores"], axis=1)
    np.testing.assert_allclose(outputs["score"], best, rtol=1e-6)
    return answers_of(outputs)


def answers_of(outputs):
    found = zip(outputs["relation"].numpy(), outputs["score"].numpy())
    return [{"relation": relation.decode(), "score": score} for relation, score in found]


def check(answers, wanted):
    assert [a["relation"] for a in answers] == [a["relation"] for a in wanted]
    scores = [a["score"] for a in answers]
    np.testing.assert_allclose(scores, [a["score"] for a in wanted], atol=1e-5)


@pytest.mark.parametrize(
    "mode, truncation",
    [(m, "window") for m in ["ner", "text", "text_ner", "ner_text"]] + [("text_ner", "released")],
)
def test_serves_what_extract_gives(mode, truncation):
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
    check(served(model, compiled(model), texts, subjects, objects, *types), wanted)


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
        ("ann saw", (0, 0), (4, 7), "PERSON", "must be characters of the text"),
        ("ann saw", (-1, 3), (4, 7), "PERSON", "must be characters of the text"),
        ("ann saw", (3, 4), (4, 7), "PERSON", "not all blank"),
        ("", (0, 1), (0, 1), "PERSON", "must be characters of the text"),
        ("ann saw", (0, 3), (4, 7), "DOG", "`object_type` must be one of PERSON"),
    ],
)
def test_mistake_is_told(of_people, text, subject, object, kind, error):
    with pytest.raises(tf.errors.InvalidArgumentError, match=error):
        served(*of_people, [text], [subject], [object], ["PERSON"], [kind])


def test_types_must_be_known_to_serve():
    with pytest.raises(ValueError, match="must know types to serve"):
        compiled(build("ner")).get_concrete_function()


def test_exported_model_gives_the_answers(trained_extractor, tmp_path):
    ks.serving.export_saved_model(trained_extractor, str(tmp_path / "1"))
    endpoint = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    texts = [f"{who} {verb} the {what}" for who in TYPES for verb in VERBS for what in TYPES]
    whos, whats = ([text.split()[i] for text in texts] for i in (0, 3))
    subjects = [(0, len(who)) for who in whos]
    objects = [(len(text) - len(what), len(text)) for text, what in zip(texts, whats)]
    types = [[TYPES[name] for name in names] for names in (whos, whats)]
    columns = {
        "text": texts,
        **dict(zip(["subject_start", "subject_end"], zip(*subjects))),
        **dict(zip(["object_start", "object_end"], zip(*objects))),
        **dict(zip(["subject_type", "object_type"], types)),
    }
    outputs = endpoint(**{name: tf.constant(column) for name, column in columns.items()})
    check(answers_of(outputs), trained_extractor.extract(texts, subjects, objects, *types))
    nothing = endpoint(**{name: tf.constant(column)[:0] for name, column in columns.items()})
    assert nothing["scores"].shape == (0, len(trained_extractor.relations))


def test_sentences_of_semeval(shared_data):
    lines = (shared_data / "data" / "semeval2010_task8" / "TRAIN_FILE.TXT").read_text("utf-8")
    sentences = [line.split("\t")[1][1:-1] for line in lines.splitlines() if "\t" in line][:200]
    texts, spans = [], [[], []]
    for sentence in sentences:
        edges = []
        for tag in ["<e1>", "</e1>", "<e2>", "</e2>"]:
            edges.append(sentence.index(tag))
            sentence = sentence.replace(tag, "")
        texts.append(sentence)
        spans[0].append(tuple(edges[:2]))
        spans[1].append(tuple(edges[2:]))
    tokenizer = ks.SpanBertTokenizer(
        str(shared_data / "reference" / "vocab" / "bert_base_cased.txt")
    )
    backbone = ks.SpanBertBackbone(
        tokenizer.vocabulary_size(), 1, 2, 16, 32, max_sequence_length=32, initializer_range=0.2
    )
    model = ks.SpanBertRelationExtractor(
        backbone,
        list(semeval2010.RELATIONS),
        # Some are longer.
        ks.SpanBertRelationExtractorPreprocessor(tokenizer, 32, "text"),
    )
    wanted = model.extract(texts, *spans)
    assert len({round(answer["score"], 4) for answer in wanted}) > 50
    check(served(model, compiled(model), texts, *spans), wanted)
