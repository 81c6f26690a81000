"""The cost of a training step: time, waiting, FLOPs, memory."""

import sys
import time

import keras


def step_flops(
    model: keras.Model, batch_size: int, sequence_length: int, num_predictions: int = 0
) -> float:
    """Returns the floating-point operations of the matrix products in a training step.

    These are forward and backward, with pretraining heads at `num_predictions` masked positions per
    sequence, without extra work of an implementation, such as rematerialization.
    """
    forward = getattr(model, "backbone", model).flops(sequence_length)
    if hasattr(model, "head_flops"):
        forward += model.head_flops(num_predictions)
    return 3.0 * batch_size * forward


def has_accelerator() -> bool:
    """Returns whether the backend computes on a GPU or TPU."""
    if keras.backend.backend() == "torch":
        import torch

        return torch.cuda.is_available()
    return any(not device.startswith("cpu") for device in keras.distribution.list_devices())


def peak_memory() -> int:
    """Returns the peak memory in bytes: of an accelerator that reports it, else of the process."""
    backend = keras.backend.backend()
    if has_accelerator():
        if backend == "jax":
            import jax

            stats = jax.local_devices()[0].memory_stats()
            if stats:  # Not every device reports it.
                return stats["peak_bytes_in_use"]
        elif backend == "torch":
            import torch

            return torch.cuda.max_memory_allocated()
        else:
            import tensorflow as tf

            kind = "GPU" if tf.config.list_logical_devices("GPU") else "TPU"
            return tf.config.experimental.get_memory_info(f"{kind}:0")["peak"]
    if sys.platform == "win32":
        return 0  # Python cannot measure it on this system.
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class InputWait:
    """Measures how long a training loop waits for a `tf.data.Dataset`.

    Example:
    ```python
    wait = InputWait()
    model.fit(wait.timed(dataset))
    wait.seconds()
    ```
    """

    def __init__(self):
        import tensorflow as tf

        with tf.device("cpu"):
            self._seconds = tf.Variable(0.0, dtype=tf.float64, trainable=False)

    def timed(self, dataset):
        """Returns the same dataset, with elements fetched in the thread of the training loop."""
        import tensorflow as tf

        def now():
            # `tf.timestamp` fails with deterministic operations.
            clock = tf.data.Dataset.from_tensors(0).repeat()
            return clock.map(lambda _: tf.numpy_function(time.perf_counter, [], tf.float64))

        def count(before, element, after):
            self._seconds.assign_add(after - before)
            return element

        # `zip` fetches its parts one after another.
        return tf.data.Dataset.zip(now(), dataset, now()).map(count)

    def seconds(self) -> float:
        """Returns the seconds waited so far."""
        return float(self._seconds.numpy())


class StepCost:
    """Computes speed and memory figures of the steps between two moments.

    Args:
        flops: float. FLOPs per step and device: see `step_flops`.
        wait: `InputWait`. Defaults to `None`: waiting is not measured.

    Example:
    ```python
    cost = StepCost(step_flops(backbone, 32, 512, 77))
    start = cost.now()
    ...
    cost.figures(start, steps=100)  # {"step_ms": ..., "tflops_per_second": ...}
    ```
    """

    def __init__(self, flops: float, wait=None):
        self.flops = flops
        self._wait = wait

    def now(self) -> tuple[float, float]:
        return time.perf_counter(), self._wait.seconds() if self._wait else 0.0

    def figures(self, since: tuple[float, float], steps: int) -> dict:
        """Returns the figures of `steps` steps since a moment returned by `now`.

        Returns:
            Dict of `step_ms`, `waiting_ms` (the part of it spent on waiting for input),
            `tflops_per_second` (the model's FLOPs in these steps, divided by their time, in
            10^12 per second) and `peak_gb`.
        """
        seconds, waited = (a - b for a, b in zip(self.now(), since))
        figures = {"step_ms": 1e3 * seconds / steps}
        if self._wait:
            figures["waiting_ms"] = 1e3 * waited / steps
        figures["tflops_per_second"] = self.flops * steps / seconds / 1e12
        figures["peak_gb"] = peak_memory() / 1e9
        # Round to significant digits, because models differ in size by orders of magnitude.
        return {name: float(f"{value:.4g}") for name, value in figures.items()}
