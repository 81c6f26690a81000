"""Each layer's config holds all of its arguments and builds an equal layer."""

import inspect
import json

import keras
import pytest

from keras_spanbert import NextSentencePairs, SpanBoundaryHead, SpanMasking
from keras_spanbert.layers.attention import SelfAttention
from keras_spanbert.layers.dropout import Dropout
from keras_spanbert.layers.tied_head import MaskedLMHead
from keras_spanbert.layers.transformer_layer import TransformerLayer

# Arguments that differ from their defaults.
HEAD = {"vocabulary_size": 7, "activation": "relu", "layer_norm_epsilon": 1e-5}
ATTENTION = {"num_heads": 3, "dropout": 0.3, "kernel_initializer": "he_normal"}
ARGUMENTS = {
    Dropout: {"rate": 0.3, "noise_shape": (3, 1), "seed": 5, "model_axis": 1},
    MaskedLMHead: HEAD,
    SpanBoundaryHead: {**HEAD, "max_span_tokens": 4, "position_dim": 3, "fusion": "sum"},
    SelfAttention: ATTENTION,
    TransformerLayer: {
        **ATTENTION, "intermediate_dim": 5, "attention_dropout": 0.1, "activation": "relu",
        "layer_norm_epsilon": 1e-5, "rematerialize": True,
    },
    SpanMasking: {
        "vocabulary_size": 97, "mask_token_id": 4, "continuation_token_ids": (70, 71),
        "special_token_ids": (0, 2), "mask_rate": 0.3, "max_predictions": 5, "geometric_p": 0.5,
        "max_span_words": 7, "max_span_tokens": 11, "mask_token_rate": 0.7,
        "random_token_rate": 0.2, "replacement": "token", "scheme": "noun_phrase", "seed": 5,
        "pad_predictions_to": 8, "num_mask_copies": 3,
    },
    NextSentencePairs: {
        "vocabulary_size": 97, "sep_token_id": 3, "pad_token_id": 1,
        "sentence_end_token_ids": (5, 6), "closing_token_ids": (7,),
        "continuation_token_ids": (70, 71), "short_rate": 0.2, "seed": 5,
    },
}  # fmt: skip


@pytest.mark.parametrize("cls", ARGUMENTS, ids=lambda cls: cls.__name__)
def test_config_round_trip(cls):
    layer = cls(**ARGUMENTS[cls])
    config = layer.get_config()
    assert set(inspect.signature(cls).parameters) - {"kwargs"} <= set(config)
    serialized = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    copy = keras.saving.deserialize_keras_object(serialized)
    assert type(copy) is cls and copy.get_config() == config
    for name, value in ARGUMENTS[cls].items():
        if not callable(getattr(layer, name)):  # Activations and initializers.
            assert getattr(copy, name) == value, name
