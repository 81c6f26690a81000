import functools
import json

import keras
import numpy as np
import pytest

import keras_spanbert as ks


@pytest.fixture(scope="session")
def cased_tokenizer(shared_data):
    return ks.SpanBertTokenizer(str(shared_data / "reference" / "vocab" / "bert_base_cased.txt"))


@pytest.fixture(scope="session")
def finetuning(shared_data):
    """A function that returns the reference of a task: folder, expected values and features."""

    def load(name):
        folder = shared_data / "reference" / "finetuning" / name
        with np.load(folder / "features.npz") as file:
            features = dict(file)
        return folder, json.loads((folder / "expected.json").read_text("utf-8")), features

    return functools.cache(load)


@pytest.fixture(scope="module")
def model(task):
    """The task's model with learning rate 0, which training does not change."""
    model = task.build()
    # Tracing would take longer than these steps.
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=keras.backend.backend() == "tensorflow")
    return model
