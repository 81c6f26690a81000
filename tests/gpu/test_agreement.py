"""In float32, outputs on the device equal those of the released code."""

import numpy as np
from bert_checkpoints import released_outputs


def test_outputs_equal_those_of_the_released_model(shared_data):
    folder = shared_data / "reference" / "pretrained"
    with np.load(folder / "forward.npz") as file:
        expected = dict(file)
    encoded, logits = released_outputs(folder, expected)
    for found in encoded:
        np.testing.assert_allclose(found, expected["sequence_output"], atol=1e-4)
    for name in ["mlm", "sbo"]:
        np.testing.assert_allclose(logits[name], expected[f"{name}_logits"], atol=1e-4)
