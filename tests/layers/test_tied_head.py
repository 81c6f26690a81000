"""Heads stay tied in what Keras makes of a functional model."""

import keras
import keras_hub
import numpy as np
import pytest

from keras_spanbert import SpanBertBackbone, SpanBoundaryHead
from keras_spanbert.layers.masked_lm_head import MaskedLMHead

V, H, L, M = 23, 6, 7, 3
HEADS = {"mlm": MaskedLMHead, "sbo": SpanBoundaryHead}


def own_embedding(token_ids):
    embedding = keras.layers.ReversibleEmbedding(V, H)
    x = embedding(token_ids)
    return keras.layers.Add()([x, keras.layers.Dense(H)(x)]), embedding


def embedding_in_a_layer(token_ids):
    layer = keras_hub.layers.TokenAndPositionEmbedding(V, L, H)
    return keras.layers.Dense(H)(layer(token_ids)), layer.token_embedding


def embedding_in_a_model(token_ids):
    backbone = SpanBertBackbone(V, 1, 2, H, 8, max_sequence_length=L)
    inputs = {"token_ids": token_ids, "segment_ids": keras.ops.zeros_like(token_ids)}
    inputs["padding_mask"] = keras.ops.ones_like(token_ids)
    return backbone(inputs), backbone.token_embedding


ENCODERS = [own_embedding, embedding_in_a_layer, embedding_in_a_model]


def functional_model(encoder, head):
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    positions = [keras.Input((None,), dtype="int32", name=f"positions_{i}") for i in range(3)]
    x, embedding = encoder(token_ids)
    head = HEADS[head](token_embedding=embedding, name="head")
    logits = head(x, *(positions[:1] if isinstance(head, MaskedLMHead) else positions))
    return keras.Model([token_ids, *positions[: len(head.input) - 1]], logits)


def inputs(model):
    positions = [np.arange(1, 1 + M)[None] % 3, np.arange(2, 2 + M)[None], np.arange(M)[None]]
    return [np.arange(L)[None], *positions][: len(model.inputs)]


def outputs(model):
    return keras.ops.convert_to_numpy(model(inputs(model)))


def embedding_of_graph(model, encoder):
    if encoder is own_embedding:
        return next(x for x in model.layers if isinstance(x, keras.layers.ReversibleEmbedding))
    return next(x for x in model.layers if hasattr(x, "token_embedding")).token_embedding


def assert_tied(model, encoder):
    embedding = model.get_layer("head").token_embedding
    assert embedding is embedding_of_graph(model, encoder)
    before = outputs(model)
    embedding.embeddings.assign(keras.ops.multiply(embedding.embeddings, 2.0))
    assert np.abs(outputs(model) - before).max() > 1e-3


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_head_is_tied_in_clones_and_files(encoder, head, tmp_path):
    model = functional_model(encoder, head)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    model.save(tmp_path / "model.keras")
    clone.save(tmp_path / "clone.keras")
    copies = [clone, *(keras.models.load_model(path) for path in tmp_path.iterdir())]
    for copy in copies:
        assert [w.path for w in copy.weights] == [w.path for w in model.weights]
        np.testing.assert_allclose(outputs(copy), outputs(model), atol=1e-6)
        ours, theirs = model.get_layer("head"), copy.get_layer("head")
        assert theirs.token_embedding is not ours.token_embedding
        assert_tied(copy, encoder)


@pytest.mark.parametrize("head", HEADS)
def test_head_from_a_config_alone_says_that_it_is_not_tied(head):
    model = functional_model(own_embedding, head)
    config = model.get_layer("head").get_config()
    x = np.zeros((1, L, H), "float32"), *inputs(model)[1:]
    with pytest.warns(UserWarning, match="'token_embedding': layer"):
        HEADS[head].from_config(config)(*x)
    embedding = keras.layers.ReversibleEmbedding(V, H)
    copy = HEADS[head].from_config({**config, "token_embedding": embedding})
    copy(*x)
    assert copy.token_embedding is embedding


def test_config_of_a_clone_not_called_yet_is_that_of_the_head():
    config = functional_model(own_embedding, "sbo").get_layer("head").get_config()
    assert SpanBoundaryHead.from_config(config).get_config() == config


def test_embeddings_of_one_name_cannot_be_told_apart(tmp_path):
    token_ids = keras.Input((None,), dtype="int32")
    positions = keras.Input((None,), dtype="int32")
    x, _ = embedding_in_a_layer(token_ids)
    y, embedding = embedding_in_a_layer(token_ids)
    head = MaskedLMHead(token_embedding=embedding)
    model = keras.Model([token_ids, positions], head(x + y, positions))
    for copy in [keras.models.clone_model, lambda m: m.save(tmp_path / "model.keras")]:
        with pytest.raises(ValueError, match="several layers named 'token_embedding'"):
            copy(model)
