import keras
import numpy as np
import pytest
from keras import ops

from keras_spanbert.layers.self_attention import SelfAttention

B, L, N, D = 2, 11, 3, 5
H = N * D


def build(length=L, **kwargs):
    """A layer with weights that are not zero, and inputs for it."""
    layer = SelfAttention(N, **kwargs)
    rng = np.random.default_rng(0)
    layer.build((B, length, H))
    layer.set_weights([rng.normal(size=w.shape) * 0.3 for w in layer.get_weights()])
    return layer, rng.normal(size=(B, length, H)).astype("float32")


def padding(length=L):
    mask = np.ones((B, length), "int32")
    mask[1, length // 2 :] = 0
    return mask


def reference(layer, x, mask=None):
    """The equations of the paper, in float64, a head of an example at a time."""
    x = x.astype("float64")
    weights = {w.path.split("/", 1)[1]: ops.convert_to_numpy(w) for w in layer.weights}
    outputs = np.zeros(x.shape) + weights["attention_output/bias"]
    for b in range(len(x)):
        for n in range(N):
            query, key, value = (
                x[b].astype("float64") @ weights[f"{name}/kernel"][:, n]
                + weights[f"{name}/bias"][n]
                for name in ["query", "key", "value"]
            )
            exponentials = np.exp(query @ key.T / np.sqrt(D))
            if mask is not None:
                exponentials = exponentials * mask[b]
            attended = exponentials / exponentials.sum(-1, keepdims=True) @ value
            outputs[b] += attended @ weights["attention_output/kernel"][n]
    return outputs


def call(layer, x, **kwargs):
    return ops.convert_to_numpy(ops.cast(layer(x, **kwargs), "float32"))


@pytest.mark.parametrize("dropout", [0.0, 0.3])  # Fused, and not.
@pytest.mark.parametrize("dtype", ["int32", "bool", None])
def test_outputs_are_the_papers_equations(dropout, dtype):
    layer, x = build(dropout=dropout)
    mask = None if dtype is None else padding().astype(dtype)
    found = call(layer, x, padding_mask=mask, training=False)
    np.testing.assert_allclose(found, reference(layer, x, mask), atol=1e-5)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_padding_does_not_reach_other_tokens(dropout):
    layer, x = build(dropout=dropout)
    padded = x.copy()
    padded[1, L // 2 :] = 1e3
    found, expected = (call(layer, values, padding_mask=padding()) for values in [padded, x])
    np.testing.assert_allclose(found[1, : L // 2], expected[1, : L // 2], atol=1e-5)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_where_all_is_padding_all_tokens_are_attended_to_alike(dropout):
    layer, x = build(dropout=dropout)
    found = call(layer, x, padding_mask=np.zeros((B, L), "int32"))
    layer.query_dense.set_weights([0 * w for w in layer.query_dense.get_weights()])
    np.testing.assert_allclose(found, call(layer, x), atol=1e-5)


def test_dropout_drops_attention_weights_in_training_alone():
    layer, x = build(dropout=0.5)
    np.testing.assert_array_equal(call(layer, x, training=False), call(layer, x))
    # Values of one leave of an output the sum of its weights, each either 0 or doubled.
    layer.query_dense.set_weights([0 * w for w in layer.query_dense.get_weights()])
    kernel, bias = layer.value_dense.get_weights()
    layer.value_dense.set_weights([0 * kernel, np.ones_like(bias)])
    kernel, bias = layer.output_dense.get_weights()
    layer.output_dense.set_weights([np.full_like(kernel, 1 / H), 0 * bias])
    counts = call(layer, x, training=True) * N * L / 2
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-4)
    assert counts.min() < counts.max() <= N * L
    np.testing.assert_allclose(call(layer, x, training=False), 1.0, atol=1e-5)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_softmax_computes_in_float32_in_mixed_precision(dtype, monkeypatch):
    dtypes, softmax = [], ops.softmax
    monkeypatch.setattr(
        ops, "softmax", lambda x, axis: dtypes.append(x.dtype) or softmax(x, axis=axis)
    )
    layer, x = build(dropout=0.1, dtype=dtype)
    outputs = layer(x, training=True)
    assert [keras.backend.standardize_dtype(dtype) for dtype in dtypes] == ["float32"]
    assert keras.backend.standardize_dtype(outputs.dtype) == layer.compute_dtype
    np.testing.assert_allclose(call(layer, x), reference(layer, x), atol=0.1)


def test_config_and_file_round_trip(tmp_path):
    layer, x = build(dropout=0.3, kernel_initializer="he_normal")
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert copy.get_config() == layer.get_config()
    inputs = keras.Input((None, H))
    model = keras.Model(inputs, layer(inputs))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(call(loaded, x), call(layer, x))


def test_heads_must_divide_the_hidden_size():
    with pytest.raises(ValueError, match=r"num_heads=3, inputs_shape=\(2, 7, 10\)"):
        SelfAttention(3).build((2, 7, 10))
