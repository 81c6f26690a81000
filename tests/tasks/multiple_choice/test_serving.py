"""The SavedModel's answers are those of `choose`."""

import numpy as np
import pytest
import tensorflow as tf
from multiple_choice_reference import FOLDER, questions
from tiny_chooser import build, examples

import keras_spanbert as ks
from keras_spanbert.data import codah


def served(model, path):
    ks.serving.export_saved_model(model, path)
    return tf.saved_model.load(str(path)).signatures


@pytest.fixture(scope="module")
def signatures(trained_chooser, tmp_path_factory):
    return served(trained_chooser, tmp_path_factory.mktemp("served") / "1")


def padded(choices):
    size = max(map(len, choices))
    return tf.constant([[*row, *[""] * (size - len(row))] for row in choices])


def check(answers, outputs):
    choices, scores = outputs["choice"].numpy(), outputs["scores"].numpy()
    assert choices.dtype == np.int32 and scores.dtype == np.float32
    for answer, row in zip(answers, scores):
        count = len(answer["scores"])
        np.testing.assert_allclose(row[:count], answer["scores"], atol=1e-4)
        np.testing.assert_array_equal(row[count:], 0.0)
    assert len(choices) == len(answers)
    assert choices.tolist() == [answer["choice"] for answer in answers]


def test_answers_are_those_of_choose(trained_chooser, signatures):
    rows = examples(50, seed=6)
    prompts, choices = ([row[name] for row in rows] for name in ["prompt", "choices"])
    outputs = signatures["serving_default"](prompt=tf.constant(prompts), choices=padded(choices))
    check(trained_chooser.choose(prompts, choices), outputs)


def test_contexts_and_odd_texts(trained_chooser, signatures):
    contexts = ["it is red", "", "it", "red " * 40, " "]
    prompts = ["it", "it is", "", "red", "it"]
    choices = [["red", " "], ["blue", "it\u00e9"], ["red " * 30, "it"], ["red", "blue"], ["a", "b"]]
    outputs = signatures["contexts"](
        context=tf.constant(contexts), prompt=tf.constant(prompts), choices=padded(choices)
    )
    check(trained_chooser.choose(prompts, choices, contexts), outputs)


def test_what_has_no_choices_gets_none(signatures):
    choices = tf.constant([["", "red", ""], ["", "", ""]])
    outputs = signatures["serving_default"](prompt=tf.constant(["it", "it"]), choices=choices)
    assert outputs["choice"].numpy().tolist() == [1, -1]
    np.testing.assert_array_equal(outputs["scores"].numpy(), [[0, 1, 0], [0, 0, 0]])
    for shape in [(0, 4), (0, 0)]:
        outputs = signatures["serving_default"](
            prompt=tf.constant([], tf.string), choices=tf.zeros(shape, tf.string)
        )
        assert outputs["scores"].shape == shape and outputs["choice"].shape == (0,)


def test_as_many_choices_as_prompts(signatures):
    with pytest.raises(tf.errors.InvalidArgumentError, match="Not as many choices"):
        signatures["serving_default"](
            prompt=tf.constant(["it", "it"]), choices=tf.constant([["red", "it"]])
        )


def test_bytes_that_are_no_utf8_are_replaced(signatures):
    choices = tf.constant([[b"re\xff", b"it"]])
    outputs = signatures["serving_default"](prompt=tf.constant([b"\xfe it"]), choices=choices)
    assert outputs["scores"].numpy().sum() == pytest.approx(1.0)


def test_answers_to_codah_are_those_of_choose(shared_data, tmp_path):
    model = ks.SpanBertMultipleChoice.from_preset(str(shared_data / FOLDER / "model"))
    rows = codah.read(shared_data / "data" / "codah" / "full_data.tsv")[:1000]
    prompts, choices = ([row[name] for row in rows] for name in ["prompt", "choices"])
    signatures = served(model, tmp_path / "1")
    outputs = signatures["serving_default"](prompt=tf.constant(prompts), choices=padded(choices))
    check(model.choose(prompts, choices, batch_size=128), outputs)
    prompts, choices, _ = questions(shared_data)
    pairs = [prompt if isinstance(prompt, tuple) else ("", prompt) for prompt in prompts]
    contexts, starts = map(tf.constant, zip(*pairs))
    outputs = signatures["contexts"](context=contexts, prompt=starts, choices=padded(choices))
    check(model.choose(prompts, choices), outputs)


def test_what_cannot_be_served_is_named():
    model = build()
    model.preprocessor = None
    with pytest.raises(ValueError, match="Strings need a preprocessor"):
        model.serving_endpoints()
