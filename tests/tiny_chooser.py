"""A multiple choice model that trains in seconds."""

import keras
import numpy as np
from task_rows import Task, by_name, padded, tf

import keras_spanbert as ks

WORDS = ["red", "blue", "green", "white", "black", "pink"]
OTHERS = ["it is it", "is and it", "and is it.", "it and it", "and it is"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "it", "is", "and", "."]


def build(dtype=None, **kwargs):
    keras.utils.set_random_seed(3)
    preprocessor = ks.SpanBertMultipleChoicePreprocessor(ks.SpanBertTokenizer(VOCABULARY), 16)
    backbone = ks.SpanBertBackbone(
        len(VOCABULARY), 1, 2, 16, 32, dropout=0.0, max_sequence_length=16, dtype=dtype
    )
    return ks.SpanBertMultipleChoice(backbone, preprocessor, **{"dropout": 0.0, **kwargs})


def examples(count, seed=0, choices=None):
    """Returns questions with two to four choices, one of them with a color.

    Choices differ, because which of two equal choices is taken depends on rounding.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        texts = rng.choice(OTHERS, choices or rng.integers(2, 5), replace=False)
        label = int(rng.integers(len(texts)))
        texts = texts.tolist()
        texts[label] = f"it is {rng.choice(WORDS)}"
        prompt = ["it is", "it and it is"][i % 2]
        rows.append({"id": str(i), "prompt": prompt, "choices": texts, "label": label})
    return rows


def choices():
    rows = examples(10, seed=1)
    labels = [row["label"] for row in rows]
    x = by_name(rows, ["prompt", "choices"])
    arrays = {"prompt": np.array(x["prompt"]), "choices": padded(x["choices"])}
    forms = {
        "columns": (arrays, np.array(labels)),
        "lists": (x, labels),
        "contexts": ({**arrays, "context": [""] * 10}, labels),
        "examples": (rows, None),
    }
    if tf:
        forms["tensors"] = {name: tf.constant(column) for name, column in arrays.items()}, labels
    return Task(build, "choose", list(x.values()), "evaluate_choices", forms)


TASKS = [choices]
