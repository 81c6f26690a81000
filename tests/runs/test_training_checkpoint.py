"""Interrupted and resumed runs give the same results as uninterrupted runs."""

import json
import os
import shutil
import signal
import subprocess
import threading

import keras
import numpy as np
import pytest
from comparisons import assert_close

import keras_spanbert as ks
from keras_spanbert.data.batches import Batches
from keras_spanbert.files import write_csv
from keras_spanbert.runs.callbacks import Callbacks
from keras_spanbert.runs.checkpoint_folder import CheckpointFolder, lock
from keras_spanbert.runs.interruption import Interruption

ROWS, BATCH_SIZE, EPOCHS, STEPS = 23, 4, 4, 7
X = np.random.default_rng(0).normal(size=(ROWS, 3)).astype("float32")
Y = X @ np.array([[1.0], [-2.0], [0.5]], "float32")


# The other runs are compared with `uninterrupted`, which is traced.
pytestmark = pytest.mark.usefixtures("untraced")


class KilledError(Exception):
    pass


class History(keras.callbacks.Callback):
    """Collects the logs of each epoch."""

    def __init__(self):
        super().__init__()
        self.rows = []
        self.steps = 0

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1

    def on_epoch_end(self, epoch, logs=None):
        self.rows.append({"epoch": epoch, **{k: float(v) for k, v in logs.items()}})

    def get_state(self):
        return {"rows": self.rows}

    def set_state(self, state):
        self.rows = state["rows"]


class Death(keras.callbacks.Callback):
    def __init__(self, step):
        super().__init__()
        self.steps_left = step

    def on_train_batch_end(self, batch, logs=None):
        self.steps_left -= 1
        if not self.steps_left:
            raise KilledError


def build(units=5):
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Dense(units, "tanh"), keras.layers.Dropout(0.3), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((3,)), *layers])
    schedule = ks.LinearWarmupDecay(1e-2, 5, EPOCHS * STEPS)
    # JAX would otherwise compile each operation. XLA would be slower on TensorFlow.
    is_compiled = keras.backend.backend() == "jax"
    model.compile(ks.AdamW(schedule), "mse", metrics=["mae"], jit_compile=is_compiled)
    return model


def run(folder, dies_after=None, every=3, model=None, x=X, first=(), last=(), **kwargs):
    """Runs part of a training run, with callbacks before and after those of the checkpoint.

    Returns the model, history and checkpoint.
    """
    stream = Batches((x, Y[: len(x)]), BATCH_SIZE, seed=1)
    history = History()
    kwargs = {"parts": {"history": history}, "data": stream, **kwargs}
    checkpoint = ks.TrainingCheckpoint(str(folder), every, **kwargs)
    model = model or build()
    callbacks = [*first, history, checkpoint, *last]
    if dies_after is not None:
        callbacks.append(Death(dies_after))
    try:
        epochs = {"epochs": EPOCHS, "steps_per_epoch": STEPS, "validation_data": (X, Y)}
        model.fit(stream.dataset(), **epochs, callbacks=callbacks, shuffle=False, verbose=0)
    except KilledError:
        checkpoint.wait()
    finally:
        checkpoint.close()
    return model, history, checkpoint


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    return (folder, *run(folder))


def assert_same_end(done, expected):
    assert len(done[1].rows) == len(expected[1].rows) == EPOCHS
    for row, reference in zip(done[1].rows, expected[1].rows):
        assert row == pytest.approx(reference, abs=1e-6)
    assert_close(done[0].variables, expected[0].variables, 1e-6)


# Before the first checkpoint, at the end of an epoch and within one.
@pytest.mark.parametrize("deaths", [[1], [14, 2]])
def test_killed_run_equals_uninterrupted_run(deaths, tmp_path, uninterrupted):
    steps = 0
    for dies_after in deaths:
        steps += run(tmp_path, dies_after)[1].steps
    done = run(tmp_path)
    assert_same_end(done, uninterrupted[1:])
    steps += done[1].steps
    # Each kill repeats at most `every` steps.
    assert EPOCHS * STEPS <= steps <= EPOCHS * STEPS + 3 * len(deaths)


class StopAfter(keras.callbacks.Callback):
    """Stops training after an epoch."""

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            self.model.stop_training = True


def test_another_callback_can_stop_the_resumed_epoch(tmp_path):
    run(tmp_path, dies_after=STEPS + 4, first=[StopAfter()])
    assert run(tmp_path, first=[StopAfter()])[2].step == 2 * STEPS


def test_signal_waits_until_weights_are_restored(tmp_path):
    run(tmp_path, dies_after=10)

    class Signal(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            os.kill(os.getpid(), signal.SIGTERM)

    before = {number: signal.getsignal(number) for number in [signal.SIGINT, signal.SIGTERM]}
    try:
        with Interruption() as interruption:
            model = build()
            run(tmp_path, model=model, first=[Signal()], last=[interruption])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert interruption.signal == signal.SIGTERM
    with np.load(tmp_path / "step-9" / "arrays.npz") as arrays:
        for i, variable in enumerate(model.variables):
            value = keras.ops.convert_to_numpy(variable)
            np.testing.assert_array_equal(value, arrays[f"model/{i}"])


@pytest.mark.once
def test_newest_checkpoints_are_kept_with_checksums(uninterrupted):
    folder = uninterrupted[0]
    names = sorted(name for name in os.listdir(folder) if name != ".lock")
    # Every 3 steps, and at step 21 after the evaluation at the end of the epoch.
    assert names == ["step-24", "step-27", "step-28"]
    for name in names:
        command = ["sha256sum", "--check", "--quiet", "SHA256SUMS"]
        subprocess.run(command, cwd=folder / name, check=True)


@pytest.mark.once
def test_empty_unfinished_and_deleted_checkpoints_are_ignored(tmp_path):
    run(tmp_path, dies_after=5)
    (tmp_path / "step-4").mkdir()
    (tmp_path / "step-5.partial").mkdir()
    assert run(tmp_path)[1].steps == EPOCHS * STEPS - 3
    assert (tmp_path / "step-4.damaged").is_dir()
    assert not (tmp_path / "step-5.partial").exists()
    checkpoints = CheckpointFolder(str(tmp_path / "checkpoints"), keep=2)
    for step in (1, 2):
        checkpoints.write(step, {"weights": np.ones(3)}, "{}")
        assert checkpoints.steps() == [step]
        shutil.rmtree(checkpoints.folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"units": 6}, r"same model.*kernel', \[3, 5\].*kernel', \[3, 6\]"),
        ({"identity": {"vocabulary": "b", "seed": 1}}, "vocabulary is 'a', but this run has 'b'"),
        ({"x": X[:-1]}, "the same until .*--preset.* 23 rows at the start and 22"),
    ],
)
def test_another_run_is_refused_with_the_difference(change, message, tmp_path):
    run(tmp_path, dies_after=4, identity={"vocabulary": "a", "seed": 1})
    change = {"identity": {"vocabulary": "a", "seed": 1}, **change}
    with pytest.raises(ValueError, match=message):
        run(tmp_path, model=build(change.pop("units", 5)), **change)


@pytest.mark.once
def test_changed_steps_per_epoch_are_refused(tmp_path):
    run(tmp_path, dies_after=4)
    checkpoint = ks.TrainingCheckpoint(str(tmp_path), 3)
    message = "`steps_per_epoch` must not change when a run is resumed. Received: 6"
    with pytest.raises(ValueError, match=message):
        build().fit(X, Y, 4, callbacks=[checkpoint], verbose=0)
    checkpoint.close()


@pytest.mark.once
def test_invalid_arguments_and_folders_are_refused(tmp_path):
    with lock(str(tmp_path)), pytest.raises(ValueError, match="in use by another process"):
        ks.TrainingCheckpoint(str(tmp_path), 3)
    ks.TrainingCheckpoint(str(tmp_path), 3).close()
    write_csv(str(tmp_path / "file"), [{"a": 1}])
    with pytest.raises(OSError):
        ks.TrainingCheckpoint(str(tmp_path / "file"), 1)


def test_non_finite_weights_are_not_written(tmp_path):
    class Spoil(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 4:
                kernel = self.model.layers[-1].kernel
                kernel.assign(kernel + np.inf)

    checkpoint = ks.TrainingCheckpoint(str(tmp_path), 5)
    with pytest.raises(FloatingPointError, match="Weights must be finite.*after step 5"):
        build().fit(X, Y, 2, epochs=1, callbacks=[Spoil(), checkpoint], verbose=0)
    checkpoint.close()
    assert os.listdir(tmp_path) == [".lock"]


def test_bfloat16_weights_are_restored(tmp_path):
    def bfloat16():
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, dtype="bfloat16")])
        model.compile("sgd", "mse")
        return model

    def fit(model, epochs):
        checkpoint = ks.TrainingCheckpoint(str(tmp_path), 100)
        model.fit(X, X[:, :2], 23, epochs=epochs, callbacks=[checkpoint], verbose=0)
        checkpoint.close()
        return [keras.ops.convert_to_numpy(v).astype("float32") for v in model.trainable_variables]

    trained = fit(bfloat16(), 1)
    assert_close(fit(bfloat16(), 1), trained)


@pytest.mark.once
def test_state_belongs_to_its_step_with_slow_writing(tmp_path, monkeypatch):
    write, go = CheckpointFolder.write, threading.Event()
    monkeypatch.setattr(CheckpointFolder, "write", lambda *args: go.wait(60) and write(*args))
    history = History()
    ended = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: go.set())
    checkpoint = ks.TrainingCheckpoint(str(tmp_path), 3, parts={"history": history})
    build().fit(X, Y, 6, callbacks=[history, ended, checkpoint], verbose=0)
    checkpoint.close()
    state = json.loads((tmp_path / "step-3" / "state.json").read_text())
    assert state["parts"] == {"history": {"rows": []}}


@pytest.mark.parametrize("bad", [3, 4])
def test_a_loss_on_the_device_is_checked_before_the_evaluation(tmp_path, bad):
    class Epochs(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            ended.append(epoch)

        def on_train_batch_end(self, batch, logs=None):
            read.append(isinstance(logs["loss"], float))

    read, ended, losses = [], [], np.ones(8, "float32")
    losses[bad - 1] = np.nan
    checkpoint = ks.TrainingCheckpoint(str(tmp_path), 5)
    callbacks = Callbacks([Epochs(), checkpoint], model=build(), steps=4, epochs=2)
    with pytest.raises(FloatingPointError, match=f"Received: nan at step {bad}"):
        for step in range(4):
            callbacks.on_train_batch_end(step, {"loss": keras.ops.convert_to_tensor(losses[step])})
        callbacks.on_epoch_end(0)
    checkpoint.close()
    assert len(read) == 4 and not any(read) and not ended
