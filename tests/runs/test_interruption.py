"""Signals during training."""

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
    """Sends a signal when a method with this name is called for the second time."""

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


@pytest.mark.parametrize(
    ("method", "number"),
    [("on_train_batch_begin", signal.SIGINT), ("on_train_batch_end", signal.SIGTERM)],
)
def test_fit_ends_after_the_step_with_usable_weights(model, method, number):
    before = model.get_weights()
    # As the last callback, it sends the signal during the step.
    with Interruption() as interruption:
        callbacks = [interruption, Interrupter(method, number)]
        model.fit(X, Y, 4, epochs=5, callbacks=callbacks, verbose=0)
    assert interruption.signal == number
    assert int(model.optimizer.iterations) in (2, 3)
    assert not np.array_equal(model.get_weights()[0], before[0])
    assert signal.getsignal(number) == signal.SIG_IGN


def test_evaluation_ends_and_weights_are_unchanged(model):
    before = model.get_weights()
    with Interruption() as interruption:
        interrupter = Interrupter("on_test_batch_begin")
        model.evaluate(X, Y, 4, callbacks=[interruption, interrupter], verbose=0)
    assert interruption.signal == signal.SIGINT
    np.testing.assert_array_equal(model.get_weights()[0], before[0])


def test_signal_after_the_last_step_of_an_epoch_waits_for_callbacks(model):
    done = []

    class Score(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 9:
                os.kill(os.getpid(), signal.SIGTERM)

        def on_epoch_end(self, epoch, logs=None):
            self.model.predict_on_batch(X[:4])
            done.append(sorted(logs))

    with Interruption() as interruption:
        callbacks = [Score(), interruption]
        model.fit(X, Y, 4, epochs=5, validation_data=(X, Y), callbacks=callbacks, verbose=0)
    assert interruption.signal == signal.SIGTERM
    assert done == [["loss", "val_loss"]] and int(model.optimizer.iterations) == 10
    assert np.isfinite(model.get_weights()[0]).all()


def test_signal_during_garbage_collection_ends_at_the_next_step(model, monkeypatch):
    """Python ignores exceptions raised here, with a message."""
    ignored = []

    class Collect(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 2:
                gc.collect()

    def send(phase, info):
        gc.callbacks.remove(send)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(sys, "unraisablehook", lambda error: ignored.append(error.exc_type))
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
    assert ignored == [ZeroDivisionError]


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
    assert "Interrupted twice, stopping at once" in err


@pytest.mark.once
def test_other_errors_are_raised():
    with pytest.raises(KeyboardInterrupt), Interruption():
        raise KeyboardInterrupt
