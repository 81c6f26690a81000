"""Creation of the preprocessor from the masking flags."""

import pytest

import keras_spanbert as ks
from keras_spanbert.recipes import pretrain
from keras_spanbert.recipes.flags import FLAGS

VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK] a b ##c".split()


@pytest.fixture
def make():
    """Function that makes a model with such arguments, and its preprocessor."""

    def make(**arguments):
        backbone = ks.SpanBertBackbone(len(VOCABULARY), 1, 1, 4, 4, max_sequence_length=8)
        model = ks.SpanBertPretrainer(backbone, **arguments)
        return model, pretrain.new_preprocessor(ks.SpanBertTokenizer(VOCABULARY), model)

    return make


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
def test_slots_are_a_multiple_of_8_if_few_are_empty(flags, make, given, slots):
    flags(**given)
    _, preprocessor = make()
    length = given["sequence_length"]
    assert preprocessor.masking.num_predictions(length) == slots
    assert slots % FLAGS.pad_predictions_to == 0  # As written to `run.json`.


def test_preprocessor_has_the_values_of_the_flags(flags, make):
    values = {"sequence_length": 16, "mask_rate": 0.25, "seed": 7, "num_mask_copies": 3}
    values |= {"geometric_p": 0.5, "max_span_words": 4}
    flags(**values, pad_predictions_to=4, masking_scheme="whole_word", mask_replacement="token")
    config = make(max_span_tokens=9)[1].get_config()
    expected = {**values, "pad_predictions_to": 4, "max_span_tokens": 9}
    expected |= {"scheme": "whole_word", "replacement": "token"}
    assert {name: config[name] for name in expected} == expected


def test_model_has_the_weights_of_the_flags(flags, make):
    flags(objectives="mlm,sbo,nsp", sbo_weight=0.5, nsp_weight=0.25, batch_size=2)
    flags(sequence_length=8)
    model, preprocessor = make(next_sentence=True)
    assert preprocessor.span_boundary and preprocessor.next_sentence
    assert (model.sbo_weight, model.nsp_weight) == (0.5, 0.25)
