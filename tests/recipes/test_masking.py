"""Creation of the preprocessor from the masking flags."""

import pytest
import train_script  # noqa: F401  (Defines the flags.)
from absl.testing import flagsaver

import keras_spanbert as ks
from keras_spanbert.recipes import masking
from keras_spanbert.recipes.flags import FLAGS

VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK] a b ##c".split()


@pytest.fixture
def flags():
    with flagsaver.flagsaver():
        yield lambda **values: FLAGS(["train.py", *(f"--{k}={v}" for k, v in values.items())])


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
