"""Runs that end early and go on: they end as if nothing had happened."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading

import keras
import numpy as np
import pytest

import keras_spanbert as ks
from keras_spanbert.data.array_stream import ArrayStream
from keras_spanbert.files import lock, write_csv
from keras_spanbert.runs.interruption import Interruption

ROWS, BATCH_SIZE, EPOCHS, STEPS = 23, 4, 4, 7
X = np.random.default_rng(0).normal(size=(ROWS, 3)).astype("float32")
Y = X @ np.array([[1.0], [-2.0], [0.5]], "float32")


# What ends the other runs as it would have ended is `uninterrupted`, which is traced.
pytestmark = pytest.mark.usefixtures("untraced")


class KilledError(Exception):
    pass


class History(keras.callbacks.Callback):
    """Rows of logs, an epoch each."""

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
    model = keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(units, activation="tanh"),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(1),
        ]
    )
    schedule = ks.LinearWarmupDecay(1e-2, 5, EPOCHS * STEPS)
    # On JAX, operation by operation would be compiled else; on TensorFlow XLA takes longer.
    is_compiled = keras.backend.backend() == "jax"
    model.compile(ks.AdamW(schedule), "mse", metrics=["mae"], jit_compile=is_compiled)
    return model


def run(folder, dies_after=None, every=3, model=None, x=X, **kwargs):
    """One process's part of a run; returns model, history, checkpoint and the stream."""
    stream = ArrayStream((x, Y), BATCH_SIZE, seed=1)
    history = History()
    kwargs = {"parts": {"history": history}, "data": stream, **kwargs}
    checkpoint = ks.TrainingCheckpoint(str(folder), every, **kwargs)
    model = model or build()
    callbacks = [history, checkpoint]
    if dies_after is not None:
        callbacks.append(Death(dies_after))
    try:
        model.fit(
            stream.dataset(),
            epochs=EPOCHS,
            steps_per_epoch=STEPS,
            validation_data=(X, Y),
            callbacks=callbacks,
            shuffle=False,
            verbose=0,
        )
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
    for mine, theirs in zip(done[0].variables, expected[0].variables):
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(mine), keras.ops.convert_to_numpy(theirs), atol=1e-6
        )


# Within epochs, at their ends, and before the first checkpoint.
@pytest.mark.parametrize("deaths", [[1], [4], [7], [8], [3, 5, 9], [14, 2], [6, 1, 1, 4]])
def test_run_that_died_ends_like_one_that_did_not(deaths, tmp_path, uninterrupted):
    steps = 0
    for dies_after in deaths:
        steps += run(tmp_path, dies_after)[1].steps
    done = run(tmp_path)
    assert_same_end(done, uninterrupted[1:])
    steps += done[1].steps
    # At most `every` steps are done twice a death.
    assert EPOCHS * STEPS <= steps <= EPOCHS * STEPS + 3 * len(deaths)


class StopAfter(keras.callbacks.Callback):
    """Stops training after an epoch."""

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            self.model.stop_training = True


def fit_and_stop(folder, callbacks):
    stream = ArrayStream((X, Y), BATCH_SIZE, seed=1)
    checkpoint = ks.TrainingCheckpoint(str(folder), 3, data=stream)
    model = build()
    try:
        model.fit(
            stream.dataset(),
            epochs=EPOCHS,
            steps_per_epoch=STEPS,
            callbacks=[StopAfter(), checkpoint, *callbacks],
            shuffle=False,
            verbose=0,
        )
    except KilledError:
        checkpoint.wait()
    checkpoint.close()
    return checkpoint.step


def test_another_callback_may_stop_the_epoch_that_goes_on(tmp_path):
    fit_and_stop(tmp_path, [Death(STEPS + 4)])
    assert fit_and_stop(tmp_path, []) == 2 * STEPS


def test_signal_before_the_weights_are_restored_waits_for_them(tmp_path):
    checkpoint = run(tmp_path, dies_after=10)[2]
    stream = ArrayStream((X, Y), BATCH_SIZE, seed=1)
    history = History()
    checkpoint = ks.TrainingCheckpoint(str(tmp_path), 3, data=stream, parts={"history": history})

    class Signal(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            os.kill(os.getpid(), signal.SIGTERM)

    model = build()
    before = {number: signal.getsignal(number) for number in [signal.SIGINT, signal.SIGTERM]}
    try:
        with Interruption() as interruption:
            model.fit(
                stream.dataset(),
                epochs=EPOCHS,
                steps_per_epoch=STEPS,
                callbacks=[Signal(), history, checkpoint, interruption],
                shuffle=False,
                verbose=0,
            )
    finally:
        checkpoint.close()
        for number, handler in before.items():
            signal.signal(number, handler)
    assert interruption.signal == signal.SIGTERM and history.steps == 0
    with np.load(tmp_path / "step-9" / "arrays.npz") as arrays:
        for i, variable in enumerate(model.variables):
            value = keras.ops.convert_to_numpy(variable)
            np.testing.assert_array_equal(value, arrays[f"model/{i}"])


@pytest.mark.once
def test_error_where_the_data_has_other_rows(tmp_path):
    run(tmp_path, dies_after=4)
    stream = ArrayStream((X[:-1], Y[:-1]), BATCH_SIZE, seed=1)
    with pytest.raises(
        ValueError, match="must have the 23 rows that it had .*--preset.* Received: 22"
    ):
        ks.TrainingCheckpoint(str(tmp_path), 3, data=stream)


def test_run_saved_when_it_stops_repeats_no_step(tmp_path, uninterrupted):
    stream = ArrayStream((X, Y), BATCH_SIZE, seed=1)
    history = History()
    checkpoint = ks.TrainingCheckpoint(str(tmp_path), 100, data=stream, parts={"history": history})
    with pytest.raises(KilledError):
        build().fit(
            stream.dataset(),
            epochs=EPOCHS,
            steps_per_epoch=STEPS,
            validation_data=(X, Y),
            callbacks=[history, checkpoint, Death(10)],
            shuffle=False,
            verbose=0,
        )
    checkpoint.save()
    checkpoint.wait()
    checkpoint.close()
    assert os.path.basename(checkpoint.newest) == "step-10"
    done = run(tmp_path)
    assert done[1].steps == EPOCHS * STEPS - 10
    assert_same_end(done, uninterrupted[1:])


def test_finished_run_trains_no_further(tmp_path, uninterrupted):
    shutil.copytree(uninterrupted[0], tmp_path / "run")
    done = run(tmp_path / "run")
    assert done[1].steps == 0
    assert_same_end(done, uninterrupted[1:])


@pytest.mark.once
def test_newest_are_kept_whole_and_by_their_sums(uninterrupted):
    folder = uninterrupted[0]
    names = sorted(name for name in os.listdir(folder) if name != ".lock")
    # Every 3 steps, but behind the evaluation where an epoch ends with step 21.
    assert names == ["step-24", "step-27", "step-28"]
    for name in names:
        subprocess.run(
            ["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=folder / name, check=True
        )


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-7])


def empty(path):
    path.write_bytes(b"")


@pytest.mark.once
@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("arrays.npz", flip),
        ("arrays.npz", truncate),
        ("arrays.npz", empty),
        ("arrays.npz", os.remove),
        ("state.json", flip),
        ("SHA256SUMS", empty),
        ("SHA256SUMS", flip),
    ],
)
def test_damaged_newest_checkpoint_is_set_aside(name, damage, tmp_path, uninterrupted, caplog):
    run(tmp_path, dies_after=10)
    assert sorted(os.listdir(tmp_path)) == [".lock", "step-3", "step-6", "step-9"]
    damage(tmp_path / "step-9" / name)
    done = run(tmp_path)
    assert f"{tmp_path}/step-9 is damaged" in caplog.text
    assert (tmp_path / "step-9.damaged").is_dir()
    assert done[1].steps == EPOCHS * STEPS - 6
    assert_same_end(done, uninterrupted[1:])


@pytest.mark.once
def test_empty_folder_for_a_checkpoint_is_set_aside_and_an_unfinished_one_removed(tmp_path):
    run(tmp_path, dies_after=5)
    (tmp_path / "step-4").mkdir()
    (tmp_path / "step-5.partial").mkdir()
    assert run(tmp_path)[1].steps == EPOCHS * STEPS - 3
    assert (tmp_path / "step-4.damaged").is_dir()
    assert not (tmp_path / "step-5.partial").exists()


@pytest.mark.once
def test_error_where_all_are_damaged(tmp_path):
    run(tmp_path, dies_after=4)
    truncate(tmp_path / "step-3" / "arrays.npz")
    with pytest.raises(ValueError, match="One checkpoint must be whole.*all of them damaged"):
        run(tmp_path)


def test_error_for_another_model_says_what_differs(tmp_path):
    run(tmp_path, dies_after=4)
    with pytest.raises(ValueError, match=r"same model.*kernel', \[3, 5\].*kernel', \[3, 6\]"):
        run(tmp_path, model=build(units=6))


@pytest.mark.once
def test_error_for_another_identity_says_what_differs(tmp_path):
    run(tmp_path, dies_after=4, identity={"vocabulary": "a", "seed": 1})
    with pytest.raises(ValueError, match="vocabulary is 'a', here 'b'"):
        run(tmp_path, identity={"vocabulary": "b", "seed": 1})


@pytest.mark.once
def test_error_for_another_number_of_steps_an_epoch(tmp_path):
    run(tmp_path, dies_after=4)
    checkpoint = ks.TrainingCheckpoint(str(tmp_path), 3)
    with pytest.raises(ValueError, match="`steps_per_epoch` must be as it was. Received: 6"):
        build().fit(X[:24], Y[:24], 4, callbacks=[checkpoint], verbose=0)
    checkpoint.close()


@pytest.mark.once
def test_error_where_another_process_uses_the_folder(tmp_path):
    with lock(str(tmp_path)):
        code = (
            "import sys\nfrom keras_spanbert.files import lock\n"
            "try:\n    lock(sys.argv[1])\nexcept ValueError as error:\n    print(error)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)],
            env={**os.environ, "KERAS_SPANBERT_LAZY": "1"},  # As the commands load it.
            capture_output=True,
            text=True,
        )
    assert "in use by another process" in done.stdout, done.stderr
    lock(str(tmp_path)).release()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_loss_that_is_not_finite_stops_with_its_batch_and_the_last_checkpoint(tmp_path, value):
    x = X.copy()
    stream = ArrayStream((X, Y), BATCH_SIZE, seed=1)
    row = stream._order(0)[4 * BATCH_SIZE]  # The first of step 5.
    x[row] = value
    with pytest.raises(FloatingPointError) as error:
        run(tmp_path, x=x)
    assert "at step 5" in str(error.value) and f"{tmp_path}/step-3" in str(error.value)
    with np.load(tmp_path / "bad-batch-step-5.npz") as batch:
        np.testing.assert_array_equal(batch["x"][0], x[row])
        np.testing.assert_array_equal(batch["y"], stream.batch(4)[1])


def test_weights_that_are_not_finite_are_not_written(tmp_path):
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
    for mine, theirs in zip(fit(bfloat16(), 1), trained):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.once
def test_full_disk_names_it_and_leaves_the_last_checkpoint(tmp_path, uninterrupted):
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system takes root")
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        run(folder, dies_after=4)
        room = os.statvfs(folder)
        (folder / "other").write_bytes(bytes((room.f_bavail - 1) * room.f_bsize))
        with pytest.raises(OSError, match=f"No space left on device.*{folder}/step-3"):
            run(folder, every=1)
        assert sorted(os.listdir(folder)) == [".lock", "other", "step-3"]
        os.remove(folder / "other")
        done = run(folder)
        assert done[1].steps == EPOCHS * STEPS - 3
        assert_same_end(done, uninterrupted[1:])
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.once
def test_read_only_folder_names_it_and_leaves_the_last_checkpoint(tmp_path, uninterrupted):
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(folder)]).returncode:
        pytest.skip("a file system cannot be mounted here")
    try:
        run(folder, dies_after=4)
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        with pytest.raises(OSError, match="Read-only file system"):
            run(folder)
        assert sorted(os.listdir(folder)) == [".lock", "step-3"]
        subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)
        assert_same_end(run(folder), uninterrupted[1:])
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_state_is_plain_data(tmp_path):
    run(tmp_path, dies_after=4)
    state = json.loads((tmp_path / "step-3" / "state.json").read_text())
    assert state["step"] == 3 and state["epoch"] == 0 and state["batches"] == 3
    with np.load(tmp_path / "step-3" / "arrays.npz", allow_pickle=False) as arrays:
        assert {name.split("/")[0] for name in arrays} >= {"model", "optimizer", "metrics"}


@pytest.mark.once
def test_state_is_that_of_its_step_however_late_it_is_written(tmp_path, monkeypatch):
    from keras_spanbert.runs import checkpoint_folder

    write = checkpoint_folder.write_files
    go = threading.Event()

    def write_late(*arguments):
        assert go.wait(60)
        write(*arguments)

    monkeypatch.setattr(checkpoint_folder, "write_files", write_late)

    class Late(History):
        def on_epoch_end(self, epoch, logs=None):
            super().on_epoch_end(epoch, logs)
            go.set()

    history = Late()
    checkpoint = ks.TrainingCheckpoint(str(tmp_path), 3, parts={"history": history})
    build().fit(X, Y, 6, callbacks=[history, checkpoint], verbose=0)
    checkpoint.close()
    state = json.loads((tmp_path / "step-3" / "state.json").read_text())
    assert state["parts"] == {"history": {"rows": []}}


@pytest.mark.once
def test_error_for_bad_arguments(tmp_path):
    with pytest.raises(ValueError, match="`every` must be at least 1. Received: every=0"):
        ks.TrainingCheckpoint(str(tmp_path), 0)
    write_csv(str(tmp_path / "file"), [{"a": 1}])
    with pytest.raises(OSError):
        ks.TrainingCheckpoint(str(tmp_path / "file"), 1)
