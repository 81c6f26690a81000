"""Does a run that is killed repeatedly end as an uninterrupted one, and what does it cost?

Pretrains twice with the same flags: uninterrupted, and with a process killed by SIGKILL several
times, half of them while a checkpoint is written. When all processes have ended, they are started
again. Prints the seconds from each kill to a later checkpoint, and the largest difference between
all rows of the history and all final weights. It must be 0 on TensorFlow (with deterministic
operations), at most 1e-6 on JAX and PyTorch, and 1e-4 with two processes. Otherwise, it fails.

    KERAS_BACKEND=... python benchmarks/resume.py
    KERAS_BACKEND=torch python benchmarks/resume.py --processes=2  # or jax

Flags after `--` are passed to train.py. `--checkpoint` measures how long a checkpoint of a base
model delays training: copying model, optimizer and metrics, for which training waits, and writing
them in the background with checksums and syncs. The peer is `save_weights` of Keras, which
`BackupAndRestore` calls: training waits for it, and it has no checksums or syncs.
"""

import argparse
import math
import os
import pathlib
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import h5py
import numpy as np

from keras_spanbert import files

TRAIN = pathlib.Path(__file__).parent.parent / "train.py"
BACKEND = os.environ.get("KERAS_BACKEND", "tensorflow")
# Columns that differ from run to run.
TIMING = {"seconds", "tokens_per_second", "step_ms", "waiting_ms", "tflops_per_second", "peak_gb"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="for the moments and processes")
    parser.add_argument("--checkpoint", action="store_true", help="only time checkpoints")
    parser.add_argument("--size", default="base", help="of --checkpoint")
    parser.add_argument("flags", nargs="*", help="flags of train.py")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (time_checkpoints if args.checkpoint else train)(args, pathlib.Path(folder))


def train(args, folder):
    flags = args.flags or ["--steps=400", "--checkpoint_every=20", "--dropout=0.1"]
    moments = random.Random(args.seed)
    outputs = [folder / "uninterrupted", folder / "killed"]
    run = Run(outputs[0], flags, args.processes)
    run.has_passed(0)
    began = time.monotonic()
    run.wait_until(lambda: False)
    training = time.monotonic() - began

    run, delays, partial, newest = Run(outputs[1], flags, args.processes), [], 0, 0
    while len(delays) < args.kills and run.has_passed(newest):
        if len(delays) % 2:
            run.wait_until(run.is_writing)
        else:
            time.sleep(moments.uniform(0.0, 0.8 * training / args.kills))
        process = moments.choice(run.processes)
        process.send_signal(signal.SIGKILL)
        if process.wait() != -signal.SIGKILL:
            break  # It finished first.
        killed, newest, writing = time.monotonic(), run.newest(), run.is_writing()
        run.has_passed(newest)
        delays.append(time.monotonic() - killed)
        partial += writing
        print(f"killed after step {newest}: resumed in {delays[-1]:.1f} s", flush=True)
        newest = run.newest()
    run.wait_until(lambda: False)
    difference = compare(*outputs)
    print(
        f"{BACKEND}: killed {len(delays)} times, {partial} of them while a checkpoint was written"
    )
    if delays:
        print(f"delay: median {statistics.median(delays):.1f} s, maximum {max(delays):.1f} s")
    print(f"largest difference between histories and weights: {difference:.2g}")
    limit = 1e-4 if args.processes > 1 else 0.0 if BACKEND == "tensorflow" else 1e-6
    if not difference <= limit:
        sys.exit("The runs differ")


class Run:
    """Processes of one program. They start again when all have ended and one was killed."""

    def __init__(self, output, flags, count):
        self.output, self.flags, self.count = output, flags, count
        self.start()

    def start(self):
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            port = server.getsockname()[1]
        command = [sys.executable, str(TRAIN), "--resume", f"--output={self.output}", *self.flags]
        job = {"PYTHONPATH": str(TRAIN.parent), "TF_DETERMINISTIC_OPS": "1"}
        if self.count > 1:
            address, count = "127.0.0.1", str(self.count)
            job |= {"MASTER_ADDR": address, "MASTER_PORT": str(port), "WORLD_SIZE": count}
            job |= {"LOCAL_WORLD_SIZE": count, "KERAS_DISTRIBUTION_NUM_PROCESSES": count}
            job["KERAS_DISTRIBUTION_JOB_ADDRESSES"] = f"{address}:{port}"
        names = ["RANK", "LOCAL_RANK", "KERAS_DISTRIBUTION_PROCESS_ID"] * (self.count > 1)
        self.processes = [
            subprocess.Popen(
                command,
                env={**os.environ, **job, **dict.fromkeys(names, str(number))},
                stdout=subprocess.DEVNULL,
            )
            for number in range(self.count)
        ]

    def wait_until(self, condition) -> bool:
        """Waits until the condition holds. Returns `False` if the run has ended before."""
        while not condition():
            codes = [process.poll() for process in self.processes]
            if -signal.SIGKILL in codes and None not in codes:
                self.start()
            elif any(codes) and -signal.SIGKILL not in codes:
                sys.exit(f"train.py failed with exit codes {codes}")
            elif not any(codes) and None not in codes:
                return False
            time.sleep(1e-3)
        return True

    def has_passed(self, step: int) -> bool:
        """Waits for a checkpoint after `step`. Returns `False` if the run has ended before."""
        return self.wait_until(lambda: self.newest() > step)

    def newest(self) -> int:
        """Returns the step of the newest complete checkpoint, or 0."""
        steps = [path.name.removeprefix("step-") for path in self.output.glob("checkpoints/step-*")]
        return max((int(step) for step in steps if step.isdigit()), default=0)

    def is_writing(self) -> bool:
        return bool(list(self.output.glob("checkpoints/*.partial")))


def compare(uninterrupted, killed):
    """Returns the largest difference between the histories and weights of two runs."""
    largest = 0.0
    histories = [files.read_csv(run / "history.csv") for run in (uninterrupted, killed)]
    if len(histories[0]) != len(histories[1]):
        sys.exit(f"Rows of history: {len(histories[0])} and {len(histories[1])}")
    for mine, theirs in zip(*histories):
        for name in mine.keys() - TIMING:
            largest = np.maximum(largest, abs(float(mine[name]) - float(theirs[name])))
    for path in uninterrupted.glob("*.weights.h5"):
        mine, theirs = weights(path), weights(killed / path.name)
        for name, array in mine.items():
            difference = np.abs(array - theirs[name].astype("float64"))
            largest = np.maximum(largest, difference.max(initial=0.0))  # Keeps NaN.
    return largest


def weights(path):
    arrays = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: arrays.update({name: item[()]} if hasattr(item, "dtype") else {})
        )
    return arrays


def time_checkpoints(args, folder):
    import keras

    import keras_spanbert as ks

    model = ks.SpanBertPretrainer(
        ks.SpanBertBackbone(28996, **ks.SpanBertBackbone.SIZES[args.size])
    )
    model.compile()
    model.optimizer.build(model.trainable_variables)
    variables = [*model.variables, *model.optimizer.variables]
    size = 4 * sum(math.prod(variable.shape) for variable in variables)
    checkpoint = ks.TrainingCheckpoint(str(folder / "checkpoints"), 1, keep=1)
    checkpoint.set_model(model)
    checkpoint.set_params({"steps": 1000})
    calls = {
        "training waits": checkpoint.save,
        "written in the background": checkpoint.wait,
        "save_weights, training waits": lambda: model.save_weights(str(folder / "peer.weights.h5")),
    }
    best = dict.fromkeys(calls, math.inf)
    for step in range(3):
        checkpoint.step = step + 1
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - began)
    checkpoint.close()
    print(f"{keras.backend.backend()}, {args.size}: {size / 1e9:.2f} GB")
    for name, seconds in best.items():
        print(f"{seconds:6.2f} s {name}")


if __name__ == "__main__":
    main()
