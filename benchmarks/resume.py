"""Does a run that is killed repeatedly give the same result as an uninterrupted one?

Pretrains twice with the same flags: once uninterrupted, and once killed with SIGKILL and resumed
several times. Half of the kills happen at random moments, and half while a checkpoint is being
written. Then compares all rows of the history and all final weights. They must be identical on
TensorFlow (with deterministic operations) and within 1e-6 on JAX and PyTorch. Otherwise, it fails.

    KERAS_BACKEND=... python benchmarks/resume.py

Flags after `--` are passed to train.py.
"""

import argparse
import csv
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import h5py
import numpy as np

TRAIN = pathlib.Path(__file__).parent.parent / "train.py"
# Columns that differ from run to run.
TIMING = [
    "seconds", "tokens_per_second", "step_ms", "waiting_ms", "tflops_per_second", "peak_gb",
]  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="for the moments")
    parser.add_argument("flags", nargs="*", help="flags of train.py")
    args = parser.parse_args()
    flags = args.flags or ["--steps=400", "--checkpoint_every=20", "--dropout=0.1"]
    moments = random.Random(args.seed)

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        began = time.perf_counter()
        process = start(folder / "uninterrupted", flags)
        for line in process.stdout:
            if "To train:" in line:
                reading = time.perf_counter() - began
        out, err = process.communicate()
        if process.returncode:
            sys.exit(err)
        training = time.perf_counter() - began - reading

        killed = partial = 0
        while True:
            process = start(folder / "killed", [*flags, "--resume"])
            if killed == args.kills:
                break
            checkpoints = folder / "killed" / "checkpoints"
            if killed % 2:
                while not list(checkpoints.glob("*.partial")) and process.poll() is None:
                    time.sleep(1e-4)
            else:
                wait = moments.uniform(0.5 * reading, reading + 2 * training / args.kills)
                try:
                    process.wait(wait)
                except subprocess.TimeoutExpired:
                    pass
            process.send_signal(signal.SIGKILL)
            out, err = process.communicate()
            if process.returncode != -signal.SIGKILL:
                break  # It finished first.
            killed += 1
            partial += bool(list(checkpoints.glob("*.partial")))
            print(f"killed after: {out.strip().splitlines()[-1:]}", flush=True)
        out, err = process.communicate()
        if process.returncode:
            sys.exit(err)
        difference = compare(folder / "uninterrupted", folder / "killed")
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    print(f"{backend}: killed {killed} times, {partial} of them while a checkpoint was written")
    print(f"largest difference between histories and weights: {difference:.2g}")
    if not difference <= (0.0 if backend == "tensorflow" else 1e-6):
        sys.exit("The runs differ")


def start(output, flags):
    return subprocess.Popen(
        [sys.executable, str(TRAIN), f"--output={output}", *flags],
        env={**os.environ, "TF_DETERMINISTIC_OPS": "1", "PYTHONPATH": str(TRAIN.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def compare(uninterrupted, killed):
    """Returns the largest difference between the histories and weights of two runs."""
    largest = 0.0
    histories = [read_csv(run / "history.csv") for run in [uninterrupted, killed]]
    if len(histories[0]) != len(histories[1]):
        sys.exit(f"Rows of history: {len(histories[0])} and {len(histories[1])}")
    for mine, theirs in zip(*histories):
        for name in mine.keys() - set(TIMING):
            largest = max(largest, abs(float(mine[name]) - float(theirs[name])))
    for path in uninterrupted.glob("*.weights.h5"):
        mine, theirs = weights(path), weights(killed / path.name)
        for name, array in mine.items():
            difference = np.abs(array - theirs[name].astype("float64"))
            largest = max(largest, float(difference.max(initial=0.0)))
    return largest


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def weights(path):
    arrays = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: arrays.update({name: item[()]} if hasattr(item, "dtype") else {})
        )
    return arrays


if __name__ == "__main__":
    main()
