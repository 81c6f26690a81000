"""Small models without training, and inputs for them."""

import keras
import numpy as np

import keras_spanbert as ks

V, L = 13, 11
VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK] a b ##c d e f g h".split()


def tokenizer():
    return ks.SpanBertTokenizer(VOCABULARY)


def backbone(dtype=None):
    sizes = {"num_heads": 2, "hidden_dim": 6, "intermediate_dim": 7}
    return ks.SpanBertBackbone(V, 2, max_sequence_length=L, dtype=dtype, **sizes)


def pretrainer(dtype=None):
    arguments = {"sequence_length": L, "max_predictions": 3, "seed": 1}
    preprocessor = ks.SpanBertPretrainerPreprocessor(tokenizer(), **arguments)
    return ks.SpanBertPretrainer(backbone(dtype), preprocessor, position_dim=3)


def answerer(dtype=None, **kwargs):
    preprocessor = ks.SpanBertQuestionAnswererPreprocessor(tokenizer(), L, 2, 3)
    return ks.SpanBertQuestionAnswerer(backbone(dtype), preprocessor, **kwargs)


def inputs(model):
    arrays = {"token_ids": np.arange(2 * L).reshape(2, L) % V, "padding_mask": np.ones((2, L))}
    arrays["segment_ids"] = np.zeros((2, L))
    arrays |= {name: np.full((2, 3), 4) for name in model.input if name not in arrays}
    return {name: x.astype("int32") for name, x in arrays.items()}


def outputs(model, x=None):
    found = keras.tree.flatten(model(inputs(model) if x is None else x))
    return [keras.ops.convert_to_numpy(keras.ops.cast(y, "float32")) for y in found]
