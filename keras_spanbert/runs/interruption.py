"""Stops training on Ctrl-C or SIGTERM between two steps."""

import os
import signal
import sys

import keras

from keras_spanbert.distribution import Distribution


class Interruption(keras.callbacks.Callback):
    """Stops training on Ctrl-C or SIGTERM between two steps, on all processes after the same step.

    A signal takes effect at the end of the step or, after the last step of an epoch, at the end of
    its evaluation and of the other callbacks. A second signal ends the process at once. The
    callback raises `KeyboardInterrupt` inside `fit` and catches it as a context manager, in the
    main thread. Afterwards both signals are ignored until the caller has saved the model and sets
    their handlers. This callback must be the last one.
    """

    # Within a step the weights are unusable, because JAX has released their memory.
    def __init__(self, distribution=None):
        super().__init__()
        self.signal = None  # The signal that was received.
        self._distribution = distribution or Distribution()
        self._held = False
        self._is_fitting = False

    def __enter__(self):
        self._held = True  # Until the weights of a checkpoint are in the model.
        self._unraisablehook, sys.unraisablehook = sys.unraisablehook, self._tell_unraisable
        for number in [signal.SIGINT, signal.SIGTERM]:
            signal.signal(number, self._receive)
        return self

    def __exit__(self, error_type, error, traceback):
        self._held = True  # From here a signal is only recorded.
        sys.unraisablehook = self._unraisablehook
        for number in [signal.SIGINT, signal.SIGTERM]:
            signal.signal(number, signal.SIG_IGN)
        is_interrupted = self.signal is not None and error_type is KeyboardInterrupt
        if is_interrupted and hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()  # `fit` does this itself, `evaluate` does not.
        return is_interrupted

    def _receive(self, number, frame):
        if self.signal is not None:
            os.write(2, b"Interrupted twice, stopping at once\n")
            os._exit(128 + number)
        # The terminal's line may show progress and ^C.
        os.write(2, b"\n" if os.isatty(2) else b"")
        os.write(2, b"Interrupted, stopping after this step or evaluation. ")
        os.write(2, b"Interrupt again to stop at once\n")
        self.signal = number
        if not self._held and self._distribution.num_processes == 1:
            raise KeyboardInterrupt

    def _tell_unraisable(self, swallowed):
        # Python swallowed the exception, raised in a `__del__` or in a callback of the garbage
        # collector (JAX adds one). It is raised again at the end of the next step.
        if self.signal is None or swallowed.exc_type is not KeyboardInterrupt:
            self._unraisablehook(swallowed)

    def _release(self):
        self._held = False
        if self._distribution.any_process(self.signal is not None):
            self.signal = self.signal or signal.SIGTERM
            raise KeyboardInterrupt

    def set_model(self, model):
        super().set_model(model)
        # Reading `self.model` would sync JAX's state, which is too slow for each step.
        self._trained = model

    def on_train_begin(self, logs=None):
        self._is_fitting = True
        self._release()

    def on_train_batch_begin(self, batch, logs=None):
        self._held = True

    on_test_batch_begin = on_train_batch_begin

    def on_train_batch_end(self, batch, logs=None):
        if batch + 1 != self.params["steps"] and not self._trained.stop_training:
            self._release()

    def on_epoch_end(self, epoch, logs=None):
        self._release()

    def on_test_batch_end(self, batch, logs=None):
        if not self._is_fitting:
            self._release()
