"""What does a pretraining step cost on one GPU, and what limits it?

Measures steps of `SpanBertPretrainer` (MLM and SBO) on JAX and PyTorch beside `transformers`'
`BertForMaskedLM` with a head of SBO in PyTorch, the same objective: milliseconds, the model's own
FLOPs over the card's dense bfloat16 peak, memory, what is compiled after the first steps, each road
of attention, bfloat16 and float32, and the kernels that take longest.

    python benchmarks/gpu.py              # all parts that are not in --results yet
    python benchmarks/gpu.py --part=2     # one of them
    python benchmarks/gpu.py --size=tiny --length=64 --device=cpu --steps=2  # tries it out

A measurement runs in a process of its own, is stopped after --case_seconds, and is a line of
--results as soon as it is there; --minutes ends the run before the next one, and the same command
goes on from there. TensorFlow need not be installed, nor both backends, nor `transformers`: what
lacks one is left out, and says so. Batches are masked on NumPy before the first step.
"""

import argparse
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time

# TFLOP/s of a dense product in bfloat16, by words of a card's name; the first one counts.
PEAKS = {
    "B200": 2250,
    "H100 PCIe": 756,
    "H100": 990,
    "H200": 990,
    "GH200": 990,
    "A100": 312,
    "L40S": 362,
    "L4": 121,
}
LIBRARIES = ("torch", "jax", "transformers")
BATCH_SIZES = {"base": 32, "large": 16}
ROADS = [(0.0, False), (0.0, True), (0.1, False), (0.1, True)]
# What a measurement has where nothing else is said.
CASE = {
    "library": "torch",
    "dtype": "mixed_bfloat16",
    "attention_dropout": 0.0,
    "has_mask": False,
    "is_fused": True,
    "is_compiled": False,
    "is_profiled": False,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", help="of SpanBertBackbone.SIZES; base and large without it")
    parser.add_argument("--batch_size", type=int, help="else 32 for base, 16 for large")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--steps", type=int, default=10, help="of each of three timed windows")
    parser.add_argument("--device", choices=["gpu", "cpu"], default="gpu")
    parser.add_argument("--part", type=int, help="a part alone, from 1")
    parser.add_argument("--library", choices=LIBRARIES, help="one alone")
    parser.add_argument("--minutes", type=float, default=9.5)
    parser.add_argument("--case_seconds", type=float, default=150.0)
    parser.add_argument("--peak", type=float, help="TFLOP/s in bfloat16 of a card not known here")
    parser.add_argument("--results", default=os.path.splitext(__file__)[0] + ".jsonl")
    args = parser.parse_args()
    card = gpu_name() if args.device == "gpu" else "CPU"
    if card is None:
        print("No GPU is here: nothing was measured (--device=cpu tries the program out).")
        return

    started = time.monotonic()
    for number, (title, cases) in enumerate(parts(args), start=1):
        if args.part not in (None, number) or not cases:
            continue
        print(f"{number}. {title}", flush=True)
        for case in cases:
            case = {**CASE, **case, "length": args.length, "steps": args.steps, "card": card}
            case["batch_size"] = args.batch_size or BATCH_SIZES.get(case["size"], 8)
            if args.library not in (None, case["library"]):
                continue
            if any(row["case"] == case for row in read(args.results) if is_measured(row)):
                continue
            left = 60 * args.minutes - (time.monotonic() - started)
            if left <= 0:
                print(f"--minutes={args.minutes:g} are over: the same command goes on from here")
                return
            row = {"case": case, **run(case, min(left, args.case_seconds))}
            with open(args.results, "a") as file:
                file.write(json.dumps(row) + "\n")
            print(line(row, args), flush=True)
    print_ratios(read(args.results), card)


def parts(args):
    """Titles and measurements, those that matter most first."""
    sizes = [args.size] if args.size else ["base", "large"]
    first, backends = {"size": sizes[0]}, ["torch", "jax"]
    roads = [{**first, "attention_dropout": rate, "has_mask": mask} for rate, mask in ROADS]
    return [
        *((f"{b}, each road", [{**road, "library": b} for road in roads]) for b in backends),
        (
            "transformers",
            [{**road, "library": "transformers"} for road in roads if not road["has_mask"]],
        ),
        (
            "larger",
            [{"size": size, "library": library} for size in sizes[1:] for library in LIBRARIES],
        ),
        (
            "kernels that take longest",
            [{**first, "library": b, "is_profiled": True} for b in backends],
        ),
        (
            "plain attention and float32",
            [
                {**first, "library": b, **other}
                for b in backends
                for other in [{"is_fused": False}, {"dtype": "float32"}]
            ],
        ),
        ("torch.compile", [{**first, "is_compiled": True}]),
    ]


def gpu_name():
    """The name of the first GPU as its driver has it; `None` without one."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    name, count = ctypes.create_string_buffer(256), ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return None
    return None if cuda.cuDeviceGetName(name, 256, 0) else name.value.decode()


def read(path):
    """The rows so far."""
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return [json.loads(text) for text in file if text.strip()]


def is_measured(row):
    return not row.keys() & {"error", "left_out"}


def run(case, seconds):
    """What a process of its own measures, or the error that ended it."""
    library = case["library"]
    backend = "jax" if library == "jax" else "torch"
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    if case["card"] == "CPU":
        environment |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu_case.py")
    process = subprocess.Popen(
        [sys.executable, program, json.dumps(case)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # With what it started: compilers, loaders.
        process.communicate()
        return {"error": f"took more than {seconds:.0f} seconds"}
    if process.returncode:
        return {"error": (errors.strip().splitlines() or [f"exit {process.returncode}"])[-1]}
    return json.loads(output.splitlines()[-1])


# === What is shown ===


def title(case):
    words = [case["library"], case["size"], f"{case['batch_size']} x {case['length']}"]
    words += [case["dtype"].removeprefix("mixed_"), f"dropout {case['attention_dropout']:g}"]
    words += ["mask"] * case["has_mask"] + ["plain"] * (not case["is_fused"])
    return ", ".join(words + ["compiled"] * case["is_compiled"])


def peak(args, card):
    known = (tflops for words, tflops in PEAKS.items() if re.search(rf"\b{words}\b", card))
    return args.peak or next(known, None)


def line(row, args):
    shown = f"  {title(row['case']):<62}"
    if not is_measured(row):
        return shown + (row.get("error") or f"left out: {row['left_out']}")
    if "kernels" in row:
        most = "".join(
            f"\n    {k['ms']:>9.3f} ms {k['calls']:>7.0f} x  {k['name']}" for k in row["kernels"]
        )
        return f"{shown}{row['kernels_ms']:,.1f} ms in {row['kernel_calls']:,} kernels{most}"
    tflops = peak(args, row["case"]["card"])
    share = f" ({row['tflops'] / tflops:.0%} of the peak)" if tflops else ""
    return (
        f"{shown}{row['step_ms']:>9,.1f} ms{row['tflops']:>8.2f} TFLOP/s{share}"
        f"{row['peak_gb']:>7.1f} GB  first {row['first_step_s']:.0f} s  "
        f"compiled later {row['compiled_later']:.0f}"
    )


def print_ratios(rows, card):
    """How many times as fast each case is as the one that it is to be compared with."""
    times = {
        json.dumps(row["case"], sort_keys=True): row["step_ms"]
        for row in rows
        if "step_ms" in row and row["case"]["card"] == card
    }
    for key, step_ms in times.items():
        case = json.loads(key)
        others = {"transformers": {"library": "transformers", "is_compiled": False}}
        if case["is_fused"]:
            others["plain attention"] = {"is_fused": False}
        if case["dtype"] != "float32":
            others["float32"] = {"dtype": "float32"}
        for name, changed in others.items():
            other = times.get(json.dumps({**case, **changed}, sort_keys=True))
            if other and other != step_ms:
                print(f"  {title(case):<62}{other / step_ms:>6.2f} times as fast as {name}")


if __name__ == "__main__":
    main()
