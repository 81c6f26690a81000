"""Behaviour shared by the models of all tasks."""

import grain
import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny_tasks
from comparisons import assert_close
from tiny_pretrainer import arrays, build, texts
from torch.utils.data import DataLoader

from keras_spanbert.data.batches import Batches
from keras_spanbert.models.fit_strings import kind_of, unpack


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
    tiny_tasks.with_large_weights(task).save_to_preset(tmp_path / "preset")
    cls = type(task)
    loaded = cls.from_preset(tmp_path / "preset", dropout=0.4, attention_dropout=0.0)
    assert (loaded.backbone.dropout, loaded.backbone.attention_dropout) == (0.4, 0.0)
    assert getattr(loaded, "dropout", 0.4) == 0.4 and not loaded.untrained_heads()
    assert_close(loaded.get_weights(), task.get_weights())
    layer = loaded.backbone.transformer_layers[0]
    x = np.ones((1, 3, loaded.backbone.hidden_dim), "float32")
    outputs = [keras.ops.convert_to_numpy(layer(x, training=t)) for t in [True, False]]
    assert np.abs(outputs[0] - outputs[1]).max() > 1e-3
    again = cls.from_preset(tmp_path / "preset", attention_dropout=0.3)
    rates = again.backbone.dropout, again.backbone.attention_dropout
    assert rates == (task.backbone.dropout, 0.3)


@pytest.mark.parametrize("given", ["auto", True, False])
def test_saved_models_keep_the_given_jit_compile(given):
    model = tiny_tasks.TASKS["texts"].build()
    model.compile(jit_compile=given)
    loaded = model.new_copy()
    loaded.compile_from_config(model.get_compile_config())
    assert loaded.get_compile_config()["jit_compile"] == given
    assert loaded.jit_compile == model.jit_compile
    if keras.backend.backend() == "torch":
        assert loaded._compiles_steps == model._compiles_steps


@pytest.mark.once
def test_list_of_dicts_is_rows_if_they_share_a_key():
    x, y = {"question": ["a", "b"]}, {"text": ["c", "d"]}
    assert unpack((x, y)) == (x, y, None)
    for pair in [[x, y], [{"token_ids": 1}, {"start": 2}]]:
        with pytest.raises(ValueError, match=r"`\(x, y\)` must be a tuple.* Received: \[\{"):
            unpack(pair)
    rows = [{"left": "a", "right": "b"}, {"left": "c"}]
    assert unpack(rows) == (rows, None, None)
    assert unpack(rows[:1]) == (rows[:1], None, None)
    assert unpack([{"token_ids": 1}]) == ({"token_ids": 1}, None, None)


@pytest.mark.once
def test_kinds_of_data():
    arrays, rows = {"token_ids": np.ones((2, 3))}, [{"left": "a"}]
    dataset = tf.data.Dataset.from_tensor_slices(["a", "b"])
    kinds = {
        "arrays": [arrays, (arrays, [0, 1]), (arrays,)],
        "rows": ["a", ["a"], ("a", "b"), rows, {"left": ["a"]}, [arrays], None, 3, ()],
        "dataset": [dataset],
        "py_dataset": [Batches((np.ones(3),), 2, 1)],
        "stream": [DataLoader(["a"]), iter(["a"]), (x for x in "ab"), grain.MapDataset.source("a")],
    }
    for kind, values in kinds.items():
        assert [kind_of(value) for value in values] == [kind] * len(values)
