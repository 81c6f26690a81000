import math

import keras
import numpy as np
import pytest

from keras_spanbert import SpanBoundaryHead

B, L, M, H, V, P = 2, 11, 5, 7, 13, 3
MAX_SPAN = 4


def inputs(seed=0):
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(B, L, H)).astype("float32"),
        rng.integers(0, L, (B, M)).astype("int32"),
        rng.integers(0, L, (B, M)).astype("int32"),
        rng.integers(0, MAX_SPAN, (B, M)).astype("int32"),
    )


def randomise(layer, seed=1):
    rng = np.random.default_rng(seed)
    layer.set_weights([rng.normal(size=w.shape) for w in layer.get_weights()])


def gelu(x):
    return 0.5 * x * (1.0 + math.erf(x / math.sqrt(2.0)))


def dense_and_norm(x, dense, norm):
    kernel, bias = (np.array(w) for w in dense.get_weights())
    gamma, beta = (np.array(w) for w in norm.get_weights())
    hidden = [
        gelu(sum(x[i] * kernel[i, j] for i in range(len(x))) + bias[j]) for j in range(len(bias))
    ]
    mean = sum(hidden) / len(hidden)
    variance = sum((h - mean) ** 2 for h in hidden) / len(hidden)
    return [
        gamma[j] * (hidden[j] - mean) / math.sqrt(variance + 1e-12) + beta[j]
        for j in range(len(hidden))
    ]


def reference(head, embedding, x, left, right, offsets):
    """The paper's equations, in loops, in float64."""
    x = x.astype("float64")
    position = np.array(head._position_embedding.get_weights()[0])
    logits = np.zeros((B, M, V))
    for b in range(B):
        for m in range(M):
            p = list(position[offsets[b, m]])
            if head.fusion == "concat":
                h = [*x[b, left[b, m]], *x[b, right[b, m]], *p]
            else:
                kernel, bias = (np.array(w) for w in head._position_dense.get_weights())
                h = [
                    x[b, left[b, m], j]
                    + x[b, right[b, m], j]
                    + sum(p[i] * kernel[i, j] for i in range(P))
                    + bias[j]
                    for j in range(H)
                ]
            h = dense_and_norm(h, head._dense_1, head._layer_norm_1)
            y = dense_and_norm(h, head._dense_2, head._layer_norm_2)
            for v in range(V):
                logits[b, m, v] = sum(y[j] * embedding[v, j] for j in range(H))
                logits[b, m, v] += np.array(head._output_bias)[v]
    return logits


@pytest.mark.parametrize("fusion", ["concat", "sum"])
def test_logits_are_the_papers_equations(fusion):
    embedding = keras.layers.ReversibleEmbedding(V, H)
    embedding.build((None,))
    randomise(embedding)
    head = SpanBoundaryHead(
        token_embedding=embedding, max_span_tokens=MAX_SPAN, position_dim=P, fusion=fusion
    )
    head(*inputs())
    randomise(head, seed=2)
    logits = keras.ops.convert_to_numpy(head(*inputs()))
    assert logits.shape == (B, M, V)
    table = np.array(keras.ops.convert_to_numpy(embedding.embeddings))
    np.testing.assert_allclose(
        logits, reference(head, table, *inputs()), atol=1e-5 * np.abs(logits).max()
    )


def test_only_the_ends_and_the_offset_matter():
    x, left, right, offsets = inputs()
    head = SpanBoundaryHead(V, max_span_tokens=MAX_SPAN)
    before = keras.ops.convert_to_numpy(head(x, left, right, offsets))
    for b in range(B):
        inside = np.setdiff1d(np.arange(L), [*left[b], *right[b]])
        x[b, inside] += 100.0
    after = keras.ops.convert_to_numpy(head(x, left, right, offsets))
    np.testing.assert_array_equal(before, after)


def test_offsets_beyond_the_last_share_its_embedding():
    x, left, right, _ = inputs()
    head = SpanBoundaryHead(V, max_span_tokens=MAX_SPAN)
    last, beyond = (
        keras.ops.convert_to_numpy(head(x, left, right, np.full((B, M), offset, "int32")))
        for offset in (MAX_SPAN - 1, MAX_SPAN + 9)
    )
    np.testing.assert_array_equal(last, beyond)


def test_untied_head_has_its_own_kernel_and_tied_none():
    embedding = keras.layers.ReversibleEmbedding(V, H)
    tied, untied = SpanBoundaryHead(token_embedding=embedding), SpanBoundaryHead(V)
    for head in (tied, untied):
        head(*inputs())
    assert ["output_kernel" in [w.name for w in h.weights] for h in (tied, untied)] == [False, True]


def test_config_round_trip():
    head = SpanBoundaryHead(V, max_span_tokens=MAX_SPAN, fusion="sum", position_dim=P)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(head))
    assert copy.get_config() == head.get_config()
    before = keras.ops.convert_to_numpy(head(*inputs()))
    copy(*inputs())
    copy.set_weights(head.get_weights())
    np.testing.assert_array_equal(before, keras.ops.convert_to_numpy(copy(*inputs())))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "vocabulary_size=None"),
        ({"vocabulary_size": 5, "fusion": "product"}, "fusion='product'"),
        (
            {"vocabulary_size": 5, "token_embedding": keras.layers.ReversibleEmbedding(V, H)},
            "vocabulary_size=5",
        ),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        SpanBoundaryHead(**arguments)
