"""The tasks with labelled rows and their data, for tests of what all of them do.

Ten rows each. Questions and lists of words have one row with several windows.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tiny_answerer
import tiny_chooser
import tiny_classifier
import tiny_extractor
import tiny_tagger

from keras_spanbert.metrics.entities import read_tags


@dataclasses.dataclass
class Task:
    """A task: its model and data.

    Attributes:
        build: function that returns an untrained model.
        ask: name of the model's method that returns answers.
        columns: the arguments of that method, ten rows each.
        evaluate: name of the model's method that scores examples.
        forms: the same ten rows as `(x, y)` in different containers, by name.
            "columns" are NumPy arrays that can be sliced.
        labels: the argument of the class that names its labels, or `None`.
        noun: the word for a row in messages.
    """

    build: Callable
    ask: str
    columns: list
    evaluate: str
    forms: dict
    labels: str | None = None
    noun: str = "row"


def padded(rows):
    """Converts lists of strings to an array padded with `""`."""
    longest = max(map(len, rows))
    return np.array([[*row, *[""] * (longest - len(row))] for row in rows])


def as_arrays(columns):
    return {name: np.array(column) for name, column in columns.items()}


def by_name(rows, names):
    return {name: [row[name] for row in rows] for name in names}


def texts():
    texts, labels = tiny_classifier.rows(10)
    numbers = [tiny_classifier.CLASSES.index(label) for label in labels]
    forms = {
        "columns": (np.array(texts), np.array(labels)),
        "lists": (texts, labels),
        "numbers": ({"text": tuple(texts)}, np.array(numbers)),
        "objects": (np.array(texts, object), np.array(labels, object)),
        "examples": (tiny_classifier.examples(texts, labels), None),
    }
    return Task(tiny_classifier.build, "classify", [texts], "evaluate_texts", forms, "class_names")


def texts_with_several_labels():
    texts, labels = tiny_classifier.multi_label_rows(10)
    numbers = tiny_classifier.multi_hot(labels)
    forms = {
        "columns": (np.array(texts), padded(labels)), "lists": (texts, labels),
        "sets": (texts, [set(names) for names in labels]),
        "ragged": (tf.constant(texts), tf.ragged.constant(labels)), "numbers": (texts, numbers),
        "lists of numbers": (texts, numbers.tolist()), "booleans": (texts, numbers.astype(bool)),
        "floats": (texts, numbers.astype("float32")),
        "examples": (tiny_classifier.examples(texts, labels), None),
    }  # fmt: skip
    return Task(
        tiny_classifier.build_multi_label, "classify", [texts], "evaluate_texts", forms,
        "class_names",
    )  # fmt: skip


def questions():
    questions, contexts, answers = tiny_answerer.examples(10, seed=1)
    contexts[1] = " ".join([contexts[1]] * 4)
    answers[2] = None
    y = {
        "text": np.array([answer["text"] if answer else "" for answer in answers]),
        "answer_start": np.array([answer["answer_start"] if answer else -1 for answer in answers]),
    }
    x = {"question": questions, "context": contexts}
    forms = {
        "columns": (as_arrays(x), y),
        "lists": (x, answers),
        "tuples": ({name: tuple(column) for name, column in x.items()}, tuple(answers)),
        "tensors": ({name: tf.constant(column) for name, column in x.items()}, y),
    }
    return Task(
        tiny_answerer.build, "answer", [questions, contexts], "evaluate_squad", forms,
        noun="question",
    )  # fmt: skip


def choices():
    rows = tiny_chooser.examples(10, seed=1)
    labels = [row["label"] for row in rows]
    x = by_name(rows, ["prompt", "choices"])
    arrays = {"prompt": np.array(x["prompt"]), "choices": padded(x["choices"])}
    forms = {
        "columns": (arrays, np.array(labels)),
        "lists": (x, labels),
        "tensors": ({name: tf.constant(column) for name, column in arrays.items()}, labels),
        "contexts": ({**arrays, "context": [""] * 10}, labels),
        "examples": (rows, None),
    }
    return Task(tiny_chooser.build, "choose", list(x.values()), "evaluate_choices", forms)


def relations():
    rows = tiny_extractor.examples(10, seed=2)
    x, labels = tiny_extractor.columns(rows)
    numbers = np.array([tiny_extractor.RELATIONS.index(label) for label in labels])
    words = [row["token"] for row in rows]
    spans = [
        [(row[f"{kind}_start"], row[f"{kind}_end"] + 1) for row in rows] for kind in ["subj", "obj"]
    ]
    forms = {
        "columns": (as_arrays(x), np.array(labels)),
        "lists": (x, labels),
        "numbers": (x, numbers),
        "words": ({**x, "text": words, **dict(zip(["subject", "object"], spans))}, labels),
        "examples": (rows, None),
    }

    def build(**kwargs):
        model = tiny_extractor.build("ner_text", **kwargs)
        model.preprocessor.adapt(rows)
        return model

    return Task(build, "extract", list(x.values()), "evaluate_relations", forms, "relations")


def words():
    rows = tiny_tagger.examples(10, seed=1)
    rows[1] = {name: column * 6 for name, column in rows[1].items()}
    words, tags = ([row[name] for row in rows] for name in ["words", "tags"])
    texts = [" ".join(row) for row in words]
    entities = [_entities(*row) for row in zip(words, tags)]
    numbers = [[tiny_tagger.LABELS.index(tag) for tag in row] for row in tags]
    forms = {
        "columns": ({"words": padded(words)}, padded(tags)),
        "lists": (words, numbers),
        "ragged": (tf.ragged.constant(words), tf.ragged.constant(tags)),
        "examples": (rows, None),
        "texts": (texts, entities),
        "examples of texts": (
            [{"text": text, "entities": found} for text, found in zip(texts, entities)],
            None,
        ),
    }
    return Task(
        tiny_tagger.build, "tag", [texts], "evaluate_entities", forms, "labels", noun="text"
    )


def _entities(words, tags):
    """Returns the entities of a text, in characters."""
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    return [
        {"start": int(ends[i] - len(words[i])), "end": int(ends[j - 1]), "label": label}
        for label, i, j in read_tags(tags)
    ]


def with_large_weights(model):
    """Replaces the weights of kernels and heads, so that answers differ clearly."""
    generator = np.random.default_rng(0)
    weights = [weight for weight in model.backbone.weights if weight.name == "kernel"]
    for name in heads(model):
        weights += getattr(model, name).weights
    for weight in weights:
        weight.assign(generator.normal(scale=0.4, size=weight.shape))
    return model


def heads(model):
    return [name for name in ["pooler", "classifier", "qa_outputs"] if hasattr(model, name)]


TASKS = {
    make.__name__: make()
    for make in [texts, texts_with_several_labels, questions, choices, relations, words]
}
