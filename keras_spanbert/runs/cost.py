"""What a training step costs: time, waiting, FLOPs, memory."""

import sys
import time

import keras
from keras import ops

# Sides of the matrices whose product is timed.
_CPU_SIDE, _ACCELERATOR_SIDE = 2048, 8192


def step_flops(
    model: keras.Model, batch_size: int, sequence_length: int, num_predictions: int = 0
) -> float:
    """Floating-point operations of a step: matrix products, forward and backward.

    What the model takes, whatever an implementation computes beyond: no
    rematerialisation, no other positions than the masked ones.

    Args:
        model: a task, or a `SpanBertBackbone` alone.
        batch_size: int.
        sequence_length: int.
        num_predictions: int. Masked positions M of a sequence, at which
            pretraining heads are computed. Defaults to `0`.
    """
    forward = getattr(model, "backbone", model).flops(sequence_length)
    if hasattr(model, "head_flops"):
        forward += model.head_flops(num_predictions)
    return 3.0 * batch_size * forward


def matrix_flops() -> float:
    """Floating-point operations of the product that `matrix_rate` times."""
    return 2.0 * (_ACCELERATOR_SIDE if has_accelerator() else _CPU_SIDE) ** 3


def matrix_rate(dtype="float32", repeats: int = 3) -> float:
    """FLOP/s of a large matrix product on this machine's device, by measurement.

    On a machine that others use too it changes from one moment to the next: to
    compare with it, measure it in alternation with what is compared.

    Args:
        dtype: string. Defaults to `"float32"`.
        repeats: int. The best of so many counts. Defaults to `3`.
    """
    side = _ACCELERATOR_SIDE if has_accelerator() else _CPU_SIDE
    x = ops.ones((side, side), dtype)
    best = float("inf")
    for _ in range(repeats + 1):  # The first one warms up.
        started = time.perf_counter()
        y = ops.matmul(x, x)
        ops.convert_to_numpy(y[:1, :1])  # Waits for it.
        best = min(best, time.perf_counter() - started)
        if best > 1.0:  # bfloat16 where the device has no instructions for it.
            break
    return matrix_flops() / best


def has_accelerator() -> bool:
    """Whether the backend computes on a GPU or TPU."""
    if keras.backend.backend() == "torch":
        import torch

        return torch.cuda.is_available()
    return any(not device.startswith("cpu") for device in keras.distribution.list_devices())


def peak_memory() -> int:
    """Most bytes in use so far: of an accelerator that counts them, else of the process."""
    backend = keras.backend.backend()
    if has_accelerator():
        if backend == "jax":
            import jax

            stats = jax.local_devices()[0].memory_stats()
            if stats:  # Not every device counts.
                return stats["peak_bytes_in_use"]
        elif backend == "torch":
            import torch

            return torch.cuda.max_memory_allocated()
        else:
            import tensorflow as tf

            kind = "GPU" if tf.config.list_logical_devices("GPU") else "TPU"
            return tf.config.experimental.get_memory_info(f"{kind}:0")["peak"]
    if sys.platform == "win32":
        return 0  # Python does not know it there.
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
        """The same dataset, whose elements are fetched in the loop's own thread."""
        import tensorflow as tf

        def now():
            # Not `tf.timestamp`, which deterministic operations exclude.
            clock = tf.data.Dataset.from_tensors(0).repeat()
            return clock.map(lambda _: tf.numpy_function(time.perf_counter, [], tf.float64))

        def count(before, element, after):
            self._seconds.assign_add(after - before)
            return element

        # `zip` fetches its parts one after another.
        return tf.data.Dataset.zip(now(), dataset, now()).map(count)

    def seconds(self) -> float:
        """Seconds waited so far."""
        return float(self._seconds.numpy())


class StepCost:
    """Figures of the steps between two moments.

    Args:
        flops: float, of a step on a device: see `step_flops`.
        wait: `InputWait`. Defaults to `None`: what is waited is not known.

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
        """Of `steps` steps since a moment that `now` gave.

        Returns:
            Dict of `step_ms`, `waiting_ms` (of it, for input),
            `tflops_per_second` (the model's FLOPs in these steps over the
            seconds they took, in 10^12 a second) and `peak_gb`.
        """
        seconds, waited = (a - b for a, b in zip(self.now(), since))
        figures = {"step_ms": 1e3 * seconds / steps}
        if self._wait:
            figures["waiting_ms"] = 1e3 * waited / steps
        figures["tflops_per_second"] = self.flops * steps / seconds / 1e12
        figures["peak_gb"] = peak_memory() / 1e9
        # Significant digits, as models differ in size by orders of magnitude.
        return {name: float(f"{value:.4g}") for name, value in figures.items()}
