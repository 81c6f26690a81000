"""Keras's export of our models works, or the error names our export."""

import keras
import numpy as np
import pytest
from comparisons import assert_close

import keras_spanbert

V, L = 13, 7
NAMES = ["token_ids", "segment_ids", "padding_mask"]


def backbone():
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 6, "intermediate_dim": 5}
    return keras_spanbert.SpanBertBackbone(V, max_sequence_length=11, **sizes)


def signature():
    return [{n: keras.InputSpec(shape=(None, L), dtype="int32", name=n) for n in NAMES}]


@pytest.mark.parametrize(
    "build", [backbone, lambda: keras_spanbert.SpanBertQuestionAnswerer(backbone())]
)
def test_saved_model_logits_or_helpful_error(build, tmp_path):
    model, path = build(), str(tmp_path / "exported")
    backend = keras.backend.backend()
    if backend != "tensorflow":
        with pytest.raises(ValueError, match="export_saved_model.*on " + backend) as caught:
            model.export(path, verbose=False)
        assert ("`input_signature` must fix the length" in str(caught.value)) == (backend == "jax")
    if backend == "torch":
        return
    tf = pytest.importorskip("tensorflow")
    signature_or_none = {"input_signature": signature()} if backend == "jax" else {}
    model.export(path, verbose=False, **signature_or_none)
    arrays = {name: np.ones((2, L), "int32") for name in NAMES}
    served = tf.saved_model.load(path)
    found = served.serve({name: tf.constant(array) for name, array in arrays.items()})
    assert_close(found, model(arrays), 1e-5)


def test_other_formats_give_a_helpful_error(tmp_path):
    with pytest.raises(ValueError, match="keras_spanbert.serving.export_saved_model"):
        backbone().export(str(tmp_path / "exported"), format="unknown")
