"""Behaviour shared by the models of all tasks."""

import keras
import pytest
from tiny_pretrainer import arrays, build, texts


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
