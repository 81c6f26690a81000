"""The SavedModel gives the answers of `choose`."""

import numpy as np
import pytest
import tensorflow as tf
from task_rows import padded
from tiny_chooser import build, examples
from tiny_tasks import with_large_weights

import keras_spanbert as ks


@pytest.fixture(scope="module")
def model():
    return with_large_weights(build())


@pytest.fixture(scope="module")
def signatures(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "1"
    ks.serving.export_saved_model(model, path)
    return tf.saved_model.load(str(path)).signatures


def check(answers, outputs):
    choices, scores = outputs["choice"].numpy(), outputs["scores"].numpy()
    assert choices.dtype == np.int32 and scores.dtype == np.float32
    assert len(choices) == len(answers)
    for answer, choice, row in zip(answers, choices, scores):
        count = len(answer["scores"])
        np.testing.assert_allclose(row[:count], answer["scores"], atol=1e-4)
        np.testing.assert_array_equal(row[count:], 0.0)
        assert choice == row[:count].argmax() == answer["choice"]


def test_answers_equal_choose(model, signatures):
    rows = examples(50, seed=6)
    prompts, choices = ([row[name] for row in rows] for name in ["prompt", "choices"])
    outputs = signatures["serving_default"](
        prompt=tf.constant(prompts), choices=tf.constant(padded(choices))
    )
    check(model.choose(prompts, choices), outputs)


def test_contexts_and_unusual_texts(model, signatures):
    contexts = ["it is red", "", "it", "red " * 40, " "]
    prompts = ["it", "it is", "", "red", "it"]
    choices = [
        ["red", " "], ["blue", "it\u00e9"], ["red " * 30, "it"], ["red", "blue"], ["a", "b c"],
    ]  # fmt: skip
    outputs = signatures["contexts"](
        context=tf.constant(contexts),
        prompt=tf.constant(prompts),
        choices=tf.constant(padded(choices)),
    )
    check(model.choose(prompts, choices, contexts), outputs)
    # Invalid UTF-8 becomes the replacement character.
    choices = tf.constant([[b"re\xff", b"it"]])
    outputs = signatures["serving_default"](prompt=tf.constant([b"\xfe it"]), choices=choices)
    check(model.choose(["\ufffd it"], [["re\ufffd", "it"]]), outputs)


def test_prompt_without_choices_has_no_answer(signatures):
    choices = tf.constant([["", "red", ""], ["", "", ""]])
    outputs = signatures["serving_default"](prompt=tf.constant(["it", "it"]), choices=choices)
    assert outputs["choice"].numpy().tolist() == [1, -1]
    np.testing.assert_array_equal(outputs["scores"].numpy(), [[0, 1, 0], [0, 0, 0]])
    for shape in [(0, 4), (0, 0)]:
        outputs = signatures["serving_default"](
            prompt=tf.constant([], tf.string), choices=tf.zeros(shape, tf.string)
        )
        assert outputs["scores"].shape == shape and outputs["choice"].shape == (0,)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="must have the same length. Received:. .2. .1."
    ):
        signatures["serving_default"](
            prompt=tf.constant(["it", "it"]), choices=tf.constant([["red", "it"]])
        )
