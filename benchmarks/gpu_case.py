"""One measurement of `gpu.py`, in a process of its own: a case as JSON in, its row as JSON out."""

import argparse
import collections
import contextlib
import gc
import glob
import json
import os
import statistics
import sys
import tempfile
import time

WARM_UP_STEPS = 5
PROFILED_STEPS = 3
NUM_KERNELS = 15


def measure(case):
    """A row: times, FLOPs, memory and compilations of a case's steps, or why it is left out."""
    try:
        import keras

        if case["library"] == "transformers":
            import transformers  # noqa: F401
    except ImportError as error:
        return {"left_out": str(error)}
    import training_step

    from keras_spanbert.runs import cost

    if case["card"] != "CPU" and not cost.has_accelerator():
        return {"left_out": f"{keras.backend.backend()} sees no GPU"}
    args = argparse.Namespace(
        **{name: case[name] for name in ("size", "length", "batch_size", "dtype")},
        attention_dropout=case["attention_dropout"],
        dropout=0.1,
        jit_compile=case["is_compiled"],
        rematerialize=False,
        variant="objective" if case["library"] == "transformers" else "both",
    )
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(case["dtype"])
    # `transformers` has the model whose FLOPs are counted at the masked positions alone.
    model = training_step.build_model(argparse.Namespace(**{**vars(args), "variant": "both"}))
    num_predictions = -(-15 * case["length"] // 100)
    flops = cost.step_flops(model, case["batch_size"], case["length"], num_predictions)
    with plain_attention() if not case["is_fused"] else contextlib.nullcontext():
        if case["is_profiled"]:
            return profile(case, args, model)
        if case["library"] == "transformers":
            del model
            gc.collect()  # Its memory is not the peer's.
            clock = time_peer(case, args)
        else:
            clock = fit(case, args, model)
    row = clock.figures(case["steps"])
    row["tflops"] = flops / row["step_ms"] / 1e9
    row["peak_gb"] = cost.peak_memory() / 1e9
    if case["card"] != "CPU":
        row["matrix_tflops"] = cost.matrix_rate("bfloat16") / 1e12
    row = {name: float(f"{value:.4g}") for name, value in row.items()}
    return {**row, "versions": versions()}


class Clock:
    """Times of windows of steps, and the compilations behind the first steps.

    It waits for the device at the windows' ends alone, as a run does not wait either.
    """

    def __init__(self, steps):
        self.ends = [WARM_UP_STEPS + window * steps for window in range(4)]
        self.started = time.perf_counter()
        self.times, self.compilations = [], []
        self.first_seconds = None
        self._count = count_compilations()

    def step(self, number, loss):
        """To be told of each step, from 1."""
        if number == 1 or number in self.ends:
            float(loss)
            if number == 1:
                self.first_seconds = time.perf_counter() - self.started
            else:
                self.times.append(time.perf_counter())
                self.compilations.append(self._count())

    def figures(self, steps):
        windows = [1e3 * (b - a) / steps for a, b in zip(self.times, self.times[1:])]
        return {
            "step_ms": statistics.median(windows),
            "slowest_ms": max(windows),
            "first_step_s": self.first_seconds,
            "compiled_later": self.compilations[-1] - self.compilations[0],
        }


def count_compilations():
    """The function that gives how often XLA, or PyTorch's compiler, has compiled so far."""
    import keras

    if keras.backend.backend() == "torch":
        from torch._dynamo.utils import counters

        return lambda: counters["stats"]["unique_graphs"]
    import jax

    seen = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: seen.append(event) if "backend_compile" in event else None
    )
    return lambda: len(seen)


@contextlib.contextmanager
def plain_attention():
    """Within, attention weights are computed and kept."""
    import keras

    keras.config.disable_flash_attention()
    if keras.backend.backend() != "torch":
        yield
        return
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        yield


def arrays(case, args, count):
    """`x`, `y` and `sample_weight` of `count` batches, which are all the same."""
    import numpy as np
    import training_step

    x, y, weights = training_step.build_batch(args)
    if not case["has_mask"]:
        del x["padding_mask"]
    return [
        {name: np.concatenate([array] * count) for name, array in part.items()}
        for part in (x, y, weights)
    ]


def fit(case, args, model):
    import keras

    clock = Clock(case["steps"])

    class Report(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            clock.step(batch + 1, logs["loss"])

    x, y, weights = arrays(case, args, clock.ends[-1])
    options = {"sample_weight": weights, "shuffle": False, "verbose": 0}
    model.fit(x, y, case["batch_size"], callbacks=[Report()], **options)
    return clock


def time_peer(case, args):
    import training_step

    device = "cpu" if case["card"] == "CPU" else "cuda"
    clock = Clock(case["steps"])
    step = training_step.pytorch_step(args, device, case["has_mask"])
    for number in range(1, clock.ends[-1] + 1):
        clock.step(number, step())
    return clock


def profile(case, args, model):
    """The kernels that take longest: milliseconds and calls of a step."""
    from keras_spanbert.runs.profile import FIRST_STEP, Profile

    x, y, weights = arrays(case, args, FIRST_STEP + PROFILED_STEPS + 1)
    options = {"sample_weight": weights, "shuffle": False, "verbose": 0}
    with tempfile.TemporaryDirectory() as folder:
        callbacks = [Profile(folder, PROFILED_STEPS)]
        model.fit(x, y, case["batch_size"], callbacks=callbacks, **options)
        times, calls = collections.Counter(), collections.Counter()
        for name, milliseconds in events(folder):
            times[name] += milliseconds / PROFILED_STEPS
            calls[name] += 1 / PROFILED_STEPS
    kernels = [
        {"name": name[:120], "ms": round(ms, 4), "calls": round(calls[name], 1)}
        for name, ms in times.most_common(NUM_KERNELS)
    ]
    return {
        "kernels_ms": round(sum(times.values()), 4),
        "kernel_calls": round(sum(calls.values())),
        "kernels": kernels,
        "versions": versions(),
    }


def events(folder):
    """Names and milliseconds of what a trace has of the device; of operations on a CPU."""
    traces = glob.glob(os.path.join(folder, "trace.json"))
    if traces:
        with open(traces[0]) as file:
            found = [e for e in json.load(file)["traceEvents"] if e.get("ph") == "X"]
        of_device = [e for e in found if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
        of_cpu = [e for e in found if e.get("cat") == "cpu_op"]  # One within another counts twice.
        return [(e["name"], e["dur"] / 1e3) for e in of_device or of_cpu]
    import jax

    (path,) = glob.glob(os.path.join(folder, "**", "*.xplane.pb"), recursive=True)
    planes = list(jax.profiler.ProfileData.from_file(path).planes)
    on_gpu = [p for p in planes if p.name.startswith("/device:GPU")]
    return [
        (event.name, event.duration_ns / 1e6)
        for plane in on_gpu or planes
        for line in plane.lines
        if line.name.startswith("Stream" if on_gpu else "tf_XLA")
        for event in line.events
    ]


def versions():
    from importlib import metadata

    found = {}
    for name in ["keras", "jax", "torch", "transformers", "tensorflow"]:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))
