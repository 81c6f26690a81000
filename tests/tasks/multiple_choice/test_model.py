import json

import keras
import numpy as np
import pytest
from comparisons import assert_close, assert_rows
from tiny_chooser import build, examples
from tiny_tasks import with_large_weights

import keras_spanbert as ks
from keras_spanbert.tasks.multiple_choice.model import NO_CHOICE


@pytest.fixture(scope="module")
def model():
    """A model with large weights, so that answers differ clearly. Tests must not change it."""
    return with_large_weights(build())


@pytest.fixture(scope="module")
def reference(finetuning):
    """The reference model."""
    preset = str(finetuning("multiple_choice")[0] / "model")
    preprocessor = ks.SpanBertMultipleChoicePreprocessor.from_preset(preset, sequence_length=80)
    return ks.SpanBertMultipleChoice.from_preset(preset, preprocessor=preprocessor)


@pytest.fixture(scope="module")
def questions(finetuning):
    """`(prompts, choices, labels)` of ten questions of SWAG and ten of CODAH."""
    examples = json.loads((finetuning("multiple_choice")[0] / "examples.json").read_text())
    prompts = [(e["sent1"], e["sent2"]) if e["sent2"] else e["sent1"] for e in examples]
    return prompts, [e["endings"] for e in examples], [e["label"] for e in examples]


@pytest.mark.parametrize("length", [80, 32])
def test_rows_equal_the_reference(finetuning, questions, cased_tokenizer, length):
    prompts, choices, _ = questions
    preprocessor = ks.SpanBertMultipleChoicePreprocessor(cased_tokenizer, length)
    inputs = preprocessor.inputs(prompts, choices)
    assert_rows(inputs, finetuning("multiple_choice")[2], f"{length}/")
    np.testing.assert_array_equal(inputs["choice_mask"], np.ones((20, 4)))


@pytest.mark.every_backend
@pytest.mark.parametrize("length", [pytest.param(80, marks=pytest.mark.torch_first), 32])
def test_logits_and_loss_equal_the_reference(finetuning, reference, length):
    losses = {80: 1.33524751663208, 32: 1.3553178310394287}  # From expected.json.
    features = finetuning("multiple_choice")[2]
    names = {"token_ids": "model_ids", "segment_ids": "segment_ids", "padding_mask": "input_mask"}
    inputs = {name: features[f"{length}/{theirs}"] for name, theirs in names.items()}
    labels = features[f"{length}/label_ids"]
    assert_close(reference(inputs, training=False), features[f"{length}/logits"], 1e-5)
    loss = reference.evaluate(inputs, labels, batch_size=20, verbose=0, return_dict=True)["loss"]
    assert loss == pytest.approx(losses[length], abs=1e-5)


@pytest.mark.torch_first
def test_answers_equal_the_reference(finetuning, questions, reference):
    prompts, choices, labels = questions
    answers = reference.choose(prompts, choices, batch_size=80)
    logits = finetuning("multiple_choice")[2]["80/logits"].astype("float64")
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose([a["scores"] for a in answers], probabilities, atol=1e-5)
    assert [a["choice"] for a in answers] == logits.argmax(axis=1).tolist()
    rows = [
        {"prompt": p, "choices": c, "label": label} for p, c, label in zip(prompts, choices, labels)
    ]
    scores = reference.evaluate_choices(rows, batch_size=80)
    assert scores == {"accuracy": pytest.approx(30.0), "total": 20}


def test_padding_choices_change_nothing(model):
    rows = [row for row in examples(9, seed=2) if len(row["choices"]) == 3][:2]
    alone = model.preprocess(rows)[0]
    padded = model.preprocess([*rows, examples(1, choices=5)[0]])[0]
    assert padded["token_ids"].shape[:2] == (3, 5)
    logits = keras.ops.convert_to_numpy(model(padded, training=False))
    without_mask = {name: array for name, array in alone.items() if name != "choice_mask"}
    expected = keras.ops.convert_to_numpy(model(without_mask, training=False))
    np.testing.assert_allclose(logits[:2, :3], expected, atol=1e-5)
    np.testing.assert_array_equal(logits[:2, 3:], np.full((2, 2), NO_CHOICE))
    labels = np.array([row["label"] for row in rows])
    losses = [
        keras.ops.convert_to_numpy(model.default_loss()(labels, array))
        for array in [expected, logits[:2]]
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_single_prompts_contexts_and_arrays(model):
    (row,) = examples(1, seed=4)
    prompt, choices = row["prompt"], row["choices"]
    one = model.choose(prompt, choices)
    with_context = model.choose(("it", prompt), choices)
    assert with_context == model.choose(prompt, choices, "it") != one
    assert model.choose(prompt, choices, "") == one
    both = [{"prompt": prompt, "choices": choices}, {**row, "context": "it"}]
    assert model.choose(both) == [one, with_context]
    answers = model.choose(["it is"] * 2, np.array([["and", "", "red", ""], ["red"] * 4]))
    first, second = model.choose("it is", ["and", "red"])["scores"]
    assert answers[0]["scores"] == pytest.approx([first, 0.0, second], abs=1e-6)
    assert answers[0]["choice"] == (0 if first > second else 2)
    np.testing.assert_allclose(answers[1]["scores"], [0.25] * 4, atol=1e-6)


@pytest.mark.every_backend
def test_logits_are_float32_in_mixed_precision():
    model = build(dtype="mixed_bfloat16")
    x = model.preprocess(examples(8))[0]
    assert keras.backend.standardize_dtype(model(x, training=False).dtype) == "float32"


def test_empty_choices_in_lists_and_arrays(model):
    array = np.array([["", "red", "blue"]])
    lists = np.empty(1, object)
    lists[0] = array[0].tolist()
    for choices, mask in [([*lists], [1, 1, 1]), (lists, [1, 1, 1]), (array, [0, 1, 1])]:
        inputs = model.preprocessor.inputs(["it"], choices)
        assert inputs["choice_mask"].tolist() == [mask]
        row = [2, 11, 3] if mask[0] else []  # [CLS] it [SEP]
        assert inputs["token_ids"][0, 0].tolist() == row + [0] * (16 - len(row))


def test_very_long_and_blank_texts(model):
    long = "it is red and " * 10_000
    inputs = model.preprocessor.inputs([long, "it"], [[long, " "], ["\u200b", "is"]])
    assert inputs["padding_mask"].sum(axis=2).tolist() == [[16, 15], [3, 5]]
    assert model.preprocessor.inputs([], [])["token_ids"].shape == (0, 0, 16)
