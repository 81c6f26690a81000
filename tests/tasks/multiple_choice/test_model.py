import json

import keras
import numpy as np
import pytest
from comparisons import assert_close, assert_rows
from tiny_chooser import build, examples, train

import keras_spanbert as ks
from keras_spanbert.tasks.multiple_choice.model import NO_CHOICE


@pytest.fixture(scope="module")
def trained():
    """A trained model. Tests must not change it."""
    return train()


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


@pytest.mark.every_backend
def test_logits_are_float32_in_mixed_precision():
    model = build(dtype="mixed_bfloat16")
    x = model.preprocess(examples(8))[0]
    assert keras.backend.standardize_dtype(model(x, training=False).dtype) == "float32"


VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "e", "##x"]


def preprocessor(sequence_length=8):
    return ks.SpanBertMultipleChoicePreprocessor(ks.SpanBertTokenizer(VOCABULARY), sequence_length)


def test_empty_choices_in_lists_and_arrays():
    by_list = preprocessor().inputs(["a"], [["", "b", "c"]])
    assert by_list["token_ids"][0, 0].tolist() == [2, 5, 3, 0, 0, 0, 0, 0]  # [CLS] a [SEP]
    by_array = preprocessor().inputs(["a"], np.array([["", "b", "c"]]))
    np.testing.assert_array_equal(by_list["choice_mask"], [[1, 1, 1]])
    lists = np.empty(1, object)
    lists[0] = ["", "b", "c"]
    np.testing.assert_array_equal(preprocessor().inputs(["a"], lists)["choice_mask"], [[1, 1, 1]])
    np.testing.assert_array_equal(by_array["choice_mask"], [[0, 1, 1]])
    assert not by_array["padding_mask"][0, 0].any()


def test_very_long_and_blank_texts():
    long = "a b c d e " * 10_000
    inputs = preprocessor(512).inputs([long, "a"], [[long, " "], ["\u200b", "b"]])
    assert inputs["padding_mask"].sum(axis=2).tolist() == [[512, 511], [3, 5]]
    assert preprocessor().inputs([], [])["token_ids"].shape == (0, 0, 8)
