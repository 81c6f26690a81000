import keras
import numpy as np
import pytest
from multiple_choice_reference import FOLDER, questions
from tiny_chooser import build, examples, train

import keras_spanbert as ks
from keras_spanbert.tasks.multiple_choice.model import NO_CHOICE


@pytest.fixture(scope="module")
def trained():
    """A trained model. Tests must not change it."""
    return train()


@pytest.fixture(scope="module")
def reference(shared_data):
    """The reference model."""
    preprocessor = ks.SpanBertMultipleChoicePreprocessor.from_preset(
        str(shared_data / FOLDER / "model"), sequence_length=80
    )
    return ks.SpanBertMultipleChoice.from_preset(
        str(shared_data / FOLDER / "model"), preprocessor=preprocessor
    )


@pytest.mark.parametrize("length", [pytest.param(80, marks=pytest.mark.torch_first), 32])
def test_logits_and_loss_equal_the_reference(shared_data, reference, length):
    losses = {80: 1.33524751663208, 32: 1.3553178310394287}  # From expected.json.
    with np.load(shared_data / FOLDER / "features.npz") as features:
        names = {"token_ids": "model_ids", "segment_ids": "segment_ids"}
        names["padding_mask"] = "input_mask"
        inputs = {name: features[f"{length}/{theirs}"] for name, theirs in names.items()}
        logits = features[f"{length}/logits"]
        labels = features[f"{length}/label_ids"]
    found = keras.ops.convert_to_numpy(reference(inputs, training=False))
    np.testing.assert_allclose(found, logits, atol=1e-5)
    loss = reference.evaluate(inputs, labels, batch_size=20, verbose=0, return_dict=True)["loss"]
    assert loss == pytest.approx(losses[length], abs=1e-5)


@pytest.mark.torch_first
def test_answers_equal_the_reference(shared_data, reference):
    prompts, choices, labels = questions(shared_data)
    answers = reference.choose(prompts, choices, batch_size=80)
    with np.load(shared_data / FOLDER / "features.npz") as features:
        logits = features["80/logits"].astype("float64")
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose([a["scores"] for a in answers], probabilities, atol=1e-5)
    assert [a["choice"] for a in answers] == logits.argmax(axis=1).tolist()
    rows = [
        {"prompt": p, "choices": c, "label": label} for p, c, label in zip(prompts, choices, labels)
    ]
    assert reference.evaluate_choices(rows, batch_size=80) == {
        "accuracy": pytest.approx(30.0),
        "total": 20,
    }


@pytest.mark.once
def test_padding_choices_change_nothing(trained):
    rows = [row for row in examples(9, seed=2) if len(row["choices"]) == 3][:2]
    alone = trained.preprocess(rows)[0]
    padded = trained.preprocess([*rows, examples(1, choices=5)[0]])[0]
    assert padded["token_ids"].shape[:2] == (3, 5)
    logits = keras.ops.convert_to_numpy(trained(padded, training=False))
    without_mask = {name: array for name, array in alone.items() if name != "choice_mask"}
    expected = keras.ops.convert_to_numpy(trained(without_mask, training=False))
    np.testing.assert_allclose(logits[:2, :3], expected, atol=1e-5)
    np.testing.assert_array_equal(logits[:2, 3:], np.full((2, 2), NO_CHOICE))
    labels = np.array([row["label"] for row in rows])
    losses = [
        keras.ops.convert_to_numpy(trained.default_loss()(labels, array))
        for array in [expected, logits[:2]]
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.once
def test_single_prompts_contexts_and_arrays(trained):
    row = examples(1, seed=4)[0]
    one = trained.choose(row["prompt"], row["choices"])
    with_context = trained.choose(("it", row["prompt"]), row["choices"])
    assert with_context == trained.choose(row["prompt"], row["choices"], "it") != one
    assert trained.choose(row["prompt"], row["choices"], "") == one
    assert trained.choose([row]) == [one]
    both = [{name: row[name] for name in ["prompt", "choices"]}, {**row, "context": "it"}]
    assert trained.choose(both) == [one, with_context]
    answers = trained.choose(["it is"] * 2, np.array([["and", "", "red", ""], ["red"] * 4]))
    assert [len(answer["scores"]) for answer in answers] == [3, 4]
    assert answers[0]["scores"][1] == 0.0 and answers[0]["choice"] == 2
    np.testing.assert_allclose(answers[1]["scores"], [0.25] * 4, atol=1e-6)


def test_logits_are_float32_in_mixed_precision():
    model = build(dtype="mixed_bfloat16")
    x = model.preprocess(examples(8))[0]
    assert keras.backend.standardize_dtype(model(x, training=False).dtype) == "float32"
