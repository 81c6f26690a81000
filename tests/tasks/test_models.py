"""What the models of all tasks do: answers, files, heads without weights, mistakes."""

import json

import keras
import numpy as np
import pytest
from comparisons import assert_close
from tiny_tasks import TASKS, with_large_weights

import keras_spanbert as ks

LABELLED = [name for name, task in TASKS.items() if task.labels]


@pytest.fixture(scope="module", params=TASKS)
def task(request):
    return TASKS[request.param]


@pytest.fixture(scope="module")
def model(task):
    """A model with large weights, so that answers differ clearly. Tests must not change it."""
    return with_large_weights(task.build())


@pytest.mark.every_backend
def test_answers_do_not_depend_on_batches_or_containers(task, model):
    ask = getattr(model, task.ask)
    expected = ask(*task.columns, batch_size=64)
    assert_close(ask(*task.columns, batch_size=3), expected, 1e-4)
    assert_close(ask(*(column[1] for column in task.columns)), expected[1], 1e-4)
    arrays = [np.array(c) if isinstance(c[0], str) else tuple(c) for c in task.columns]
    assert_close(ask(*arrays), expected, 1e-4)
    assert ask(*([] for _ in task.columns)) == []


@pytest.mark.once
def test_lone_surrogates_become_replacement_characters(task, model):
    def ask(mark):
        columns = [
            [f"{value} {mark}" for value in column] if isinstance(column[0], str) else column
            for column in task.columns[:2]
        ]
        return getattr(model, task.ask)(*columns, *task.columns[2:])

    def replace(value):
        return value.replace("\ud800", "\ufffd") if isinstance(value, str) else value

    assert keras.tree.map_structure(replace, ask("\ud800")) == ask("\ufffd")


@pytest.mark.parametrize(
    "file",
    [
        "preset",
        pytest.param("huggingface", marks=pytest.mark.once),
        pytest.param("model.keras", marks=pytest.mark.once),
    ],
)
def test_files_have_heads_and_settings(task, model, tmp_path, file):
    path = tmp_path / file
    if file == "huggingface":
        ks.checkpoints.to_huggingface(model, path)
        config = json.loads((path / "config.json").read_text())
        assert config["architectures"] == [model.huggingface_class]
        if task.labels:
            assert list(config["id2label"].values()) == model.label_names()
    elif file == "preset":
        model.save_to_preset(path)
    else:
        model.optimizer.build(model.trainable_variables)
        model.save(path)
    again = keras.models.load_model(path) if "." in file else type(model).from_preset(path)
    arrays = model.preprocess(task.forms["columns"][0])[0]
    assert_close(*(each(arrays, training=False) for each in [again, model]), 1e-5)
    assert again.untrained_heads() == []
    assert settings(again) == settings(model)
    if file != "huggingface" or task.ask != "answer":  # Its folders do not have a stride.
        assert settings(again.preprocessor) == settings(model.preprocessor)


def settings(thing):
    parts = ["backbone", "preprocessor", "tokenizer", "dtype", "name"]
    return {name: value for name, value in thing.get_config().items() if name not in parts}


@pytest.mark.once
def test_head_without_weights_is_random(task, model, caplog, tmp_path):
    preprocessor = ks.SpanBertPretrainerPreprocessor(model.preprocessor.tokenizer, 16)
    ks.SpanBertPretrainer(model.backbone, preprocessor).save_to_preset(tmp_path)
    caplog.clear()
    arguments = {}
    if task.labels:
        with pytest.raises(ValueError, match="must be given: .* has no head for a SpanBert"):
            type(model).from_preset(tmp_path)
        arguments = {task.labels: model.label_names()}
    again = type(model).from_preset(tmp_path, **arguments)
    assert again.untrained_heads() == list(model.head_layers())
    assert "has no weights for the head" in caplog.text
    assert_close(again.backbone.get_weights(), model.backbone.get_weights())
    again.preprocessor = model.preprocessor  # It knows the types of the relations.
    for use in [getattr(again, task.ask), lambda *_: again.save_to_preset(tmp_path / "again")]:
        caplog.clear()
        use(*task.columns)
        heads = " and ".join(model.head_layers())
        assert f"not been trained: the output of its {heads} is random" in caplog.text


@pytest.mark.once
@pytest.mark.parametrize("task", LABELLED, indirect=True)
def test_other_labels_start_with_a_random_classifier(task, model, caplog, tmp_path):
    model.save_to_preset(tmp_path)
    again = type(model).from_preset(tmp_path, **{task.labels: ["O", "B-x", "I-x"]})
    assert again.label_names() == ["O", "B-x", "I-x"] and again.classifier.units == 3
    assert again.untrained_heads() == ["classifier"]
    assert "has a classifier with other labels or of another kind" in caplog.text
    for name in {*model.head_layers(), "backbone"} - {"classifier"}:
        assert_close(*(getattr(each, name).weights for each in [again, model]))


def test_mixed_precision_trains(task, mixed_bfloat16):
    model = task.build()
    x, y, weights = model.preprocess(*task.forms["columns"])
    model.compile(run_eagerly=keras.backend.backend() == "tensorflow")
    loss = model.train_on_batch(x, y, weights, return_dict=True)["loss"]
    assert np.isfinite(loss)


@pytest.mark.once
def test_mistakes_are_named(task):
    model = task.build()
    ask = getattr(model, task.ask)
    for wrong, rule in [(0, "must be at least 1"), (True, "must be an integer")]:
        with pytest.raises(ValueError, match=f"`batch_size` {rule}"):
            ask(*task.columns, batch_size=wrong)
    model.preprocessor.sequence_length = 25
    with pytest.raises(
        ValueError, match=r"at most the model's \d+. Received: preprocessor.sequence_length=25"
    ):
        ask(*task.columns)
    model.preprocessor = None
    with pytest.raises(ValueError, match="Strings need a preprocessor"):
        ask(*task.columns)
    for wrong in [[], "dev.json"]:
        with pytest.raises(ValueError, match="`examples` must .* Received: "):
            getattr(model, task.evaluate)(wrong)
