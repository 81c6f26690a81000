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
def ask(model, tmp_path_factory):
    """Returns a function of strings that returns the outputs of a signature."""
    path = tmp_path_factory.mktemp("served") / "1"
    ks.serving.export_saved_model(model, path)
    signatures = tf.saved_model.load(str(path)).signatures

    def ask(signature="serving_default", **columns):
        columns = {name: tf.constant(column, tf.string) for name, column in columns.items()}
        return {name: x.numpy() for name, x in signatures[signature](**columns).items()}

    return ask


def check(answers, outputs):
    choices, scores = outputs["choice"], outputs["scores"]
    assert choices.dtype == np.int32 and scores.dtype == np.float32
    assert len(choices) == len(answers)
    for answer, choice, row in zip(answers, choices, scores):
        count = len(answer["scores"])
        np.testing.assert_allclose(row[:count], answer["scores"], atol=1e-4)
        np.testing.assert_array_equal(row[count:], 0.0)
        assert choice == row[:count].argmax() == answer["choice"]


def test_answers_equal_choose(model, ask):
    rows = examples(50, seed=6)
    prompts, choices = ([row[name] for row in rows] for name in ["prompt", "choices"])
    check(model.choose(prompts, choices), ask(prompt=prompts, choices=padded(choices)))


def test_contexts_and_unusual_texts(model, ask):
    contexts = ["it is red", "", "it", "red " * 40, " "]
    prompts = ["it", "it is", "", "red", "it"]
    choices = [
        ["red", " "], ["blue", "it\u00e9"], ["red " * 30, "it"], ["red", "blue"], ["a", "b c"],
    ]  # fmt: skip
    outputs = ask("contexts", context=contexts, prompt=prompts, choices=padded(choices))
    check(model.choose(prompts, choices, contexts), outputs)
    # Invalid UTF-8 becomes the replacement character.
    outputs = ask(prompt=[b"\xfe it"], choices=[[b"re\xff", b"it"]])
    check(model.choose(["\ufffd it"], [["re\ufffd", "it"]]), outputs)


def test_prompt_without_choices_has_no_answer(ask):
    outputs = ask(prompt=["it", "it"], choices=[["", "red", ""], ["", "", ""]])
    assert outputs["choice"].tolist() == [1, -1]
    np.testing.assert_array_equal(outputs["scores"], [[0, 1, 0], [0, 0, 0]])
    for shape in [(0, 4), (0, 0)]:
        outputs = ask(prompt=[], choices=tf.zeros(shape, tf.string))
        assert outputs["scores"].shape == shape and outputs["choice"].shape == (0,)
    error = tf.errors.InvalidArgumentError
    with pytest.raises(error, match="must have the same length. Received:. .2. .1."):
        ask(prompt=["it", "it"], choices=[["red", "it"]])
