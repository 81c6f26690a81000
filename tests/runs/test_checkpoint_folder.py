"""Checkpoints of a run without the run."""

import os

import numpy as np
import pytest
from data_files import flip

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


def test_checkpoint_of_another_version_is_refused(tmp_path):
    """Former versions wrote the weights of a split model into several files, as version 3."""
    checkpoints = CheckpointFolder(str(tmp_path), keep=2)
    path = checkpoints.write(7, {"weights": np.ones(3)}, '{"version": 3}')
    with pytest.raises(ValueError, match=f"must have version 2.* Received: {path}, with version 3"):
        checkpoints.read_newest()
