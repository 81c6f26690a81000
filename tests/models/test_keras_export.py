"""Keras's export of our models works, or the error names our export."""

import keras
import numpy as np
import pytest
from comparisons import assert_close
from tiny_models import answerer, backbone

NAMES, L = ["token_ids", "segment_ids", "padding_mask"], 7


@pytest.mark.parametrize("build", [backbone, answerer])
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
    spec = {n: keras.InputSpec(shape=(None, L), dtype="int32", name=n) for n in NAMES}
    model.export(path, verbose=False, **({"input_signature": [spec]} if backend == "jax" else {}))
    arrays = {name: np.ones((2, L), "int32") for name in NAMES}
    served = tf.saved_model.load(path)
    found = served.serve({name: tf.constant(array) for name, array in arrays.items()})
    assert_close(found, model(arrays), 1e-5)


def test_other_formats_give_a_helpful_error(tmp_path):
    with pytest.raises(ValueError, match="keras_spanbert.serving.export_saved_model"):
        backbone().export(str(tmp_path / "exported"), format="unknown")
