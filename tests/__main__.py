"""Runs the tests on every backend, in five jobs, two at a time.

    python -m tests                     all tests but those marked `long`
    python -m tests --long              the tests marked `long`
    python -m tests --gpu               tests for a GPU on PyTorch and JAX, without TensorFlow
    python -m tests tests/layers -x     arguments for pytest, one job per backend

Each job is a process of pytest. It prints its output when it ends.
"""

import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parent.parent
BACKENDS = ("tensorflow", "jax", "torch")
# Most tests use a single thread.
SLOTS = 2
# Tests that start runs, processes or exports. They take as long as all others.
RUNS = ("tests/distribution", "tests/recipes", "tests/serving", "tests/runs")
# Tests of the documentation, which run its examples.
DOCS = ("tests/test_docs.py",)
PATHS = {
    "docs": DOCS,
    "runs": RUNS,
    "runs, docs": (*RUNS, *DOCS),
    "all": tuple(f"--ignore={path}" for path in DOCS),
    "all others": tuple(f"--ignore={path}" for path in (*DOCS, *RUNS)),
}
# The longest jobs start first, so that both slots end at about the same time.
ORDER = {
    "not long": [  # Each job imports the libraries, for 10 to 20 seconds.
        ("all others", ["tensorflow", "torch"]),
        ("all", ["jax"]),
        ("runs, docs", ["torch"]),
        ("runs", ["tensorflow"]),
    ],
    "long": [
        ("docs", ["torch"]),
        ("all others", ["tensorflow", "torch"]),
        ("runs", ["torch", "jax", "tensorflow"]),
        ("all others", ["jax"]),
    ],
}
# Lets the jobs share a GPU and the cores.
SHARING = {
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    # In tests, compilation takes longer than computation.
    "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    " --xla_cpu_use_fusion_emitters=false",
}
GPU = (
    "tests/gpu", "tests/layers/test_attention.py", "tests/layers/test_jax_flash_attention.py",
    "tests/models/test_torch_step.py", "tests/tasks/coreference/test_waits.py",
    "-p", "tests.no_tensorflow",
)  # fmt: skip
NOTHING_COLLECTED = 5  # Exit code of pytest if no test is selected on this backend.


class Job(NamedTuple):
    """One process of pytest."""

    backend: str
    name: str
    arguments: tuple[str, ...]

    def __str__(self):
        return f"KERAS_BACKEND={self.backend} {self.name}".rstrip()


def jobs(arguments: list[str]) -> list[Job]:
    """Returns the jobs for the command-line arguments."""
    if arguments == ["--gpu"]:
        return [Job(backend, "gpu", GPU) for backend in ("torch", "jax")]
    if arguments not in ([], ["--long"]):
        return [Job(backend, "", tuple(arguments)) for backend in BACKENDS]
    marked = "long" if arguments else "not long"
    return [
        Job(backend, f"{name}, {marked}", (*PATHS[name], "-m", marked))
        for name, backends in ORDER[marked]
        for backend in backends
    ]


def main(arguments: list[str]) -> int:
    """Runs the jobs and returns the exit code, 1 if one failed."""
    began, failed = time.monotonic(), []
    with tempfile.TemporaryDirectory() as compiled:  # Shared by all tests and child processes.
        pool = concurrent.futures.ThreadPoolExecutor(SLOTS)
        try:
            running = {pool.submit(run, job, compiled): job for job in jobs(arguments)}
            for done in concurrent.futures.as_completed(running):
                code, seconds, output = done.result()
                print(f"=== {running[done]}: {seconds:.0f} s\n{output}", flush=True)
                if code not in (0, NOTHING_COLLECTED):
                    failed.append(str(running[done]))
        finally:
            pool.shutdown(cancel_futures=True)
    print(f"=== {time.monotonic() - began:.0f} s in total", flush=True)
    if failed:
        print(f"Failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def run(job: Job, compiled: str) -> tuple[int, float, str]:
    """Runs a job. Returns its exit code, seconds and output."""
    print(f"=== {job}: started\n", end="", flush=True)  # In one piece, as jobs start together.
    began = time.monotonic()
    variables = {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_COMPILATION_CACHE_DIR": compiled}
    # Otherwise JAX computes products of float32 in TF32 on a GPU.
    variables["JAX_DEFAULT_MATMUL_PRECISION"] = "highest"
    if job.arguments == GPU:
        variables["XLA_FLAGS"] = ""  # The compiler for GPUs knows other flags.
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--durations=40", *job.arguments],
        cwd=ROOT, env={**os.environ, **SHARING, **variables, "KERAS_BACKEND": job.backend},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    return done.returncode, time.monotonic() - began, done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
