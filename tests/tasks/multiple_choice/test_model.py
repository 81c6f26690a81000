import keras
import numpy as np
import pytest
from multiple_choice_reference import FOLDER, questions
from tiny_chooser import build, examples

import keras_spanbert as ks
from keras_spanbert.tasks.multiple_choice.layers import NO_CHOICE


@pytest.fixture(scope="module")
def trained(trained_chooser):
    return trained_chooser


@pytest.fixture(scope="module")
def reference(shared_data):
    """The reference's model."""
    preprocessor = ks.SpanBertMultipleChoicePreprocessor.from_preset(
        str(shared_data / FOLDER / "model"), sequence_length=80
    )
    return ks.SpanBertMultipleChoice.from_preset(
        str(shared_data / FOLDER / "model"), preprocessor=preprocessor
    )


def columns(rows):
    return {name: [row[name] for row in rows] for name in ["prompt", "choices"]}


def arrays_of(features, length):
    names = {"token_ids": "model_ids", "segment_ids": "segment_ids", "padding_mask": "input_mask"}
    return {name: features[f"{length}/{theirs}"] for name, theirs in names.items()}


@pytest.mark.parametrize("length", [80, 32])
def test_logits_and_loss_are_those_of_the_reference(shared_data, reference, length):
    losses = {80: 1.33524751663208, 32: 1.3553178310394287}  # Of its expected.json.
    with np.load(shared_data / FOLDER / "features.npz") as features:
        inputs, logits = arrays_of(features, length), features[f"{length}/logits"]
        labels = features[f"{length}/label_ids"]
    found = keras.ops.convert_to_numpy(reference(inputs, training=False))
    np.testing.assert_allclose(found, logits, atol=1e-5)
    loss = reference.evaluate(inputs, labels, batch_size=20, verbose=0, return_dict=True)["loss"]
    assert loss == pytest.approx(losses[length], abs=1e-5)


def test_answers_are_those_of_the_reference(shared_data, reference):
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


def test_fit_learns_to_choose(trained):
    scores = trained.evaluate_choices(examples(60, seed=1))
    assert scores["accuracy"] > 90.0 and scores["total"] == 60


@pytest.mark.once
def test_what_is_no_choice_changes_nothing(trained):
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


def test_answers_do_not_depend_on_batches_or_padding(trained):
    rows = columns(examples(23, seed=3))
    expected = trained.choose(rows["prompt"], rows["choices"], batch_size=200)
    for answer, choices in zip(expected, rows["choices"]):
        assert len(answer["scores"]) == len(choices)
        assert sum(answer["scores"]) == pytest.approx(1.0)
    for answer, before in zip(trained.choose(*rows.values(), batch_size=5), expected):
        np.testing.assert_allclose(answer["scores"], before["scores"], atol=1e-5)


@pytest.mark.once
def test_one_prompt_gives_one_answer(trained):
    row = examples(1, seed=4)[0]
    one = trained.choose(row["prompt"], row["choices"])
    assert one == trained.choose([row["prompt"]], [row["choices"]])[0]
    with_context = trained.choose(("it", row["prompt"]), row["choices"])
    assert with_context == trained.choose(row["prompt"], row["choices"], "it") != one
    assert trained.choose(row["prompt"], row["choices"], "") == one
    assert trained.choose([], []) == []
    assert trained.choose([row]) == [one]


@pytest.mark.once
def test_scores_of_arrays_are_by_place(trained):
    answers = trained.choose(["it is"] * 2, np.array([["and", "", "red", ""], ["red"] * 4]))
    assert [len(answer["scores"]) for answer in answers] == [3, 4]
    assert answers[0]["scores"][1] == 0.0 and answers[0]["choice"] == 2
    np.testing.assert_allclose(answers[1]["scores"], [0.25] * 4, atol=1e-6)


def test_preset_and_keras_file_give_the_same_answers(trained, tmp_path):
    rows = columns(examples(5, seed=5))
    expected = trained.choose(*rows.values())
    trained.save_to_preset(tmp_path / "preset")
    trained.save(tmp_path / "model.keras")
    for model in [
        ks.SpanBertMultipleChoice.from_preset(tmp_path / "preset"),
        keras.models.load_model(tmp_path / "model.keras"),
    ]:
        assert model.preprocessor.sequence_length == 16 and model.dropout == 0.0
        for answer, before in zip(model.choose(*rows.values()), expected):
            np.testing.assert_allclose(answer["scores"], before["scores"], atol=1e-5)


@pytest.mark.once
def test_clone_gives_the_same_logits(trained):
    x = trained.preprocess(examples(3))[0]
    clone = keras.models.clone_model(trained)
    clone.set_weights(trained.get_weights())
    logits = [keras.ops.convert_to_numpy(m(x, training=False)) for m in [trained, clone]]
    np.testing.assert_allclose(logits[0], logits[1], atol=1e-6)


@pytest.mark.once
def test_encoder_of_a_pretrainers_preset(trained, caplog, tmp_path):
    pretrainer = ks.SpanBertPretrainer(
        trained.backbone,
        ks.SpanBertPretrainerPreprocessor(trained.preprocessor.tokenizer, sequence_length=16),
    )
    pretrainer.save_to_preset(tmp_path)
    caplog.clear()
    model = ks.SpanBertMultipleChoice.from_preset(tmp_path)
    assert "has no weights for the head of SpanBertMultipleChoice" in caplog.text
    assert model.untrained_heads() == ["pooler", "classifier"]
    model.choose("red", ["red", "blue"])
    assert "what its pooler and classifier gives is random" in caplog.text


def test_mixed_precision_trains_and_its_logits_are_float32():
    model = build(dtype="mixed_bfloat16")
    x, y, _ = model.preprocess(examples(8))
    assert keras.backend.standardize_dtype(model(x, training=False).dtype) == "float32"
    assert np.isfinite(model.train_on_batch(x, y)[0])


@pytest.mark.once
@pytest.mark.parametrize(
    "arguments, error",
    [
        (
            ("red", [["red", "blue"]]),
            "`prompts` must be a list of strings. Received: prompts='red'",
        ),
        ((["red"], [["red"]]), "2 choices or more. Received: 1"),
        (("red", ["red"]), "2 choices or more. Received: 1"),
        (("red", []), "2 choices or more. Received: 0"),
        (("red", "blue"), r"a list of strings for each prompt, 2 or more. Received: .*='blue'"),
        ((["red"], [["red", "blue"]], ["it"] * 2), "as many. Received: 1, 1, 2"),
    ],
)
def test_what_are_no_questions_is_named(trained, arguments, error):
    with pytest.raises(ValueError, match=error):
        trained.choose(*arguments)


@pytest.mark.once
@pytest.mark.parametrize(
    "labels, error",
    [
        ([0, 5], "one of its question's choices. Received: 5 at 1, a question of 3"),
        ([2, 0], "one of its question's choices. Received: 2 at 0, a question of 2"),
        ([0, -1], "the number of a choice, from 0. Received: -1 at 1"),
        (np.eye(2), "the number of a choice, from 0. Received: array"),
        (["a", "b"], "Received: 'a' at 0"),
        ([0, None], "Received: None at 1"),
        (np.array([0.0, 1.0]), "Received: 0.0 at 0"),
        ([0], "`y` must have a value for each row. Received: 1 for 2 rows"),
    ],
)
def test_label_that_is_no_choice_is_named(trained, labels, error):
    x = {"prompt": ["red"] * 2, "choices": [["red", "blue"], ["red", "blue", "green"]]}
    with pytest.raises(ValueError, match=error):
        trained.preprocess(x, labels)


@pytest.mark.once
def test_examples_that_cannot_be_scored_are_named(trained):
    without, with_label = {**examples(1)[0], "label": None}, examples(1)[0]
    with pytest.raises(ValueError, match="must have labels, to be scored. Received: none"):
        trained.evaluate_choices([without])
    with pytest.raises(ValueError, match="the number of a choice, from 0. Received: None at 1"):
        trained.evaluate_choices([with_label, without])
    with pytest.raises(ValueError, match="one of its question's choices. Received: 9"):
        trained.evaluate_choices([{**with_label, "label": 9}])
    for wrong in [[], "dev.tsv", {"prompt": ["red"]}]:
        with pytest.raises(ValueError, match="`examples` must be what .*swag.read` gives"):
            trained.evaluate_choices(wrong)


@pytest.mark.once
@pytest.mark.parametrize("dropout", [1.0, -0.1, "a", None])
def test_dropout_that_is_none_is_named(dropout):
    with pytest.raises(ValueError, match="`dropout` must be in"):
        build(dropout=dropout)


@pytest.mark.once
def test_rows_longer_than_the_model_are_refused():
    model = build()
    model.preprocessor = ks.SpanBertMultipleChoicePreprocessor(model.preprocessor.tokenizer, 17)
    with pytest.raises(ValueError, match="at most the model's 16. Received: sequence_length=17"):
        model.choose("red", ["red", "blue"])
    model.preprocessor = None
    with pytest.raises(ValueError, match="Strings need a preprocessor"):
        model.choose("red", ["red", "blue"])
