"""Traces training steps with the profiler of each backend."""

import os

import keras

from keras_spanbert.checks import check_in

# Variables and graphs are made before this step.
FIRST_STEP = 5


class Profile(keras.callbacks.Callback):
    """Writes a trace of some steps of `fit`, starting after the fifth.

    With `steps_per_execution`, the trace consists of whole executions.

    On TensorFlow and JAX the trace is for TensorBoard's profile plugin or XProf
    (`xprof --logdir folder`). On PyTorch it is a file `trace.json` for Perfetto or
    Chrome's `chrome://tracing`.

    Args:
        folder: string.
        steps: int. Number of steps.

    Example:
    ```python
    model.fit(dataset, callbacks=[Profile("trace", steps=10)])
    ```
    """

    def __init__(self, folder: str, steps: int):
        super().__init__()
        check_in("steps", steps, steps >= 1, "at least 1")
        self.folder = folder
        self.steps = steps
        self._step = 0
        self._last_step = None
        self._stop = None

    def on_train_batch_begin(self, batch, logs=None):
        self._batch = batch
        if self._last_step is None and self._step >= FIRST_STEP:
            self._last_step = self._step + self.steps
            os.makedirs(self.folder, exist_ok=True)
            self._stop = _start(self.folder)

    def on_train_batch_end(self, batch, logs=None):
        # With `steps_per_execution`, one call has several steps.
        self._step += batch + 1 - self._batch
        if self._last_step is not None and self._step >= self._last_step:
            self.on_train_end()

    def on_train_end(self, logs=None):
        if self._stop is not None:
            self._stop()
            self._stop = None


def _start(folder):
    """Starts the profiler of the backend. Returns the function that stops it."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.profiler.experimental.start(folder)
        return tf.profiler.experimental.stop
    if keras.backend.backend() == "jax":
        import jax

        jax.profiler.start_trace(folder)
        return jax.profiler.stop_trace
    import torch

    profile = torch.profiler.profile()
    profile.start()

    def stop():
        profile.stop()
        profile.export_chrome_trace(os.path.join(folder, "trace.json"))

    return stop
