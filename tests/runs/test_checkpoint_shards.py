"""Checkpoints written by several processes. tests/distribution tests them with JAX."""

import json
import os
import shutil
import threading

import keras
import numpy as np
import pytest
from data_files import flip

import keras_spanbert as ks
from keras_spanbert import files
from keras_spanbert.runs import checkpoint_folder, checkpoint_shards
from keras_spanbert.runs.checkpoint_folder import CheckpointFolder

pytest_plugins = ["s3_server"]
pytestmark = pytest.mark.usefixtures("untraced")
X = np.random.default_rng(0).normal(size=(14, 3)).astype("float32")
Y = X @ np.array([[1.0], [-2.0], [0.5]], "float32")
START = 11


def run(folder, epochs):
    """Trains with 7 steps per epoch. Returns the values of all variables and the epochs."""
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Dense(5, "tanh"), keras.layers.Dropout(0.3), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((3,)), *layers])
    model.compile("adam", "mse", jit_compile=keras.backend.backend() == "jax")
    stream = ks.Batches((X, Y), batch_size=2, seed=1)
    checkpoint = ks.TrainingCheckpoint(str(folder), 3, data=stream)
    arguments = {"steps_per_epoch": 7, "shuffle": False, "verbose": 0}
    history = model.fit(stream.dataset(), epochs=epochs, callbacks=[checkpoint], **arguments)
    checkpoint.close()
    variables = [*model.variables, *model.optimizer.variables]
    return [keras.ops.convert_to_numpy(v) for v in variables], history.epoch


def split(arrays):
    """Splits arrays into whole arrays and slices for two processes, by columns or rows."""
    whole, slices = {}, ({}, {})
    for name, array in arrays.items():
        if array.ndim != 2 or "data/" in name:
            whole[name] = array
        elif array.shape[1] == 5:
            slices[0][f"{name}/0"] = [[0, 3], [0, 2]], array[:, :2]
            slices[1][f"{name}/0"] = [[0, 3], [2, 5]], array[:, 2:]
        else:  # Three slices. The second process has two of them.
            slices[0][f"{name}/0"] = [[0, 2], [0, 1]], array[:2]
            slices[1][f"{name}/0"] = [[4, 5], [0, 1]], array[4:]
            slices[1][f"{name}/1"] = [[2, 4], [0, 1]], array[2:4]
    return whole, slices


def write_together(folder, step, arrays, state):
    whole, slices = split(arrays)
    assert slices[0].keys() == {f"{group}/{i}/0" for group, i in WEIGHTS}
    first, second = (CheckpointFolder(folder, 3, i, START) for i in range(2))
    late = threading.Timer(0.3, second.write_shard, [step, slices[1]])
    late.start()
    first.write_shard(step, slices[0])
    state = json.dumps({**state, "version": 3, "num_parts": 2, "start": START})
    try:
        first.write(step, whole, state, num_shards=2)
    finally:
        late.join()


# Two kernels, each with two moments, after the step count and the learning rate.
WEIGHTS = [("model", 0), ("model", 3), *[("optimizer", i) for i in (2, 6, 3, 7)]]


@pytest.fixture(scope="module")
def halted(tmp_path_factory):
    """A run that ended with step 7. Only its newest checkpoint is in shards."""
    folder = tmp_path_factory.mktemp("halted")
    run(folder, 1)
    with np.load(folder / "step-7" / "arrays.npz") as file:
        arrays = dict(file)
    state = json.loads((folder / "step-7" / "state.json").read_text())
    shutil.rmtree(folder / "step-7")
    write_together(str(folder), 7, arrays, state)  # By two threads.
    return folder


SHARD_FILES = [f"part-{i}-{START}{ending}" for i in range(2) for ending in (".json", ".npz")]
NAMES = ["SHA256SUMS", "arrays.npz", *SHARD_FILES, "state.json"]


@pytest.mark.every_backend
def test_one_process_resumes_from_shards(halted, tmp_path):
    assert sorted(os.listdir(halted / "step-7")) == NAMES
    assert not list(halted.glob("*.partial"))
    folder = shutil.copytree(halted, tmp_path / "run")
    variables, epochs = run(folder, 2)
    assert epochs == [1]
    expected, _ = run(tmp_path / "uninterrupted", 2)
    for mine, theirs in zip(variables, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-6)


def whole_arrays(folder):
    _, arrays, state = CheckpointFolder(str(folder), 3).read_newest()
    return {name: np.asarray(array) for name, array in arrays.items()}, state


def assert_same_arrays(folder, expected):
    found, _ = whole_arrays(folder)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def test_run_resumes_from_shards_in_a_store(halted, tmp_path, bucket):
    arrays, state = whole_arrays(halted)
    # A process of the earlier run writes its shard late.
    late = [CheckpointFolder(f"{bucket}/run", 3, 1, START - i) for i in (1, 2)]
    late[0].write_shard(7, {})
    write_together(f"{bucket}/run", 7, arrays, state)
    late[1].write_shard(7, {})
    there = {name for name in files.names(f"{bucket}/run/step-7") if str(START) in name}
    assert sorted({"SHA256SUMS", "arrays.npz", "state.json"} | there) == NAMES
    assert_same_arrays(f"{bucket}/run", arrays)
    variables, epochs = run(f"{bucket}/run", 2)
    assert epochs == [1]
    expected, _ = run(shutil.copytree(halted, tmp_path / "run"), 2)
    np.testing.assert_equal(variables, expected)


def test_late_shard_does_not_disturb_a_later_checkpoint(halted, bucket):
    arrays, state = whole_arrays(halted)
    CheckpointFolder(f"{bucket}/run", 3, 1, START).write_shard(7, {})
    state = json.dumps({**state, "version": 2, "num_parts": 0})
    CheckpointFolder(f"{bucket}/run", 3).write(7, arrays, state)
    assert not any(str(START) in name for name in files.names(f"{bucket}/run/step-7"))
    assert_same_arrays(f"{bucket}/run", arrays)


def test_incomplete_shards_in_a_store_are_ignored(halted, bucket, proxy):
    folder = f"{bucket}/run"
    path = f"PUT /{folder[5:]}/step-7/SHA256SUMS"
    proxy.fault = lambda request: "error" if request.startswith(path) else None
    with pytest.raises(OSError, match="failed 6 times.*no checkpoint yet"):
        write_together(folder, 7, *whole_arrays(halted))
    proxy.fault = lambda request: None
    assert SHARD_FILES[-1] in files.names(f"{folder}/step-7")
    checkpoints = CheckpointFolder(folder, 3)
    assert checkpoints.read_newest() is None
    checkpoints.lock()()
    assert not files.names(folder)


def remove_checksum(path):
    sums = path.parent / "SHA256SUMS"
    lines = sums.read_text().splitlines(keepends=True)
    sums.write_text("".join(line for line in lines if path.name not in line))


@pytest.mark.parametrize(
    "name, damage",
    [(SHARD_FILES[3], flip), (SHARD_FILES[0], os.remove), (SHARD_FILES[0], remove_checksum)],
)
def test_checkpoint_with_a_damaged_shard_is_set_aside(halted, tmp_path, name, damage, caplog):
    folder = shutil.copytree(halted, tmp_path / "run")
    damage(folder / "step-7" / name)
    path, *_ = CheckpointFolder(str(folder), 3).read_newest()
    assert os.path.basename(path) == "step-6" and (folder / "step-7.damaged").is_dir()
    assert f"{folder}/step-7 is damaged ({name}" in caplog.text


def test_error_names_the_process_whose_shard_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_folder, "_LIMIT_SECONDS", 0.1)
    first = CheckpointFolder(str(tmp_path), 3, 0, START)
    first.write_shard(4, {})
    # From processes of an earlier run at the same step.
    CheckpointFolder(str(tmp_path), 3, 1, START + 1).write_shard(4, {})
    with pytest.raises(OSError, match="Process 1 has not.* of step 4 .*no checkpoint"):
        first.write(4, {}, "{}", num_shards=2)
    assert os.listdir(tmp_path) == [f"step-4-{START + 1}.partial"]


def test_needed_slices_are_read_from_their_shards():
    opened, whole = [], np.arange(15.0).reshape(3, 5)

    class Opened(dict):
        def __getitem__(self, name):
            opened.append(name)
            return super().__getitem__(name)

    spread = checkpoint_shards.ShardedArray((3, 5), "float32")
    for name, (start, stop) in [("a", (0, 2)), ("b", (2, 5))]:
        spread.add([[0, 3], [start, stop]], Opened({name: whole[:, start:stop]}), name)
    np.testing.assert_array_equal(spread[1:, 1:4], whole[1:, 1:4])
    opened.clear()
    np.testing.assert_array_equal(spread[:, 3:], whole[:, 3:])
    assert opened == ["b"]
    spread = checkpoint_shards.ShardedArray((3, 5), "float32")
    spread.add([[0, 3], [0, 2]], {"a": np.zeros((3, 2))}, "a")
    with pytest.raises(ValueError, match="must cover all values. Received: 9 missing values"):
        np.asarray(spread)
