"""Runs the tests on every backend, each in a process of its own, side by side."""

import os
import pathlib
import subprocess
import sys
import tempfile

BACKENDS = ("tensorflow", "jax", "torch")
# Where no backend computes: readers of files, good and bad, scores, and a page in a browser.
ONCE = (
    "tests/data",
    "tests/metrics",
    "tests/checkpoints/test_sources.py",
    "tests/test_demo.py",
)
# So that they can share a GPU, and the cores: what is computed is tiny.
SHARING = {
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}


def main(arguments):
    root = pathlib.Path(__file__).parent.parent
    command = [sys.executable, "-m", "pytest", "-q", "--durations=5", *arguments]
    environment = {**os.environ, **SHARING, "TF_CPP_MIN_LOG_LEVEL": "3"}
    with tempfile.TemporaryDirectory() as folder:
        # Many tests, in processes of their own too, compile the same.
        environment["JAX_COMPILATION_CACHE_DIR"] = f"{folder}/compiled"
        runs = {}
        for backend in BACKENDS:
            # Much of a test is one thread's work. The first one is shown as it goes.
            shown = None if backend == BACKENDS[0] else open(f"{folder}/{backend}", "w+")
            runs[backend] = (
                shown,
                subprocess.Popen(
                    [*command, *([f"--ignore={name}" for name in ONCE] if shown else [])],
                    cwd=root,
                    env={**environment, "KERAS_BACKEND": backend},
                    stdout=shown,
                    stderr=subprocess.STDOUT if shown else None,
                ),
            )
        failed = []
        for backend, (shown, process) in runs.items():
            print(f"=== KERAS_BACKEND={backend}", flush=True)
            if process.wait():
                failed.append(backend)
            if shown:
                shown.seek(0)
                print(shown.read(), flush=True)
                shown.close()
    if failed:
        print(f"Failed on: {', '.join(failed)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
