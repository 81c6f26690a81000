import math

import keras
import numpy as np
import pytest

from keras_spanbert import SpanBoundaryHead

B, L, M, H, V, P = 2, 11, 5, 7, 13, 3
MAX_SPAN = 4


def inputs():
    generator = np.random.default_rng(0)
    return (
        generator.normal(size=(B, L, H)).astype("float32"),
        *generator.integers(0, L, (2, B, M)).astype("int32"),
        generator.integers(0, MAX_SPAN, (B, M)).astype("int32"),
    )


def randomise(layer, seed):
    generator = np.random.default_rng(seed)
    layer.set_weights([generator.normal(size=w.shape) for w in layer.get_weights()])


def reference(weights, embedding, fusion, x, left, right, offsets):
    """Computes the equations of the paper in float64, one token at a time."""

    def hidden(x, i):
        x = x @ weights[f"dense_{i}/kernel"] + weights[f"dense_{i}/bias"]
        x = np.array([0.5 * z * (1.0 + math.erf(z / math.sqrt(2.0))) for z in x])
        x = (x - x.mean()) / math.sqrt(((x - x.mean()) ** 2).mean() + 1e-12)
        return x * weights[f"layer_norm_{i}/gamma"] + weights[f"layer_norm_{i}/beta"]

    logits = np.zeros((B, M, V))
    for b in range(B):
        for m in range(M):
            x_left, x_right = x[b, left[b, m]], x[b, right[b, m]]
            p = weights["position_embedding/embeddings"][offsets[b, m]]
            if fusion == "concat":
                h = np.concatenate([x_left, x_right, p])
            else:
                p = p @ weights["position_dense/kernel"] + weights["position_dense/bias"]
                h = x_left + x_right + p
            y = hidden(hidden(h, 1), 2)
            logits[b, m] = embedding @ y + weights["output_bias"]
    return logits


@pytest.mark.parametrize("fusion", ["concat", "sum"])
def test_logits_equal_the_equations(fusion):
    embedding = keras.layers.ReversibleEmbedding(V, H)
    embedding.build((None,))
    randomise(embedding, seed=1)
    head = SpanBoundaryHead(
        token_embedding=embedding, max_span_tokens=MAX_SPAN, position_dim=P, fusion=fusion
    )
    head(*inputs())
    randomise(head, seed=2)
    weights = {
        w.path.split("/", 1)[1]: keras.ops.convert_to_numpy(w).astype("float64")
        for w in head.weights
    }
    table = keras.ops.convert_to_numpy(embedding.embeddings).astype("float64")
    x, *positions = inputs()
    expected = reference(weights, table, fusion, x.astype("float64"), *positions)
    logits = keras.ops.convert_to_numpy(head(x, *positions))
    np.testing.assert_allclose(logits, expected, atol=1e-5 * np.abs(expected).max())


def test_larger_offsets_use_the_last_embedding():
    x, left, right, _ = inputs()
    head = SpanBoundaryHead(V, max_span_tokens=MAX_SPAN)
    last, beyond = (
        keras.ops.convert_to_numpy(head(x, left, right, np.full((B, M), offset, "int32")))
        for offset in (MAX_SPAN - 1, MAX_SPAN + 9)
    )
    np.testing.assert_array_equal(last, beyond)
