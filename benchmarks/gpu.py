"""What does a pretraining step cost on one GPU, and what limits it?

Measures training steps of `SpanBertPretrainer` (MLM and SBO) on JAX and PyTorch. The peer is
`BertForMaskedLM` of `transformers` with an SBO head in PyTorch, which has the same objective.
Prints the time per step, the share of the dense bfloat16 peak, memory, the first step, compilations
after the warm-up, the attention implementations, bfloat16 against float32, and the slowest kernels.

    python benchmarks/gpu.py              # all parts
    python benchmarks/gpu.py --part=2     # one of them
    python benchmarks/gpu.py --size=tiny --length=64 --device=cpu --steps=2  # tries it out

Each measurement runs in its own process. TensorFlow is not needed. If a backend or `transformers`
is not installed, its measurements fail with a message. Batches are masked before the first step.
"""

import argparse
import collections
import contextlib
import ctypes
import glob
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

# Peak TFLOP/s of dense bfloat16 products by words in the GPU's name. The first match is used.
PEAKS = {"B200": 2250, "H100 PCIe": 756, "H100": 990, "H200": 990, "A100": 312, "L4": 121}
BACKENDS, LIBRARIES = ("torch", "jax"), ("torch", "jax", "transformers")
BATCH_SIZES = {"base": 32, "large": 16}
WARM_UP_STEPS, PROFILED_STEPS, NUM_KERNELS = 5, 3, 15
TIMEOUT = 300  # Seconds.
CASE = {
    "dtype": "mixed_bfloat16",
    "attention_dropout": 0.0,
    "has_mask": False,
    "is_fused": True,
    "jit_compile": False,
    "is_profiled": False,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", help="of SpanBertBackbone.SIZES (default: base and large)")
    parser.add_argument("--batch_size", type=int, help="default: 32 for base, 16 for large")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--steps", type=int, default=10, help="in each of three timed windows")
    parser.add_argument("--device", choices=["gpu", "cpu"], default="gpu")
    parser.add_argument("--part", type=int, help="run one part, counted from 1")
    parser.add_argument("--library", choices=LIBRARIES, help="run one library")
    parser.add_argument("--peak", type=float, help="TFLOP/s in bfloat16, for unknown GPUs")
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        print(json.dumps(measure(argparse.Namespace(**args.case))))
        return
    card = gpu_name() if args.device == "gpu" else "CPU"
    if card is None:
        print("No GPU was found, nothing was measured. Use --device=cpu to test the program.")
        return
    known = (tflops for words, tflops in PEAKS.items() if re.search(rf"\b{words}\b", card))
    peak = args.peak or next(known, None)
    print(card)
    step_ms = {}
    for number, (title, cases) in enumerate(measurements(args.size), start=1):
        if args.part in (None, number):
            print(f"{number}. {title}", flush=True)
            for case in cases:
                case = {**CASE, **case, "length": args.length, "steps": args.steps, "card": card}
                case["batch_size"] = args.batch_size or BATCH_SIZES.get(case["size"], 8)
                if args.library in (None, case["library"]):
                    row = run(case)
                    print(f"  {describe(case):<62}{format_row(row, peak)}", flush=True)
                    step_ms[json.dumps(case, sort_keys=True)] = row.get("step_ms")
    print_ratios({case: ms for case, ms in step_ms.items() if ms})


def measurements(size):
    """Returns titles and measurements, the most important first."""
    first = {"size": size or "base"}
    larger = [] if size else [{"size": "large", "library": library} for library in LIBRARIES]
    settings = [
        {**first, "attention_dropout": rate, "has_mask": mask}
        for rate, mask in itertools.product([0.0, 0.1], [False, True])
    ]
    plain = [{"is_fused": False}, {"dtype": "float32"}]
    return [
        ("attention in torch", [{**x, "library": "torch"} for x in settings]),
        ("attention in jax", [{**x, "library": "jax"} for x in settings]),
        (
            "transformers",
            [{**x, "library": "transformers"} for x in settings if not x["has_mask"]],
        ),
        ("larger", larger),
        ("slowest kernels", [{**first, "library": b, "is_profiled": True} for b in BACKENDS]),
        (
            "plain attention and float32",
            [{**first, "library": b, **x} for b in BACKENDS for x in plain],
        ),
        ("torch.compile", [{**first, "library": "torch", "jit_compile": True}]),
    ]


def gpu_name():
    """Returns the name of the first GPU as given by its driver, or `None` without a GPU."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    name, count = ctypes.create_string_buffer(256), ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return None
    return None if cuda.cuDeviceGetName(name, 256, 0) else name.value.decode()


def run(case):
    """Runs a measurement in a new process. Returns the result or the error."""
    backend = "jax" if case["library"] == "jax" else "torch"
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    if case["card"] == "CPU":
        environment |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, __file__, f"--case={json.dumps(case)}"]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired:
        return {"error": f"took more than {TIMEOUT} seconds"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


# === Output ===


def describe(case):
    words = [case["library"], case["size"], f"{case['batch_size']} x {case['length']}"]
    words += [case["dtype"].removeprefix("mixed_"), f"dropout {case['attention_dropout']:g}"]
    words += ["mask"] * case["has_mask"] + ["plain"] * (not case["is_fused"])
    return ", ".join(words + ["compiled"] * case["jit_compile"])


def format_row(row, peak):
    if "error" in row:
        return row["error"]
    if "kernels" in row:
        lines = [f"{row['kernels_ms']:,.1f} ms in kernels"]
        lines += [f"  {ms:>9.3f} ms {n:>7.0f} x  {name[:120]}" for name, ms, n in row["kernels"]]
        return "\n  ".join(lines)
    share = f" ({row['tflops'] / peak:.0%} of the peak)" if peak else ""
    return (
        f"{row['step_ms']:>9,.1f} ms{row['tflops']:>8.2f} TFLOP/s{share}{row['peak_gb']:>7.1f} GB  "
        f"first {row['first_step_s']:.0f} s  compiled later {row['compiled_later']}"
    )


def print_ratios(step_ms):
    """Prints the speed of each case relative to its peer."""
    for key, ms in step_ms.items():
        case = json.loads(key)
        others = {
            "transformers": {"library": "transformers", "jit_compile": False},
            "plain attention": {"is_fused": False},
            "float32": {"dtype": "float32"},
        }
        for name, changed in others.items():
            other = {**case, **changed}
            other_ms = step_ms.get(json.dumps(other, sort_keys=True))
            if other_ms and other != case:
                print(f"  {describe(case):<62}{other_ms / ms:>6.2f} times as fast as {name}")


# === In the process of a measurement ===


def measure(case):
    """Returns times, FLOPs, memory and compilations of a case's steps, or its kernels."""
    import keras
    import training_step

    from keras_spanbert.runs import cost

    if case.card != "CPU" and not cost.has_accelerator():
        return {"error": f"{keras.backend.backend()} sees no GPU"}
    case.dropout, case.rematerialize, case.variant = 0.1, False, "both"
    case.mask_rate = 0.15
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(case.dtype)
    model = training_step.build_model(case)
    # The model of `transformers` has the same FLOPs, counted at the masked positions alone.
    num_predictions = -(-15 * case.length // 100)
    flops = cost.step_flops(model, case.batch_size, case.length, num_predictions)
    with plain_attention() if not case.is_fused else contextlib.nullcontext():
        if case.is_profiled:
            return profile(case, model)
        clock = Clock(case.steps)
        if case.library == "transformers":
            del model  # Its memory is not the peer's.
            case.variant = "objective"
            device = "cpu" if case.card == "CPU" else "cuda"
            step = training_step.pytorch_step(case, device, case.has_mask)
            for number in range(clock.ends[-1]):
                clock.step(number, step())
        else:
            batch_end = keras.callbacks.LambdaCallback(
                on_train_batch_end=lambda number, logs: clock.step(number, logs["loss"])
            )
            fit(case, model, clock.ends[-1], batch_end)
    row = clock.figures()
    return {**row, "tflops": flops / row["step_ms"] / 1e9, "peak_gb": cost.peak_memory() / 1e9}


class Clock:
    """Times windows of steps and counts the compilations after the warm-up.

    It waits for the device only at the ends of windows, because a run does not wait either.
    """

    def __init__(self, steps):
        self.steps = steps
        self.ends = [WARM_UP_STEPS + window * steps for window in range(4)]
        self.times = [time.perf_counter()]
        self.compilations = [0]
        self._count = count_compilations()

    def step(self, number, loss):
        """Records the end of a step, counted from 0."""
        if number == 0 or number + 1 in self.ends:
            float(loss)
            self.times.append(time.perf_counter())
            self.compilations.append(self._count())

    def figures(self):
        start, first, *ends = self.times
        windows = [1e3 * (b - a) / self.steps for a, b in zip(ends, ends[1:])]
        return {
            "step_ms": statistics.median(windows),
            "first_step_s": first - start,
            "compiled_later": self.compilations[-1] - self.compilations[2],
        }


def count_compilations():
    """Returns a function that counts how often XLA, or PyTorch's compiler, has compiled so far."""
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
    """Inside this context, attention weights are computed and kept."""
    import keras

    keras.config.disable_flash_attention()
    if keras.backend.backend() != "torch":
        yield
        return
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        yield


def fit(case, model, steps, callback):
    """Trains on `steps` equal batches."""
    import numpy as np
    import training_step

    x, y, weights = training_step.build_batch(case)
    if not case.has_mask:
        del x["padding_mask"]
    x, y, weights = (
        {name: np.concatenate([array] * steps) for name, array in arrays.items()}
        for arrays in (x, y, weights)
    )
    options = {"sample_weight": weights, "shuffle": False, "verbose": 0}
    model.fit(x, y, case.batch_size, callbacks=[callback], **options)


def profile(case, model):
    """Returns the kernels that take longest, with milliseconds and calls per step."""
    from keras_spanbert.runs.profile import FIRST_STEP, Profile

    times, calls = collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        fit(case, model, FIRST_STEP + PROFILED_STEPS + 1, Profile(folder, PROFILED_STEPS))
        for name, milliseconds in events(folder):
            times[name] += milliseconds / PROFILED_STEPS
            calls[name] += 1 / PROFILED_STEPS
    most = times.most_common(NUM_KERNELS)
    return {
        "kernels_ms": sum(times.values()),
        "kernels": [(name, milliseconds, calls[name]) for name, milliseconds in most],
    }


def events(folder):
    """Returns names and milliseconds of a trace's kernels, on a CPU those of its operations."""
    traces = glob.glob(os.path.join(folder, "trace.json"))
    if traces:
        with open(traces[0]) as file:
            found = [e for e in json.load(file)["traceEvents"] if e.get("ph") == "X"]
        on_gpu = [e for e in found if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
        # Nested operations of a CPU count twice.
        on_cpu = [e for e in found if e.get("cat") == "cpu_op"]
        return [(e["name"], e["dur"] / 1e3) for e in on_gpu or on_cpu]
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


if __name__ == "__main__":
    main()
