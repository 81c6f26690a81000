"""Checkpoints of a run without the run."""

import numpy as np
import pytest
from data_files import flip

from keras_spanbert.runs.checkpoint_folder import VERSION, CheckpointFolder


@pytest.mark.once
@pytest.mark.parametrize("name", ["arrays.npz", "state.json", "SHA256SUMS"])
def test_damaged_checkpoint_is_set_aside(name, tmp_path):
    folder = CheckpointFolder(str(tmp_path), 3)
    for step in [2, 4]:
        folder.write(step, {"w": np.full(3, step)}, f'{{"version": {VERSION}, "step": {step}}}')
    path, arrays, state = folder.read_newest()
    assert path.endswith("step-4") and state["step"] == 4 and arrays["w"].tolist() == [4] * 3
    flip(tmp_path / "step-4" / name)
    path, arrays, state = folder.read_newest()
    assert path.endswith("step-2") and state["step"] == 2 and arrays["w"].tolist() == [2] * 3
    assert (tmp_path / "step-4.damaged").is_dir() and folder.steps() == [2]
