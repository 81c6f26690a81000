import keras
import keras_hub
import numpy as np
import pytest

from keras_spanbert.layers.masked_lm_head import MaskedLMHead

B, L, M, H, V = 2, 11, 5, 7, 13


@pytest.mark.parametrize("is_tied", [True, False])
def test_logits_and_weights_equal_keras_hub(is_tied):
    size = {"vocabulary_size": V}
    if is_tied:
        size = {"token_embedding": keras.layers.ReversibleEmbedding(V, H)}
        size["token_embedding"].build()
    ours = MaskedLMHead(**size)
    theirs = keras_hub.layers.MaskedLMHead(
        **size, intermediate_activation="gelu", layer_norm_epsilon=1e-12
    )
    generator = np.random.default_rng(0)
    x = generator.normal(size=(B, L, H)).astype("float32")
    positions = generator.integers(0, L, (B, M)).astype("int32")
    assert ours(x, positions).shape == theirs(x, positions).shape == (B, M, V)
    for weight in theirs.weights:
        weight.assign(generator.normal(size=weight.shape))
    ours.set_weights(theirs.get_weights())
    expected = keras.ops.convert_to_numpy(theirs(x, positions))
    logits = keras.ops.convert_to_numpy(ours(x, positions))
    np.testing.assert_allclose(logits, expected, atol=1e-5)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "bfloat16", "float16"])
def test_runs_eagerly_with_low_precision(dtype):
    embedding = keras.layers.ReversibleEmbedding(V, H, dtype=dtype)
    head = MaskedLMHead(token_embedding=embedding, dtype=dtype)
    logits = head(np.ones((B, L, H), "float32"), np.zeros((B, M), "int32"))
    assert np.isfinite(keras.ops.convert_to_numpy(keras.ops.cast(logits, "float32"))).all()
