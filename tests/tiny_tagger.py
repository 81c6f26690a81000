"""A token classification model that trains in seconds."""

import keras
import numpy as np

import keras_spanbert as ks

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
