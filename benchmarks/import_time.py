"""What does `import keras_spanbert` add to `import keras_hub`?

Measures both imports in fresh processes, in turns, on KERAS_BACKEND (default: TensorFlow). As the
difference of two long times is noisy, the last row measures the import of keras_spanbert after
keras_hub in the same process.

    python benchmarks/import_time.py
    KERAS_BACKEND=jax python benchmarks/import_time.py

The limit is the import of the modules of this package: keras-hub has imported the others.
"""

import argparse
import os
import statistics
import subprocess
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

TIMED_IMPORT = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
OURS, PEER = TIMED_IMPORT.format("keras_spanbert"), TIMED_IMPORT.format("keras_hub")
AFTER_PEER = "import keras_hub; " + OURS


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()

    seconds(OURS)  # Reads the files into the disk cache.
    times = {code: [] for code in [OURS, PEER, AFTER_PEER]}
    for _ in range(args.repeats):
        for code, values in times.items():
            values.append(seconds(code))
    ours, peer, after_peer = (statistics.median(values) for values in times.values())

    print(f"KERAS_BACKEND={os.environ['KERAS_BACKEND']}")
    print(f"{'import':<34}{'seconds':>9}{'ratio to peer':>15}")
    for name, value in [
        ("keras_spanbert", ours),
        ("keras_hub (peer)", peer),
        ("keras_spanbert after keras_hub", after_peer),
    ]:
        print(f"{name:<34}{value:>9.3f}{value / peer:>15.3f}")
    print(f"ratio ours/peer: {ours / peer:.3f}")
    print(f"added to the peer: {ours - peer:.3f} s (target < 0.5)")
    print(f"added to the peer, in one process: {after_peer:.3f} s (target < 0.5)")


def seconds(code):
    child = subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True
    )
    return float(child.stdout.split()[-1])


if __name__ == "__main__":
    main()
