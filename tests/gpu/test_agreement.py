"""Outputs on the device equal those of the released code and of attention without a kernel."""

import keras
import numpy as np
import pytest
from bert_checkpoints import released_outputs

from keras_spanbert.layers.attention import attend
from keras_spanbert.layers.dropout import Dropout


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="other backends have no such kernel")
@pytest.mark.parametrize(
    ("length", "size", "dtype"),
    [(384, 32, "bfloat16"), (512, 64, "bfloat16"), (128, 32, "float16"), (128, 64, "float16")],
)
def test_kernel_with_dropout(length, size, dtype, monkeypatch):
    import jax

    draws = np.random.default_rng(0).normal(size=(4, 2, length, 3, size)) + 0.5
    *inputs, upstream = jax.numpy.asarray(draws, dtype)
    mask = np.arange(length) < np.array([[length], [length // 3]])

    def compute():
        def step(*inputs):
            layer = Dropout(0.1, seed=1, dtype=dtype)
            outputs, backward = jax.vjp(lambda *x: attend(*x, mask, layer, training=True), *inputs)
            return outputs, *backward(upstream)

        return [np.asarray(x, "float32") for x in jax.jit(step)(*inputs)]

    found = compute()
    monkeypatch.setattr(keras.config, "is_flash_attention_enabled", lambda: False)
    for one, other in zip(found, compute(), strict=True):
        error = np.linalg.norm(one - other) / np.linalg.norm(other)
        assert error < 2e-2


def test_outputs_equal_those_of_the_released_model(shared_data):
    folder = shared_data / "reference" / "pretrained"
    with np.load(folder / "forward.npz") as file:
        expected = dict(file)
    encoded, logits = released_outputs(folder, expected)
    for found in encoded:
        np.testing.assert_allclose(found, expected["sequence_output"], atol=1e-4)
    for name in ["mlm", "sbo"]:
        np.testing.assert_allclose(logits[name], expected[f"{name}_logits"], atol=1e-4)
