"""The serving function counts characters, not bytes."""

import numpy as np
import pytest
from tiny_answerer import build

pytestmark = pytest.mark.once("tensorflow")


def test_served_answers_are_cut_by_characters():
    import tensorflow as tf

    model = build(hidden_dim=8)
    serve, _ = model.serving_function()
    # With these weights the model answers with any span, so some answers follow the "é"s.
    contexts = ["é é😀 ann wrote it", "bob é sold é it.", "é", "ann"]
    served = serve(tf.constant(["who wrote it"] * 4), tf.constant(contexts))
    served = {name: value.numpy() for name, value in served.items()}
    for i, context in enumerate(contexts):
        (best,) = model.answer(["who wrote it"], [context])[0]
        start, end = served["start"][i], served["end"][i]
        assert (start, end) == (best["start"], best["end"])
        assert served["answer"][i].decode() == best["answer"] == context[start:end]
    assert np.any(served["start"] > 2)
