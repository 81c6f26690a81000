"""Stops training on Ctrl-C or SIGTERM where nothing is half done."""

import contextlib
import os
import signal

import keras


class Interruption(keras.callbacks.Callback):
    """Lets Ctrl-C and SIGTERM end training between two steps, never within one.

    Within a step the weights are unusable: JAX has given their memory away. A
    signal then waits for the step's end, as it does within `held`; a second one
    ends the process at once. Raises `KeyboardInterrupt` inside `fit` and catches it as a context
    manager, after which both signals are ignored until the caller has saved and
    sets them. Must be the last of the callbacks, and entered in the main thread.

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

    def __init__(self):
        super().__init__()
        self.signal = None
        self._held = False

    def __enter__(self):
        for number in [signal.SIGINT, signal.SIGTERM]:
            signal.signal(number, self._receive)
        return self

    def __exit__(self, error_type, error, traceback):
        self._held = True  # From here on a signal is only noted.
        for number in [signal.SIGINT, signal.SIGTERM]:
            signal.signal(number, signal.SIG_IGN)
        is_interrupted = self.signal is not None and error_type is KeyboardInterrupt
        if is_interrupted and hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()  # Of `fit` and `evaluate`, only `fit` does.
        return is_interrupted

    @contextlib.contextmanager
    def held(self):
        """Makes a signal wait until what is within has been done."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        self._release()

    def _receive(self, number, frame):
        if self.signal is not None:
            os.write(2, b"Interrupted twice: stopped at once\n")
            os._exit(128 + number)
        os.write(2, b"Interrupted: stopping after this step; once more to stop at once\n")
        self.signal = number
        if not self._held:
            raise KeyboardInterrupt

    def _release(self, batch=None, logs=None):
        self._held = False
        if self.signal is not None:
            raise KeyboardInterrupt

    def _hold(self, batch=None, logs=None):
        self._held = True

    on_train_batch_begin = on_test_batch_begin = _hold
    on_train_batch_end = on_test_batch_end = on_epoch_end = _release
