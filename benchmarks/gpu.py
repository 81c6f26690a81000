"""What does a training step cost on one GPU, and what limits it?

Measures pretraining steps (MLM and SBO) on JAX and PyTorch, and steps of coreference. Peers:
`BertForMaskedLM` of `transformers` with an SBO head in PyTorch, which has the same objective,
keras-hub's `BertMaskedLM`, which has no SBO, and for coreference the released graph in PyTorch.
Prints the time per step, the share of the dense bfloat16 peak, memory, the first step, compilations
after the warm-up, the attention implementations, bfloat16 against float32, and the slowest kernels.

    python benchmarks/gpu.py              # all parts
    python benchmarks/gpu.py --part=2     # one of them
    python benchmarks/gpu.py --size=tiny --length=64 --device=cpu --steps=2  # tries it out

Each measurement has a process of its own. The processes of a part take turns: all are started, then
each runs a window of steps while the others wait. If they do not fit into the card's memory
together, use `--library`. TensorFlow is not needed. If a backend or `transformers` is not
installed, its measurements fail with a message. Batches are masked before the first step.
"""

import argparse
import ctypes
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

# Peak TFLOP/s of dense bfloat16 products by words in the GPU's name. The first match is used.
PEAKS = {"B200": 2250, "H100 PCIe": 756, "H100": 990, "H200": 990, "A100": 312, "L4": 121}
BACKENDS = ("torch", "jax")
PEERS = ("transformers", "keras_hub/jax", "keras_hub/torch", "released")
BATCH_SIZES = {"base": 32, "large": 16, "minilm": 1}
PROGRAM = pathlib.Path(__file__).with_name("gpu_steps.py")
TIMEOUT = 300  # Seconds.
CASE = {
    "task": "pretraining",
    "dtype": "mixed_bfloat16",
    "attention_dropout": 0.0,
    "has_mask": False,
    "is_fused": True,
    "jit_compile": "auto",
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
    parser.add_argument("--library", choices=[*BACKENDS, *PEERS], help="run one library")
    parser.add_argument("--peak", type=float, help="TFLOP/s in bfloat16, for unknown GPUs")
    args = parser.parse_args()
    card = gpu_name() if args.device == "gpu" else "CPU"
    if card is None:
        print("No GPU was found, nothing was measured. Use --device=cpu to test the program.")
        return
    known = (tflops for words, tflops in PEAKS.items() if re.search(rf"\b{words}\b", card))
    peak = args.peak or next(known, None)
    print(card)
    step_ms = {}
    for number, (title, cases) in enumerate(measurements(args.size), start=1):
        if args.part not in (None, number):
            continue
        print(f"{number}. {title}", flush=True)
        cases = [complete(c, args, card) for c in cases if args.library in (None, c["library"])]
        for case, row in zip(cases, measure_in_turns(cases)):
            print(f"  {describe(case):<62}{format_row(row, peak)}", flush=True)
            step_ms[json.dumps(case, sort_keys=True)] = row.get("step_ms")
    print_ratios({case: ms for case, ms in step_ms.items() if ms})


def measurements(size):
    """Returns titles and measurements, the most important first."""
    first = {"size": size or "base"}
    libraries = [*BACKENDS, *PEERS[:3]]
    larger = [] if size else [{"size": "large", "library": x} for x in libraries[:3]]
    padded = [
        {**first, "library": backend, "attention_dropout": rate, "has_mask": True}
        for backend, rate in itertools.product(BACKENDS, [0.0, 0.1])
    ]
    plain = [{"is_fused": False}, {"dtype": "float32"}]
    document = {"task": "coreference", "size": size or "minilm", "dtype": "float32"}
    return [
        ("without attention dropout", [{**first, "library": x} for x in libraries]),
        (
            "with attention dropout",
            [{**first, "library": x, "attention_dropout": 0.1} for x in libraries],
        ),
        ("padding mask", padded),
        ("larger", larger),
        ("slowest kernels", [{**first, "library": b, "is_profiled": True} for b in BACKENDS]),
        (
            "coreference, one document of 11 segments",
            [{**document, "library": x} for x in [*BACKENDS, "released"]],
        ),
        (
            "plain attention and float32",
            [{**first, "library": b, **x} for b in BACKENDS for x in plain],
        ),
        ("torch without compiled layers", [{**first, "library": "torch", "jit_compile": False}]),
    ]


def complete(case, args, card):
    """Returns a case with all settings."""
    case = {**CASE, **case, "length": args.length, "steps": args.steps, "card": card}
    if case["task"] == "coreference":
        return {**case, "batch_size": 1, "length": min(args.length, 128)}
    return {**case, "batch_size": args.batch_size or BATCH_SIZES.get(case["size"], 8)}


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


def measure_in_turns(cases):
    """Returns the results of cases. Their windows of steps run in turns."""
    measurements = [Measurement(case) for case in cases]
    while any(measurement.row is None for measurement in measurements):
        for measurement in measurements:
            if measurement.row is None:
                measurement.next_window()
    return [measurement.row for measurement in measurements]


class Measurement:
    """A process that runs the steps of a case, and pauses after the warm-up and each window.

    Attributes:
        row: the result, or the error, or `None` until the process ends.
    """

    def __init__(self, case):
        backend = "jax" if case["library"].endswith("jax") else "torch"
        environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
        # Otherwise JAX takes most of the memory at the start.
        environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        if case["card"] == "CPU":
            environment |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [sys.executable, PROGRAM, json.dumps(case)], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
        )  # fmt: skip
        self._read()

    def next_window(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self._read()

    def _read(self):
        """Blocks until the process pauses or ends."""
        timer = threading.Timer(TIMEOUT, self._process.kill)
        timer.start()
        answers = (line for line in self._process.stdout if line.startswith("{"))
        self.row = json.loads(next(answers, "null"))
        timer.cancel()
        if self.row is None:
            self.row = {"error": self._error(self._process.wait())}
        elif self.row == {}:
            self.row = None
            return
        with self._process, self._errors:
            pass

    def _error(self, code):
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines() or [f"exit {code}"]
        return lines[-1] if code >= 0 else f"killed, or took more than {TIMEOUT} seconds"


# === Output ===


def describe(case):
    words = [case["library"], case["size"], f"{case['batch_size']} x {case['length']}"]
    words += [case["dtype"].removeprefix("mixed_"), f"dropout {case['attention_dropout']:g}"]
    words += ["mask"] * case["has_mask"] + ["plain"] * (not case["is_fused"])
    return ", ".join(words + ["not compiled"] * (not case["jit_compile"]))


def format_row(row, peak):
    if "error" in row:
        return row["error"]
    if "kernels" in row:
        lines = [f"{row['kernels_ms']:,.1f} ms in kernels"]
        lines += [f"  {ms:>9.3f} ms {n:>7.0f} x  {name[:120]}" for name, ms, n in row["kernels"]]
        return "\n  ".join(lines)
    rate = ""
    if "tflops" in row:
        share = f" ({row['tflops'] / peak:.0%} of the peak)" if peak else ""
        rate = f"{row['tflops']:>8.2f} TFLOP/s{share}"
    return (
        f"{row['step_ms']:>9,.1f} ms{rate}{row['peak_gb']:>7.1f} GB  "
        f"first {row['first_step_s']:.0f} s  compiled later {row['compiled_later']}"
    )


def print_ratios(step_ms):
    """Prints the speed of each case relative to its peers."""
    for key, ms in step_ms.items():
        case = json.loads(key)
        if case["library"] in PEERS:
            continue
        others = {peer: {"library": peer, "jit_compile": "auto"} for peer in PEERS}
        others["plain attention"] = {"is_fused": False}
        others["float32"] = {"dtype": "float32"}
        for name, changed in others.items():
            other = {**case, **changed}
            other_ms = step_ms.get(json.dumps(other, sort_keys=True))
            if other_ms and other != case:
                print(f"  {describe(case):<62}{other_ms / ms:>6.2f} times as fast as {name}")


if __name__ == "__main__":
    main()
