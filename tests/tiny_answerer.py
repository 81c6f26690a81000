"""A question answering model that trains in seconds."""

import keras
import numpy as np
from task_rows import Task, as_arrays, tf

import keras_spanbert as ks

NAMES = ["ann", "bob", "eve", "ida", "joe", "kim"]
VERBS = ["wrote", "read", "sold"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *NAMES, *VERBS, "who", "it", ".", "and"]


def build(hidden_dim=32, **kwargs):
    keras.utils.set_random_seed(3)
    tokenizer = ks.SpanBertTokenizer(VOCABULARY)
    preprocessor = ks.SpanBertQuestionAnswererPreprocessor(tokenizer, 24, 8, 6)
    backbone = ks.SpanBertBackbone(
        len(VOCABULARY), 2, 4, hidden_dim, 64, dropout=0.0, max_sequence_length=24
    )
    return ks.SpanBertQuestionAnswerer(backbone, preprocessor, **kwargs)


def examples(count, words=9, seed=0):
    """Returns questions that ask for a name in the context."""
    rng = np.random.default_rng(seed)
    contexts, answers = [], []
    for _ in range(count):
        context = [str(word) for word in rng.choice([*VERBS, "it", "and"], words)]
        i, name = int(rng.integers(words)), str(rng.choice(NAMES))
        context[i] = name
        contexts.append(" ".join(context) + ".")
        answers.append({"text": name, "answer_start": contexts[-1].index(name)})
    return ["who wrote it"] * count, contexts, answers


def train(**kwargs):
    model = build(**kwargs)
    model.compile(ks.AdamW(3e-3))
    questions, contexts, answers = examples(300)
    model.fit(
        {"question": questions, "context": contexts}, answers, epochs=4, batch_size=32, verbose=0
    )
    return model


def questions():
    questions, contexts, answers = examples(10, seed=1)
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
    }
    if tf:
        forms["tensors"] = {name: tf.constant(column) for name, column in x.items()}, y
    return Task(
        build, "answer", [questions, contexts], "evaluate_squad", forms,
        noun="question",
    )  # fmt: skip


TASKS = [questions]
