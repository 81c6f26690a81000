"""How long does a checkpoint delay training?

Measures a checkpoint of a base model: copying the model, optimizer and metrics, for which training
waits, and writing them in the background, with checksums and syncs. The peer is `save_weights` of
Keras, which `BackupAndRestore` calls: training waits for it, and it has no checksums or syncs.

    python benchmarks/checkpoint.py

On JAX, several processes can share the model. They gather it, and the first one writes it.

    KERAS_BACKEND=jax python benchmarks/checkpoint.py --processes=2

The limits are the speed of memory and of the disk.
"""

import argparse
import math
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras  # noqa: E402

import keras_spanbert as ks  # noqa: E402
from keras_spanbert import distribution  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="base")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1, help="number of processes (JAX)")
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.folder:
        ks.distribute("model")
        return measure(args, args.folder)
    with tempfile.TemporaryDirectory() as folder:
        if args.processes == 1:
            return measure(args, folder)
        start(args.processes, [*sys.argv, f"--folder={folder}"])


def start(count, command):
    """Starts this script in several processes that train together."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{server.getsockname()[1]}"
    job = {
        **os.environ,
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": address,
        "KERAS_DISTRIBUTION_NUM_PROCESSES": str(count),
    }
    numbers = ({"KERAS_DISTRIBUTION_PROCESS_ID": str(i)} for i in range(count))
    processes = [subprocess.Popen([sys.executable, *command], env=job | i) for i in numbers]
    if any([process.wait() for process in processes]):
        sys.exit("A process failed")


def measure(args, folder):
    backbone = ks.SpanBertBackbone(28996, **ks.SpanBertBackbone.SIZES[args.size])
    model = ks.SpanBertPretrainer(backbone)
    model.compile()
    model.optimizer.build(model.trainable_variables)
    variables = [*model.variables, *model.optimizer.variables]
    size = 4 * sum(math.prod(variable.shape) for variable in variables)

    copies, writes, peers = [], [], []
    checkpoint = ks.TrainingCheckpoint(os.path.join(folder, "checkpoints"), 1, keep=1)
    checkpoint.set_model(model)
    checkpoint.set_params({"steps": 1000})
    for step in range(args.repeats):
        checkpoint.step = step + 1
        distribution.barrier()
        began = time.perf_counter()
        checkpoint.save()
        copied = time.perf_counter()
        checkpoint.wait()
        written = time.perf_counter()
        distribution.barrier()
        if args.processes == 1:
            saves = time.perf_counter()
            model.save_weights(os.path.join(folder, "peer.weights.h5"))
            peers.append(time.perf_counter() - saves)
        copies.append(copied - began)
        writes.append(written - copied)
    checkpoint.close()
    if distribution.process_index():
        return
    print(f"{keras.backend.backend()}, {args.size}: {size / 1e9:.2f} GB")
    for path in sorted(pathlib.Path(checkpoint.newest).glob("*.npz")):
        print(f"{path.stat().st_size / 1e9:6.2f} GB {path.name}")
    print(f"{min(copies):6.2f} s training waits")
    print(f"{min(writes):6.2f} s written in the background, {size / min(writes) / 1e6:,.0f} MB/s")
    if peers:
        ratio = min(peers) / min(copies)
        print(f"{min(peers):6.2f} s save_weights (peer), training waits: {ratio:.1f}")


if __name__ == "__main__":
    main()
