"""Coreference does not wait for the device on PyTorch."""

import keras
import pytest
from torch_waits import count_waits

pytestmark = pytest.mark.skipif(keras.backend.backend() != "torch", reason="PyTorch's operations")


def test_steps_and_predictions_do_not_wait_for_each_span(build, document):
    model = build(max_training_sentences=4)
    many = {
        "doc_key": "nw/x",
        "sentences": document["sentences"] * 10,
        "speakers": document["speakers"] * 10,
        "clusters": document["clusters"],
    }
    model.compile()
    (batch,) = [model.batches([many], is_training=True).arrays.document(0, 0)]
    model.train_on_batch(*batch)
    # The optimizer's kernel on CPUs reads the step of each weight. Spans are selected in rounds.
    waits = count_waits(lambda: model.train_on_batch(*batch))
    assert waits <= len(model.trainable_variables) + 30
    assert count_waits(lambda: model.score_document(many)) <= 30
