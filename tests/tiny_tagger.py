"""A token classification model that trains in seconds."""

import keras
import numpy as np
from task_rows import Task, padded, tf

import keras_spanbert as ks
from keras_spanbert.metrics.entities import read_tags

PEOPLE = ["ann", "bob", "eve"]
PLACES = ["oslo", "rome"]
OTHERS = ["lives", "in", "and", "met"]
# "new york" is a place with two words, and "annie" a person with two tokens.
VOCABULARY = [
    *["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PEOPLE, *PLACES, *OTHERS],
    *["new", "york", "##ie", ".", ",", "old"],
]
LABELS = ["O", "B-person", "I-person", "B-place", "I-place"]


def build(length=16, labels=LABELS, dropout=0.0):
    keras.utils.set_random_seed(3)
    tokenizer = ks.SpanBertTokenizer(VOCABULARY)
    preprocessor = ks.SpanBertTokenClassifierPreprocessor(tokenizer, length)
    backbone = ks.SpanBertBackbone(
        len(VOCABULARY), 1, 2, 16, 32, dropout=0.0, max_sequence_length=length
    )
    return ks.SpanBertTokenClassifier(backbone, labels, preprocessor, dropout)


def examples(count, seed=0):
    """Returns sentences with people and places."""
    rng = np.random.default_rng(seed)
    parts = [
        *(([name], ["B-person"]) for name in [*PEOPLE, "annie"]),
        *(([name], ["B-place"]) for name in PLACES),
        (["new", "york"], ["B-place", "I-place"]),
        *(([word], ["O"]) for word in [*OTHERS, "old", ","]),
    ]
    found = []
    for _ in range(count):
        chosen = [parts[i] for i in rng.integers(len(parts), size=int(rng.integers(2, 9)))]
        words, tags = ([x for part in chosen for x in part[side]] for side in (0, 1))
        found.append({"words": [*words, "."], "tags": [*tags, "O"]})
    return found


def train():
    model = build()
    model.compile(ks.AdamW(2e-2))
    model.fit(examples(320), epochs=4, batch_size=32, verbose=0)
    return model


def words():
    rows = examples(10, seed=1)
    rows[1] = {name: column * 6 for name, column in rows[1].items()}
    words, tags = ([row[name] for row in rows] for name in ["words", "tags"])
    texts = [" ".join(row) for row in words]
    entities = [_entities(*row) for row in zip(words, tags)]
    numbers = [[LABELS.index(tag) for tag in row] for row in tags]
    forms = {
        "columns": ({"words": padded(words)}, padded(tags)),
        "lists": (words, numbers),
        "examples": (rows, None),
        "texts": (texts, entities),
        "examples of texts": (
            [{"text": text, "entities": found} for text, found in zip(texts, entities)],
            None,
        ),
    }
    if tf:
        forms["ragged"] = tf.ragged.constant(words), tf.ragged.constant(tags)
    return Task(build, "tag", [texts], "evaluate_entities", forms, "labels", noun="text")


def _entities(words, tags):
    """Returns the entities of a text, in characters."""
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    return [
        {"start": int(ends[i] - len(words[i])), "end": int(ends[j - 1]), "label": label}
        for label, i, j in read_tags(tags)
    ]


TASKS = [words]
