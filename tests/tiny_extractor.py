"""A relation extraction model that trains in seconds."""

import keras
import numpy as np
from task_rows import Task, as_arrays

import keras_spanbert as ks

NAMES = ["ann", "bob", "acme", "ibex"]
TYPES = {"ann": "PERSON", "bob": "PERSON", "acme": "COMPANY", "ibex": "COMPANY"}
VERBS = {"saw": "no_relation", "runs": "head", "left": "former_head"}
VOCABULARY = ["[PAD]", *(f"[unused{i}]" for i in range(1, 10)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY += [*NAMES, *VERBS, "the", "old", "firm", "and", "."]
RELATIONS = list(VERBS.values())
# Longer than all rows, so that there is one shape to compile, with batches of 32.
LENGTH = 16


def build(mode="text", hidden_dim=16, relations=RELATIONS, length=LENGTH, **kwargs):
    keras.utils.set_random_seed(3)
    tokenizer = ks.SpanBertTokenizer(VOCABULARY)
    preprocessor = ks.SpanBertRelationExtractorPreprocessor(tokenizer, length, mode)
    # Learns in seconds with these initial values.
    sizes = {"dropout": 0.0, "max_sequence_length": length, "initializer_range": 0.2}
    backbone = ks.SpanBertBackbone(len(VOCABULARY), 1, 2, hidden_dim, 2 * hidden_dim, **sizes)
    kwargs = {"dropout": 0.0, **kwargs}
    return ks.SpanBertRelationExtractor(backbone, relations, preprocessor, **kwargs)


def examples(count, seed=0):
    """Returns examples in which the verb determines the relation."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(count):
        who, what = (str(name) for name in rng.choice(NAMES, 2))
        verb = str(rng.choice(list(VERBS)))
        before = ["the", "old"][: int(rng.integers(3))]
        words = [*before, who, verb, "the", what, "firm"][: len(before) + int(rng.integers(4, 6))]
        first, second = len(before), len(before) + 3
        found.append(
            {
                "id": f"{seed}-{i}",
                "token": words,
                **{"subj_start": first, "subj_end": first, "subj_type": TYPES[who]},
                **{"obj_start": second, "obj_end": second, "obj_type": TYPES[what]},
                "relation": VERBS[verb],
            }
        )
    return found


def columns(found):
    """Returns columns of texts and their relations."""
    given = {n: [] for n in ("text", "subject", "object", "subject_type", "object_type")}
    for example in found:
        words = example["token"]
        starts = np.cumsum([0, *(len(word) + 1 for word in words)])
        given["text"].append(" ".join(words))
        for name, key in [("subject", "subj"), ("object", "obj")]:
            i = example[f"{key}_start"]
            given[name].append((int(starts[i]), int(starts[i]) + len(words[i])))
            given[f"{name}_type"].append(example[f"{key}_type"])
    return given, [example["relation"] for example in found]


def train(mode="text", **kwargs):
    model = build(mode, **kwargs)
    model.compile(ks.AdamW(5e-3))
    model.fit(examples(320), epochs=5, batch_size=32, verbose=0)
    return model


def relations():
    rows = examples(10, seed=2)
    x, labels = columns(rows)
    numbers = np.array([RELATIONS.index(label) for label in labels])
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

    def build_adapted(**kwargs):
        model = build("ner_text", **kwargs)
        model.preprocessor.adapt(rows)
        return model

    return Task(
        build_adapted, "extract", list(x.values()), "evaluate_relations", forms, "relations"
    )


TASKS = [relations]
