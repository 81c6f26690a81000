"""Decorators of methods that only one thread at a time may run."""

import functools
from collections.abc import Callable

import keras


def one_thread(method: Callable) -> Callable:
    """Decorator of a model's method: on JAX, only one thread at a time runs it for a backbone."""
    # Keras on JAX donates the buffers of the weights to each step, so all other threads that use
    # these weights fail. Predictions on the other backends need no lock.
    return one_thread_on_all_backends(method) if keras.backend.backend() == "jax" else method


def one_thread_on_all_backends(method: Callable) -> Callable:
    """Like `one_thread`, for methods that change the model's state, such as its metrics."""

    @functools.wraps(method)
    def call(self, *args, **kwargs):
        # Models that share a backbone share its lock.
        with getattr(getattr(self, "backbone", None), "thread_lock", self.thread_lock):
            return method(self, *args, **kwargs)

    return call
