import keras
import numpy as np
import pytest
from keras import ops

from keras_spanbert.layers.self_attention import SelfAttention

B, L, N, D = 2, 11, 3, 5
H = N * D
PADDING = np.ones((B, L), "int32")
PADDING[1, L // 2 :] = 0


def build(**kwargs):
    """Returns a layer with nonzero weights and inputs for it."""
    layer = SelfAttention(N, **kwargs)
    rng = np.random.default_rng(0)
    layer.build((B, L, H))
    layer.set_weights([rng.normal(size=w.shape) * 0.3 for w in layer.get_weights()])
    return layer, rng.normal(size=(B, L, H)).astype("float32")


def reference(layer, x, mask):
    """Computes the equations of the paper in float64, one head at a time."""
    x = x.astype("float64")
    weights = {w.path.split("/", 1)[1]: ops.convert_to_numpy(w) for w in layer.weights}
    outputs = np.zeros(x.shape) + weights["attention_output/bias"]
    for b in range(B):
        for n in range(N):
            query, key, value = (
                x[b] @ weights[f"{name}/kernel"][:, n] + weights[f"{name}/bias"][n]
                for name in ["query", "key", "value"]
            )
            exponentials = np.exp(query @ key.T / np.sqrt(D)) * mask[b]
            attended = exponentials / exponentials.sum(-1, keepdims=True) @ value
            outputs[b] += attended @ weights["attention_output/kernel"][n]
    return outputs


def call(layer, x, **kwargs):
    return ops.convert_to_numpy(ops.cast(layer(x, **kwargs), "float32"))


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("mask", [PADDING, PADDING.astype("bool"), None])
def test_outputs_equal_the_equations(dropout, mask):
    layer, x = build(dropout=dropout)
    expected = reference(layer, x, np.ones((B, L)) if mask is None else mask)
    found = call(layer, x, padding_mask=mask, training=False)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_softmax_uses_float32_in_mixed_precision(dtype, monkeypatch):
    dtypes, soft = [], ops.softmax
    monkeypatch.setattr(ops, "softmax", lambda x, axis: dtypes.append(x.dtype) or soft(x, axis))
    layer, x = build(dropout=0.1, dtype=dtype)
    outputs = layer(x, training=True)
    assert [keras.backend.standardize_dtype(dtype) for dtype in dtypes] == ["float32"]
    assert keras.backend.standardize_dtype(outputs.dtype) == layer.compute_dtype
    np.testing.assert_allclose(call(layer, x), reference(layer, x, np.ones((B, L))), atol=0.1)


def test_heads_must_divide_the_hidden_size():
    with pytest.raises(ValueError, match=r"num_heads=3, inputs_shape=\(2, 7, 10\)"):
        SelfAttention(3).build((2, 7, 10))
