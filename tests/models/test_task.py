"""Behaviour shared by the models of all tasks."""

import keras
import numpy as np
import pytest
import tiny_tasks
from comparisons import assert_close
from tiny_pretrainer import arrays, build, texts

import keras_spanbert as ks


@pytest.mark.parametrize("how", ["built", "loaded"])
def test_first_batch_is_preprocessed_once(how, tmp_path, monkeypatch):
    model = build()
    x, _, _ = arrays(build(), texts(3))  # With another model, since preprocessing builds a model.
    if how == "loaded":
        model.save(tmp_path / "model.keras")
        model = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    cls, calls, call = type(model), [], type(model).call
    monkeypatch.setattr(cls, "call", lambda *args, **kw: calls.append(0) or call(*args, **kw))
    model.predict_on_batch(x)
    assert len(calls) == 1


@pytest.mark.parametrize("name", ["pretrain", *tiny_tasks.TASKS])
def test_presets_are_loaded_with_other_dropout_rates(name, tmp_path):
    task = build() if name == "pretrain" else tiny_tasks.TASKS[name].build()
    tiny_tasks.with_large_weights(task).save_to_preset(str(tmp_path / "preset"))
    cls = type(task)
    loaded = cls.from_preset(str(tmp_path / "preset"), dropout=0.4, attention_dropout=0.0)
    assert (loaded.backbone.dropout, loaded.backbone.attention_dropout) == (0.4, 0.0)
    assert getattr(loaded, "dropout", 0.4) == 0.4 and not loaded.untrained_heads()
    assert_close(loaded.get_weights(), task.get_weights())
    layer = loaded.backbone.transformer_layers[0]
    x = np.ones((1, 3, loaded.backbone.hidden_dim), "float32")
    outputs = [keras.ops.convert_to_numpy(layer(x, training=t)) for t in [True, False]]
    assert np.abs(outputs[0] - outputs[1]).max() > 1e-3
    again = cls.from_preset(str(tmp_path / "preset"), attention_dropout=0.3)
    rates = again.backbone.dropout, again.backbone.attention_dropout
    assert rates == (task.backbone.dropout, 0.3)


@pytest.mark.once
def test_one_device_saves_the_model_itself():
    with ks.distribution.Distribution().local(model := object()) as local:
        assert local is model


def test_heads_that_are_not_trained_stay_so_with_other_dropout_rates():
    assert build().with_dropout(0.3).untrained_heads() == build().untrained_heads() != []
