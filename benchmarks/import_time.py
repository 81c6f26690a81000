"""What does `import keras_spanbert` add to `import keras_hub`?

Seconds in fresh processes, the two in turns, on the backend of KERAS_BACKEND (TensorFlow unless
set). The difference of two long times is noisy: the last row times both imports in one process.

    python benchmarks/import_time.py
    KERAS_BACKEND=jax python benchmarks/import_time.py

Limited by Python's work on this package's own modules: keras-hub has imported the rest.
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

    seconds(OURS)  # From here on the files are in the disk cache.
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
    print(f"beyond the peer: {ours - peer:.3f} s (target < 0.5)")
    print(f"beyond the peer, in one process: {after_peer:.3f} s (target < 0.5)")


def seconds(code):
    child = subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True
    )
    return float(child.stdout.split()[-1])


if __name__ == "__main__":
    main()
