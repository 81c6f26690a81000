"""Checkpoints of a run without the run."""

import errno
import os
import pathlib

import keras
import numpy as np
import pytest
from data_files import flip

import keras_spanbert as ks
from keras_spanbert.runs.checkpoint_folder import VERSION, CheckpointFolder

pytestmark = pytest.mark.once


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize(
    "name, damage",
    [
        ("arrays.npz", flip),
        ("arrays.npz", os.remove),
        ("state.json", flip),
        ("SHA256SUMS", flip),
        ("SHA256SUMS", empty),
        ("SHA256SUMS", lambda path: path.write_bytes(b"\xff")),
        ("state.json", lambda path: path.write_text('{"version": 2, "step": 3}')),
    ],
)
def test_damaged_checkpoint_is_set_aside(name, damage, tmp_path, caplog):
    folder = CheckpointFolder(str(tmp_path), 3)
    for step in [2, 4]:
        folder.write(step, {"w": np.full(3, step)}, f'{{"version": {VERSION}, "step": {step}}}')
    path, arrays, state = folder.read_newest()
    assert path.endswith("step-4") and state["step"] == 4 and arrays["w"].tolist() == [4] * 3
    damage(tmp_path / "step-4" / name)
    path, arrays, state = folder.read_newest()
    assert path.endswith("step-2") and state["step"] == 2 and arrays["w"].tolist() == [2] * 3
    assert (tmp_path / "step-4.damaged").is_dir() and folder.steps() == [2]
    assert f"{tmp_path}/step-4 is damaged" in caplog.text
    folder.write(4, {}, "{}")  # The same step can be written again.
    flip(tmp_path / "step-4" / "state.json")
    assert folder.read_newest()[0].endswith("step-2")
    assert (tmp_path / "step-4.damaged-2").is_dir()
    flip(tmp_path / "step-2" / "state.json")
    with pytest.raises(ValueError, match="At least one checkpoint must be intact.*all are damaged"):
        folder.read_newest()


def test_checkpoint_of_another_version_is_refused(tmp_path):
    """Former versions wrote the weights of a split model into several files, as version 3."""
    checkpoints = CheckpointFolder(str(tmp_path), keep=2)
    path = checkpoints.write(7, {"weights": np.ones(3)}, '{"version": 3}')
    with pytest.raises(ValueError, match=f"must have version 2.* Received: {path}, with version 3"):
        checkpoints.read_newest()


def test_full_disk_keeps_the_last_checkpoint(tmp_path, monkeypatch):
    def fail(path, **arrays):
        pathlib.Path(path).write_bytes(b"part")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder = CheckpointFolder(str(tmp_path), keep=3)
    folder.write(3, {"weights": np.ones(3)}, "{}")
    monkeypatch.setattr(np, "savez", fail)
    message = f"No space left on device; the last good checkpoint is {tmp_path}/step-3: .*/step-4"
    with pytest.raises(OSError, match=message):
        folder.write(4, {"weights": np.ones(3)}, "{}")
    assert os.listdir(tmp_path) == ["step-3"]


@pytest.mark.parametrize(
    "names, loss",
    [(["x", "y"], np.nan), (["x.a", "x.b", "y"], np.inf), (["x.0", "x.1", "y"], -np.inf)],
)
def test_the_batch_of_a_loss_that_is_not_finite_is_saved(tmp_path, names, loss):
    x = np.arange(12.0)
    data = {"x": x, "x.a": {"a": x, "b": x}, "x.0": (x, x)}[names[0]]
    stream = ks.Batches((data, x + 100), 4, seed=1)
    checkpoint = ks.TrainingCheckpoint(str(tmp_path), 9, data=stream)
    model = keras.Sequential()
    model.stop_training = False  # As `fit` sets it.
    checkpoint.set_model(model)
    checkpoint.set_params({"steps": 3})
    checkpoint.on_train_batch_end(0, {"loss": 1.0})
    message = f"{loss} at step 2; its batch is in .*-step-2.npz; no checkpoint yet"
    with pytest.raises(FloatingPointError, match=message):
        checkpoint.on_train_batch_end(1, {"loss": loss})
    checkpoint.close()
    batches = list(stream.dataset().take(2).as_numpy_iterator())
    with np.load(tmp_path / "bad-batch-step-2.npz") as saved:
        assert saved["y"].tolist() == batches[1][1].tolist() != batches[0][1].tolist()
        assert sorted(saved) == names and (saved["y"] - saved[names[0]] == 100).all()
