"""Checkpoints that several processes write together; that JAX's do, tests/distribution tells."""

import json
import os
import shutil
import threading

import keras
import numpy as np
import pytest

import keras_spanbert as ks
from keras_spanbert import stores
from keras_spanbert.runs import checkpoint_parts
from keras_spanbert.runs.checkpoint_folder import CheckpointFolder, open_folder
from keras_spanbert.runs.checkpoint_parts import CheckpointParts, StoredParts

pytest_plugins = ["s3_server"]
pytestmark = pytest.mark.usefixtures("untraced")
X = np.random.default_rng(0).normal(size=(14, 3)).astype("float32")
Y = X @ np.array([[1.0], [-2.0], [0.5]], "float32")
START = 11


def run(folder, epochs):
    """Trains, 7 steps an epoch; returns the values of all variables, and which epochs."""
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Dense(5, "tanh"), keras.layers.Dropout(0.3), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((3,)), *layers])
    model.compile("adam", "mse", jit_compile=keras.backend.backend() == "jax")
    stream = ks.ArrayStream((X, Y), batch_size=2, seed=1)
    checkpoint = ks.TrainingCheckpoint(str(folder), 3, data=stream)
    arguments = {"steps_per_epoch": 7, "shuffle": False, "verbose": 0}
    history = model.fit(stream.dataset(), epochs=epochs, callbacks=[checkpoint], **arguments)
    checkpoint.close()
    variables = [*model.variables, *model.optimizer.variables]
    return [keras.ops.convert_to_numpy(v) for v in variables], history.epoch


def cut(arrays):
    """Whole arrays and two processes' shards: columns of what has 5, and rows of what is odd."""
    whole, shards = {}, ({}, {})
    for name, array in arrays.items():
        if array.ndim != 2 or "data/" in name:
            whole[name] = array
        elif array.shape[1] == 5:
            shards[0][f"{name}/0"] = [[0, 3], [0, 2]], array[:, :2]
            shards[1][f"{name}/0"] = [[0, 3], [2, 5]], array[:, 2:]
        else:  # Three shards, of which the second process has two.
            shards[0][f"{name}/0"] = [[0, 2], [0, 1]], array[:2]
            shards[1][f"{name}/0"] = [[4, 5], [0, 1]], array[4:]
            shards[1][f"{name}/1"] = [[2, 4], [0, 1]], array[2:4]
    return whole, shards


def write_in_parts(folder, step):
    """Has two processes, here threads, write a checkpoint anew."""
    path = folder / f"step-{step}"
    with np.load(path / "arrays.npz") as file:
        arrays = dict(file)
    state = json.loads((path / "state.json").read_text())
    shutil.rmtree(path)
    write_together(CheckpointParts, str(folder), step, arrays, state)


def write_together(parts, folder, step, arrays, state):
    whole, shards = cut(arrays)
    assert shards[0].keys() == {f"{group}/{i}/0" for group, i in WEIGHTS}
    first, second = (parts(folder, i, 2, START) for i in range(2))
    late = threading.Timer(0.3, second.write, [step, shards[1]])
    late.start()
    first.write(step, shards[0])
    state = json.dumps({**state, "version": 3, "num_parts": 2, "start": START})
    try:
        open_folder(folder, 3).write(step, whole, state, first)
    finally:
        late.join()


# Two kernels, each with two moments, behind the steps and the learning rate.
WEIGHTS = [("model", 0), ("model", 3), *[("optimizer", i) for i in (2, 6, 3, 7)]]


@pytest.fixture(scope="module")
def halted(tmp_path_factory):
    """A run that ended with step 7, of which the newest checkpoint alone is in parts."""
    folder = tmp_path_factory.mktemp("halted")
    run(folder, 1)
    write_in_parts(folder, 7)
    return folder


PARTS = [f"part-{i}-{START}{ending}" for i in range(2) for ending in (".json", ".npz")]
NAMES = ["SHA256SUMS", "arrays.npz", *PARTS, "state.json"]


def test_run_goes_on_from_parts_in_one_process(halted, tmp_path):
    assert sorted(os.listdir(halted / "step-7")) == NAMES
    assert not list(halted.glob("*.partial"))
    folder = shutil.copytree(halted, tmp_path / "run")
    variables, epochs = run(folder, 2)
    assert epochs == [1]
    expected, _ = run(tmp_path / "uninterrupted", 2)
    for mine, theirs in zip(variables, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-6)


def whole_arrays(folder):
    _, arrays, state = open_folder(str(folder), 3).read_newest()
    return {name: np.asarray(array) for name, array in arrays.items()}, state


@pytest.mark.once
def test_parts_are_read_by_the_names_that_they_had_at_first(halted, tmp_path):
    folder = shutil.copytree(halted, tmp_path / "run")
    path = folder / "step-7"
    state = json.loads((path / "state.json").read_text())
    del state["start"]
    (path / "state.json").write_text(json.dumps(state))
    for name in PARTS:
        (path / name).rename(path / name.replace(f"-{START}", ""))
    stores.write_sums(path, sorted({*os.listdir(path)} - {"SHA256SUMS"}))
    found, expected = (whole_arrays(run)[0] for run in (folder, halted))
    assert found.keys() == expected.keys() and (folder / "step-7").is_dir()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.once
def test_run_goes_on_from_parts_in_a_store(halted, tmp_path, bucket):
    arrays, state = whole_arrays(halted)
    # What a process of before writes, which does not know yet that it is alone.
    late = [StoredParts(f"{bucket}/run", 1, 2, START - i) for i in (1, 2)]
    late[0].write(7, {})
    write_together(StoredParts, f"{bucket}/run", 7, arrays, state)
    late[1].write(7, {})
    there = {name for name in stores.names(f"{bucket}/run/step-7") if str(START) in name}
    assert sorted({"SHA256SUMS", "arrays.npz", "state.json"} | there) == NAMES
    found, _ = whole_arrays(f"{bucket}/run")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
    variables, epochs = run(f"{bucket}/run", 2)
    assert epochs == [1]
    expected, _ = run(shutil.copytree(halted, tmp_path / "run"), 2)
    for mine, theirs in zip(variables, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.once
def test_late_part_is_in_no_way_of_a_checkpoint_of_one_process(halted, bucket):
    arrays, state = whole_arrays(halted)
    StoredParts(f"{bucket}/run", 1, 2, START).write(7, {})
    state = json.dumps({**state, "version": 2, "num_parts": 0})
    open_folder(f"{bucket}/run", 3).write(7, arrays, state)
    assert sorted(stores.names(f"{bucket}/run/step-7")) == [
        "SHA256SUMS",
        "arrays.npz",
        "state.json",
    ]
    found, _ = whole_arrays(f"{bucket}/run")
    assert found.keys() == arrays.keys()


@pytest.mark.once
@pytest.mark.parametrize("name", ["arrays.npz", "SHA256SUMS"])
def test_parts_in_a_store_count_for_nothing_without_the_rest(halted, bucket, proxy, name):
    folder = f"{bucket}/run"
    path = f"PUT /{folder[5:]}/step-7/{name}"
    proxy.fault = lambda request: "error" if request.startswith(path) else None
    with pytest.raises(OSError, match="failed 6 times.*no checkpoint yet"):
        write_together(StoredParts, folder, 7, *whole_arrays(halted))
    proxy.fault = lambda request: None
    assert PARTS[-1] in stores.names(f"{folder}/step-7")
    checkpoints = open_folder(folder, 3)
    assert checkpoints.read_newest() is None
    checkpoints.lock()()
    assert not stores.names(folder)


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.once
@pytest.mark.parametrize("damage", [flip, os.remove])
@pytest.mark.parametrize("name", [PARTS[3], PARTS[0]])
def test_checkpoint_with_a_damaged_part_is_set_aside(halted, tmp_path, name, damage, caplog):
    folder = shutil.copytree(halted, tmp_path / "run")
    damage(folder / "step-7" / name)
    path, *_ = CheckpointFolder(str(folder), 3).read_newest()
    assert os.path.basename(path) == "step-6" and (folder / "step-7.damaged").is_dir()
    assert f"{folder}/step-7 is damaged ({name}" in caplog.text


@pytest.mark.once
def test_error_names_the_process_whose_part_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_parts, "_LIMIT_SECONDS", 0.1)
    first, second = (CheckpointParts(str(tmp_path), i, 2, START) for i in range(2))
    first.write(4, {})
    # Of processes that began before, at the same step.
    CheckpointParts(str(tmp_path), 1, 2, START + 1).write(4, {})
    with pytest.raises(OSError, match="Process 1 has not.* of step 4 .*no checkpoint"):
        CheckpointFolder(str(tmp_path), 3).write(4, {}, "{}", first)
    assert os.listdir(tmp_path) == [f"step-4-{START + 1}.partial"]


@pytest.mark.once
def test_slices_are_read_of_the_shards_that_have_them(halted):
    _, arrays, _ = CheckpointFolder(str(halted), 3).read_newest()
    spread, opened = arrays["model/0"], []

    class Opened(dict):
        def __getitem__(self, name):
            opened.append(name)
            return super().__getitem__(name)

    whole = np.asarray(spread)
    assert whole.shape == (3, 5)
    np.testing.assert_array_equal(spread[1:, 1:4], whole[1:, 1:4])
    shards = [[[0, 3], [0, 2]], whole[:, :2]], [[[0, 3], [2, 5]], whole[:, 2:]]
    again = checkpoint_parts.SpreadArray((3, 5), "float32")
    for number, (bounds, shard) in enumerate(shards):
        again.add(bounds, Opened({number: shard}), number)
    np.testing.assert_array_equal(again[:, 3:], whole[:, 3:])
    assert opened == [1]


@pytest.mark.once
def test_error_where_the_parts_are_not_the_whole():
    spread = checkpoint_parts.SpreadArray((3, 5), "float32")
    spread.add([[0, 3], [0, 2]], {"a": np.zeros((3, 2))}, "a")
    with pytest.raises(ValueError, match="must be the whole of it. Received: 9 values less"):
        np.asarray(spread)
