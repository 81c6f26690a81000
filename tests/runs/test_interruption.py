"""Signals while a model trains."""

import gc
import os
import signal
import sys
from subprocess import PIPE

import keras
import numpy as np
import pytest
from forked import Forked

from keras_spanbert.runs.interruption import Interruption


class Interrupter(keras.callbacks.Callback):
    """Sends a signal when a method of this name is called for the second time."""

    def __init__(self, method, number=signal.SIGINT):
        super().__init__()
        self.calls = 0
        self.number = number
        setattr(self, method, self._count)

    def _count(self, batch, logs=None):
        self.calls += 1
        if self.calls == 2:
            os.kill(os.getpid(), self.number)


@pytest.fixture(autouse=True)
def handlers():
    before = {number: signal.getsignal(number) for number in [signal.SIGINT, signal.SIGTERM]}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def model():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


X, Y = np.ones((40, 4), "float32"), np.ones((40, 1), "float32")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("method", ["on_train_batch_begin", "on_train_batch_end"])
def test_fit_ends_with_the_step_and_its_weights_are_usable(model, method, number):
    before = model.get_weights()
    # The last callback: the signal comes where the step is under way.
    with Interruption() as interruption:
        model.fit(
            X, Y, 4, epochs=5, callbacks=[interruption, Interrupter(method, number)], verbose=0
        )
    assert interruption.signal == number
    assert int(model.optimizer.iterations) in (2, 3)
    assert not np.array_equal(model.get_weights()[0], before[0])
    assert signal.getsignal(number) == signal.SIG_IGN


@pytest.mark.parametrize("method", ["on_test_batch_begin", "on_test_batch_end"])
def test_evaluation_ends_and_the_weights_are_as_before(model, method):
    before = model.get_weights()
    with Interruption() as interruption:
        model.evaluate(X, Y, 4, callbacks=[interruption, Interrupter(method)], verbose=0)
    assert interruption.signal == signal.SIGINT
    np.testing.assert_array_equal(model.get_weights()[0], before[0])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_behind_an_epochs_last_step_waits_for_evaluation_and_callbacks(model, number):
    done = []

    class Score(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 9:
                os.kill(os.getpid(), number)

        def on_epoch_end(self, epoch, logs=None):
            self.model.predict_on_batch(X[:4])
            done.append(sorted(logs))

    with Interruption() as interruption:
        model.fit(
            X,
            Y,
            4,
            epochs=5,
            validation_data=(X, Y),
            callbacks=[Score(), interruption],
            verbose=0,
        )
    assert interruption.signal == number
    assert done == [["loss", "val_loss"]] and int(model.optimizer.iterations) == 10
    assert np.isfinite(model.get_weights()[0]).all()


def test_signal_within_a_callback_of_the_garbage_collector_ends_at_the_next_step(
    model, monkeypatch
):
    """Python swallows what is raised there, and tells of it."""
    told = []

    class Collect(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 2:
                gc.collect()

    def send(phase, info):
        gc.callbacks.remove(send)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(sys, "unraisablehook", lambda swallowed: told.append(swallowed.exc_type))
    gc.disable()
    gc.callbacks.append(send)
    try:
        with Interruption() as interruption:
            model.fit(X, Y, 4, epochs=5, callbacks=[interruption, Collect()], verbose=0)
        gc.callbacks.append(raise_other)
        gc.collect()
    finally:
        gc.enable()
    assert interruption.signal == signal.SIGTERM and int(model.optimizer.iterations) == 4
    assert told == [ZeroDivisionError]


def raise_other(phase, info):
    gc.callbacks.remove(raise_other)
    raise ZeroDivisionError


@pytest.mark.once
def test_second_signal_ends_the_process_at_once():
    code = (
        "import os, signal\n"
        "from keras_spanbert.runs.interruption import Interruption\n"
        "with Interruption() as interruption:\n"
        "    interruption.on_train_batch_begin(0)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    print('not reached')\n"
    )
    with Forked([sys.executable, "-c", code], stdout=PIPE, stderr=PIPE) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 143 and out == ""
    assert "Interrupted twice: stopped at once" in err


@pytest.mark.once
def test_other_errors_pass():
    with pytest.raises(KeyboardInterrupt), Interruption():
        raise KeyboardInterrupt
