"""Profiler traces of training steps."""

import json

import keras
import numpy as np
import pytest

from keras_spanbert.runs.profile import Profile

X, Y = np.ones((40, 4), "float32"), np.ones((40, 1), "float32")


def fit(profile, steps_per_execution=1, num_batches=10):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=steps_per_execution)
    rows = 4 * num_batches
    model.fit(X[:rows], Y[:rows], 4, callbacks=[profile], verbose=0)


@pytest.mark.parametrize("steps", [2, 100])
def test_trace_can_be_opened_by_the_viewer(tmp_path, steps):
    fit(Profile(str(tmp_path / "profile"), steps))
    if keras.backend.backend() == "torch":
        trace = json.loads((tmp_path / "profile" / "trace.json").read_text())
        assert any("aten::" in event.get("name", "") for event in trace["traceEvents"])
    else:
        (trace,) = tmp_path.glob("profile/plugins/profile/*/*.xplane.pb")
        assert trace.stat().st_size > 1000


@pytest.mark.parametrize(
    ("per_execution", "expected"), [(1, [(5, 8)]), (2, [(6, 10)]), (4, [(8, 12)])]
)
def test_traced_steps(tmp_path, monkeypatch, per_execution, expected):
    if per_execution > 1 and keras.backend.backend() == "torch":
        pytest.skip("PyTorch runs each step on its own")
    traced, profile = [], Profile(str(tmp_path), 3)

    def start(folder):
        first = profile._step
        return lambda: traced.append((first, profile._step))

    monkeypatch.setattr("keras_spanbert.runs.profile._start", start)
    fit(profile, per_execution)
    assert traced == expected


def test_short_run_has_no_trace(tmp_path):
    fit(Profile(str(tmp_path / "profile"), 2), num_batches=5)
    assert not (tmp_path / "profile").exists()


def test_zero_steps_are_refused(tmp_path):
    with pytest.raises(ValueError, match="`steps` must be at least 1. Received: steps=0"):
        Profile(str(tmp_path), 0)
