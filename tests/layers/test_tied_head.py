"""Heads stay tied in clones and files of functional models."""

import keras
import keras_hub
import numpy as np
import pytest
from jax_programs import products

from keras_spanbert import SpanBoundaryHead
from keras_spanbert.layers.tied_head import MaskedLMHead

V, H, L, M = 23, 6, 7, 3
POSITIONS = np.arange(M)[None]


def own_embedding(token_ids):
    embedding = keras.layers.ReversibleEmbedding(V, H)
    x = embedding(token_ids)
    return keras.layers.Add()([x, keras.layers.Dense(H)(x)]), embedding


def embedding_in_a_layer(token_ids):
    layer = keras_hub.layers.TokenAndPositionEmbedding(V, L, H)
    return keras.layers.Dense(H)(layer(token_ids)), layer.token_embedding


def functional_model(encoder):
    token_ids, positions = (keras.Input((None,), dtype="int32") for _ in range(2))
    x, embedding = encoder(token_ids)
    logits = MaskedLMHead(token_embedding=embedding, name="head")(x, positions)
    return keras.Model([token_ids, positions], logits)


def outputs(model):
    return keras.ops.convert_to_numpy(model([np.arange(L)[None], POSITIONS]))


def assert_tied(model):
    embedding = model.get_layer("head").token_embedding
    layers = [getattr(layer, "token_embedding", layer) for layer in model.layers[:-1]]
    assert any(embedding is layer for layer in layers)
    before = outputs(model)
    embedding.embeddings.assign(keras.ops.multiply(embedding.embeddings, 2.0))
    assert np.abs(outputs(model) - before).max() > 1e-3


@pytest.mark.parametrize("encoder", [own_embedding, embedding_in_a_layer])
def test_head_is_tied_in_clones_and_files(encoder, tmp_path):
    model = functional_model(encoder)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    model.save(tmp_path / "model.keras")
    clone.save(tmp_path / "clone.keras")
    expected = outputs(model)
    for copy in [clone, *(keras.models.load_model(path) for path in tmp_path.iterdir())]:
        assert [w.path for w in copy.weights] == [w.path for w in model.weights]
        np.testing.assert_allclose(outputs(copy), expected, atol=1e-6)
        assert_tied(copy)
    np.testing.assert_array_equal(outputs(model), expected)  # The copies share no weights.


def test_head_that_does_not_read_its_embedding_is_tied_in_files(tmp_path, recwarn):
    token_ids, positions = (keras.Input((None,), dtype="int32") for _ in range(2))
    vectors = keras.Input((None, H))
    embedding = keras.layers.ReversibleEmbedding(V, H, name="embedding")
    logits = MaskedLMHead(token_embedding=embedding, name="head")(vectors, positions)
    model = keras.Model([token_ids, vectors, positions], [embedding(token_ids), logits])
    model.save(tmp_path / "model.keras")
    copy = keras.models.load_model(tmp_path / "model.keras")
    assert copy.get_layer("head").token_embedding is copy.get_layer("embedding")
    assert not [warning for warning in recwarn if "untied" in str(warning.message)]


@pytest.mark.parametrize("cls, num_inputs", [(MaskedLMHead, 1), (SpanBoundaryHead, 3)])
def test_head_from_config_warns_that_it_is_not_tied(cls, num_inputs):
    head = cls(token_embedding=keras.layers.ReversibleEmbedding(V, H, name="token_embedding"))
    config = head.get_config()
    assert cls.from_config(config).get_config() == config
    x = np.zeros((1, L, H), "float32"), *[POSITIONS] * num_inputs
    with pytest.warns(UserWarning, match="'token_embedding': layer"):
        cls.from_config(config)(*x)
    embedding = keras.layers.ReversibleEmbedding(V, H)
    copy = cls.from_config({**config, "token_embedding": embedding})
    copy(*x)
    assert copy.token_embedding is embedding


def test_embeddings_with_the_same_name_are_refused(tmp_path):
    token_ids = keras.Input((None,), dtype="int32")
    positions = keras.Input((None,), dtype="int32")
    x, _ = embedding_in_a_layer(token_ids)
    y, embedding = embedding_in_a_layer(token_ids)
    head = MaskedLMHead(token_embedding=embedding)
    model = keras.Model([token_ids, positions], head(x + y, positions))
    for copy in [keras.models.clone_model, lambda m: m.save(tmp_path / "model.keras")]:
        with pytest.raises(ValueError, match="several layers named 'token_embedding'"):
            copy(model)


def operands_of_products(head, x):
    """Returns operands of the products in the logits of a head, and their gradients."""
    table = head.token_embedding.embeddings
    if keras.backend.backend() == "jax":
        import jax

        def logits(x, value):
            with keras.StatelessScope([(table, value)]):
                return head(x, POSITIONS)

        program = jax.make_jaxpr(lambda *given: jax.vjp(logits, *given)[1](logits(*given)))
        return products(program(x, table.value))
    import tensorflow as tf

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            logits = head(x, POSITIONS)
        return tape.gradient(logits, [x, table.value])

    operations = step.get_concrete_function(x).graph.get_operations()
    return [op.inputs for op in operations if "MatMul" in op.type]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_heads_multiply_with_the_vocabulary_in_sixteen_bits(dtype):
    embedding = keras.layers.ReversibleEmbedding(V, H, dtype=f"mixed_{dtype}")
    embedding.build()
    head = MaskedLMHead(token_embedding=embedding, dtype=f"mixed_{dtype}")
    x = keras.ops.ones((1, L, H))
    logits, is_torch = head(x, POSITIONS), keras.backend.backend() == "torch"
    # They are not rounded, except on PyTorch.
    assert keras.backend.standardize_dtype(logits.dtype) == (dtype if is_torch else "float32")
    if is_torch:
        return
    pairs = [pair for pair in operands_of_products(head, x) if any(V in a.shape for a in pair)]
    assert len(pairs) >= 3
    assert {keras.backend.standardize_dtype(a.dtype) for pair in pairs for a in pair} == {dtype}
