"""Documents that are longer than `max_training_sentences` are cut differently in each epoch."""

import numpy as np
import pytest


@pytest.mark.once("torch")
def test_each_epoch_uses_other_segments(build, document):
    model = build(max_training_sentences=2)
    batches = model.batches([document], max_segments=2, seed=7)
    begins = []
    for epoch in range(12):
        x, y = batches.arrays.document(0, epoch)
        again, _ = batches.arrays.document(0, epoch)
        np.testing.assert_array_equal(x["token_ids"], again["token_ids"])
        assert x["token_ids"].shape[1] == 2
        begins.append(x["token_ids"][0, 0].tobytes() + x["token_ids"][0, 1].tobytes())
    assert len(set(begins)) > 1
    num_segments = len(model.preprocessor.tensors(document)["input_ids"])
    assert num_segments > 2
    whole, _ = model.batches([document]).arrays.document(0, 0)
    assert whole["token_ids"].shape[1] >= num_segments
