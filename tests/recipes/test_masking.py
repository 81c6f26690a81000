"""Creation of the preprocessor from the masking flags."""

import pytest

import keras_spanbert as ks
from keras_spanbert.recipes import masking
from keras_spanbert.recipes.flags import FLAGS

VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK] a b ##c".split()


@pytest.mark.parametrize(
    ("given", "slots"),
    [
        ({"sequence_length": 512}, 80),  # Padded from 77.
        ({"sequence_length": 384}, 58),  # 64 would be 10% more.
        ({"sequence_length": 32}, 5),
        ({"sequence_length": 32, "pad_predictions_to": 4}, 8),
        ({"sequence_length": 512, "pad_predictions_to": 1}, 77),
    ],
)
def test_slots_are_a_multiple_of_8_if_few_are_empty(flags, given, slots):
    flags(**given)
    preprocessor = masking.new_preprocessor(ks.SpanBertTokenizer(VOCABULARY), 15)
    length = given["sequence_length"]
    assert preprocessor.masking.num_predictions(length) == slots
    assert slots % FLAGS.pad_predictions_to == 0  # As written to `run.json`.


def test_preprocessor_has_the_values_of_the_flags(flags):
    values = {"sequence_length": 16, "mask_rate": 0.25, "seed": 7, "num_mask_copies": 3}
    values |= {"geometric_p": 0.5, "max_span_words": 4}
    flags(**values, pad_predictions_to=4, masking_scheme="whole_word", mask_replacement="token")
    config = masking.new_preprocessor(ks.SpanBertTokenizer(VOCABULARY), 9).get_config()
    expected = {**values, "pad_predictions_to": 4, "max_span_tokens": 9}
    expected |= {"scheme": "whole_word", "replacement": "token"}
    assert {name: config[name] for name in expected} == expected


def test_model_has_the_weights_of_the_flags(flags):
    flags(objectives="mlm,sbo,nsp", sbo_weight=0.5, nsp_weight=0.25, batch_size=2)
    backbone = ks.SpanBertBackbone(len(VOCABULARY), 1, 1, 4, 4, max_sequence_length=8)
    model = ks.SpanBertPretrainer(backbone, **masking.arguments())
    chosen = masking.preprocessor_arguments(model)
    assert chosen == {"span_boundary": True, "next_sentence": True}
    assert (model.sbo_weight, model.nsp_weight) == (0.5, 0.25)
