"""Text classifiers, of one or of several labels per text, that train in seconds."""

import keras
import numpy as np
from task_rows import Task, padded, tf

import keras_spanbert as ks

WORDS = [f"w{i}" for i in range(13)]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
CLASSES = ["bad", "good"]


def build(num_classes=None, class_names=None, **kwargs):
    """Returns a classifier, of the two `CLASSES` unless the arguments name others."""
    if num_classes is None and class_names is None:
        class_names = CLASSES
    keras.utils.set_random_seed(2)
    sizes = {"dropout": 0.0, "max_sequence_length": 24, "initializer_range": 0.2}
    backbone = ks.SpanBertBackbone(len(VOCABULARY), 1, 2, 32, 64, **sizes)
    preprocessor = ks.SpanBertTextClassifierPreprocessor(ks.SpanBertTokenizer(VOCABULARY), 24)
    arguments = {"class_names": class_names, "dropout": 0.0, **kwargs}
    return ks.SpanBertTextClassifier(backbone, num_classes, preprocessor, **arguments)


def build_multi_label(class_names=WORDS, **kwargs):
    return build(class_names=class_names, multi_label=True, **kwargs)


def rows(count, seed=0):
    """Returns texts and their classes. One of the first four words determines the class."""
    generator = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(count):
        label = str(generator.choice(CLASSES))
        word = generator.choice(WORDS[:2] if label == "good" else WORDS[2:4])
        rest = generator.choice(WORDS[4:], int(generator.integers(1, 18)))
        texts.append(" ".join([word, *rest]))
        labels.append(label)
    return texts, labels


def multi_label_rows(count, seed=0):
    """Returns texts and their lists of labels, the words that are among the first three.

    Batches have fewer tokens than the model has labels.
    """
    generator = np.random.default_rng(seed)
    labels = [[name for name in WORDS[:3] if generator.integers(2)] for _ in range(count)]
    others = generator.choice(WORDS[3:], [count, 2])
    texts = [" ".join(generator.permutation([*n, *rest])) for n, rest in zip(labels, others)]
    return texts, labels


def examples(texts, labels):
    return [{"text": text, "label": label} for text, label in zip(texts, labels)]


def multi_hot(labels):
    return np.array([[int(name in names) for name in WORDS] for names in labels])


def texts():
    texts, labels = rows(10)
    numbers = [CLASSES.index(label) for label in labels]
    forms = {
        "columns": (np.array(texts), np.array(labels)),
        "lists": (texts, labels),
        "numbers": ({"text": tuple(texts)}, np.array(numbers)),
        "objects": (np.array(texts, object), np.array(labels, object)),
        "examples": (examples(texts, labels), None),
    }
    return Task(build, "classify", [texts], "evaluate_texts", forms, "class_names")


def texts_with_several_labels():
    texts, labels = multi_label_rows(10)
    numbers = multi_hot(labels)
    forms = {
        "columns": (np.array(texts), padded(labels)), "lists": (texts, labels),
        "sets": (texts, [set(names) for names in labels]),
        "numbers": (texts, numbers),
        "lists of numbers": (texts, numbers.tolist()), "booleans": (texts, numbers.astype(bool)),
        "floats": (texts, numbers.astype("float32")),
        "examples": (examples(texts, labels), None),
    }  # fmt: skip
    if tf:
        forms["ragged"] = tf.constant(texts), tf.ragged.constant(labels)
    return Task(
        build_multi_label, "classify", [texts], "evaluate_texts", forms,
        "class_names",
    )  # fmt: skip


TASKS = [texts, texts_with_several_labels]
