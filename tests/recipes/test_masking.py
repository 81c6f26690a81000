"""The flags of masking make the preprocessor."""

import json

import pytest
import train_script  # noqa: F401  (Defines the flags.)
from absl.testing import flagsaver

import keras_spanbert as ks
from keras_spanbert.recipes import masking, resume
from keras_spanbert.recipes.flags import FLAGS

VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK] a b ##c".split()


@pytest.fixture
def flags():
    with flagsaver.flagsaver():
        yield lambda **values: FLAGS(["train.py", *(f"--{k}={v}" for k, v in values.items())])


@pytest.mark.parametrize(
    ("given", "slots"),
    [
        ({"sequence_length": 512}, 80),  # For 77.
        ({"sequence_length": 384}, 58),  # 64 would be a tenth more.
        ({"sequence_length": 32}, 5),
        ({"sequence_length": 32, "predictions_multiple": 4}, 8),
        ({"sequence_length": 512, "predictions_multiple": 1}, 77),
    ],
)
def test_slots_are_a_multiple_of_8_where_few_stay_empty(flags, given, slots):
    flags(**given)
    preprocessor = masking.new_preprocessor(ks.SpanBertTokenizer(VOCABULARY), 15)
    length = given["sequence_length"]
    assert preprocessor.masking.num_predictions(length) == slots
    assert slots % FLAGS.predictions_multiple == 0  # As `run.json` will have it.


@pytest.mark.parametrize(("recorded", "expected"), [({}, 1), ({"predictions_multiple": 8}, 8)])
def test_run_that_goes_on_keeps_its_slots(flags, tmp_path, recorded, expected):
    record = {"flags": {"sequence_length": 512, **recorded}, "given": {}}
    (tmp_path / "run.json").write_text(json.dumps(record))
    flags(output=tmp_path, resume=True)
    resume.take_up_flags()
    assert (FLAGS.sequence_length, FLAGS.predictions_multiple) == (512, expected)


@pytest.mark.parametrize("scheme", ["random_span", "entity", "noun_phrase"])
def test_scheme_and_static_copies_make_the_preprocessor(flags, scheme):
    flags(scheme=scheme, static_copies=10, sequence_length=32)
    preprocessor = masking.new_preprocessor(ks.SpanBertTokenizer(VOCABULARY), 15)
    found = preprocessor.masking
    assert (found.scheme, found.static_copies, found.seed) == (scheme, 10, 0)
    config = preprocessor.get_config()
    assert (config["scheme"], config["static_copies"]) == (scheme, 10)
