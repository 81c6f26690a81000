"""Callbacks that do not make the host wait for the device after each step."""

import keras


class Callbacks(keras.callbacks.CallbackList):
    """`keras.callbacks.CallbackList` that passes the logs of a step on as scalar tensors."""

    # Keras would convert them to floats and so wait until the device has computed the step. The
    # device would then wait for the host, for 8 of 43 ms with a base model on an H100.
    def on_train_batch_end(self, batch, logs=None):
        for callback in self.callbacks:
            callback.on_train_batch_end(batch, logs=logs)
