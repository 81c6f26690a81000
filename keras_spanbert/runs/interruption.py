"""Stops training on Ctrl-C or SIGTERM where nothing is half done."""

import os
import signal
import sys

import keras

from keras_spanbert.distribution import Distribution


class Interruption(keras.callbacks.Callback):
    """Lets Ctrl-C and SIGTERM end training between two steps, never within one.

    Within a step the weights are unusable: JAX has given their memory away. A
    signal then waits for the step's end, and behind an epoch's last step for
    its evaluation and the other callbacks; a second one ends the process at
    once. Raises `KeyboardInterrupt` inside `fit` and catches it as a context
    manager, after which both signals are ignored until the caller has saved and
    sets them. Must be the last of the callbacks, and entered in the main thread.

    Args:
        distribution: `Distribution`. Where several processes train together,
            they all stop behind the same step. Defaults to `None`: one.

    Attributes:
        signal: int, the signal that came, or `None`.

    Example:
    ```python
    with Interruption() as interruption:
        model.fit(dataset, callbacks=[interruption])
    model.save_to_preset("model")
    if interruption.signal:
        sys.exit(128 + interruption.signal)
    ```
    """

    def __init__(self, distribution=None):
        super().__init__()
        self.signal = None
        self._distribution = distribution or Distribution()
        self._held = False
        self._is_fitting = False

    def __enter__(self):
        self._held = True  # Until a checkpoint's weights are in the model.
        self._unraisablehook, sys.unraisablehook = sys.unraisablehook, self._tell_unraisable
        for number in [signal.SIGINT, signal.SIGTERM]:
            signal.signal(number, self._receive)
        return self

    def __exit__(self, error_type, error, traceback):
        self._held = True  # From here on a signal is only noted.
        sys.unraisablehook = self._unraisablehook
        for number in [signal.SIGINT, signal.SIGTERM]:
            signal.signal(number, signal.SIG_IGN)
        is_interrupted = self.signal is not None and error_type is KeyboardInterrupt
        if is_interrupted and hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()  # Of `fit` and `evaluate`, only `fit` does.
        return is_interrupted

    def _receive(self, number, frame):
        if self.signal is not None:
            os.write(2, b"Interrupted twice: stopped at once\n")
            os._exit(128 + number)
        # A terminal's line may have progress on it, and shows ^C behind that.
        os.write(2, b"\n" if os.isatty(2) else b"")
        os.write(2, b"Interrupted: stopping after this step or evaluation; ")
        os.write(2, b"once more to stop at once\n")
        self.signal = number
        if not self._held and self._distribution.num_processes == 1:
            raise KeyboardInterrupt

    def _tell_unraisable(self, swallowed):
        # Raised in a callback of the garbage collector, as JAX has one, or in a `__del__`. The end
        # of the next step raises again.
        if self.signal is None or swallowed.exc_type is not KeyboardInterrupt:
            self._unraisablehook(swallowed)

    def _release(self):
        self._held = False
        if self._distribution.any_process(self.signal is not None):
            self.signal = self.signal or signal.SIGTERM
            raise KeyboardInterrupt

    def set_model(self, model):
        super().set_model(model)
        # `self.model` would bring JAX's state up to date, which is dear at each step.
        self._trained = model

    def on_train_begin(self, logs=None):
        self._is_fitting = True
        self._release()

    def on_train_batch_begin(self, batch, logs=None):
        self._held = True

    def on_train_batch_end(self, batch, logs=None):
        if batch + 1 != self.params["steps"] and not self._trained.stop_training:
            self._release()

    def on_epoch_end(self, epoch, logs=None):
        self._release()

    def on_test_batch_begin(self, batch, logs=None):
        self._held = True

    def on_test_batch_end(self, batch, logs=None):
        if not self._is_fitting:
            self._release()
