"""Runs the tests on every backend: six jobs, two at a time, the longest first.

    python -m tests                     all there is to test, on every backend
    python -m tests --fast              without slow tests, on one backend
    python -m tests tests/layers -x     arguments for pytest, a job a backend

`--fast` takes the backend that KERAS_BACKEND names, TensorFlow by default.
"""

import collections
import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parent.parent
BACKENDS = ("tensorflow", "jax", "torch")
# Much of a test is one thread's work.
SLOTS = 2
# The folders whose tests start runs, processes or exports take as long as all others.
RUNS = ("tests/distribution", "tests/recipes", "tests/serving", "tests/runs")
OTHERS = tuple(f"--ignore={folder}" for folder in RUNS)
# So that they can share a GPU, and the cores: what is computed is tiny.
SHARING = {
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    # Compiling takes longer than computing here.
    "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    " --xla_cpu_use_fusion_emitters=false",
}
NOTHING_COLLECTED = 5  # The exit code of pytest, where all that was asked for runs once.


@dataclasses.dataclass(frozen=True)
class Job:
    """One process of pytest."""

    backend: str
    name: str
    arguments: tuple[str, ...]

    def __str__(self):
        return f"KERAS_BACKEND={self.backend} {self.name}".rstrip()


# By the time each takes, the longest first.
ALL = (
    Job("tensorflow", "all others", OTHERS),
    Job("jax", "all others", OTHERS),
    Job("torch", "all others", OTHERS),
    Job("jax", "runs", RUNS),
    Job("tensorflow", "runs", RUNS),
    Job("torch", "runs", RUNS),
)


def jobs(arguments: list[str]) -> tuple[Job, ...]:
    """The processes to start for arguments of the command line."""
    if "--fast" in arguments:
        rest = tuple(argument for argument in arguments if argument != "--fast")
        backend = os.environ.get("KERAS_BACKEND", "tensorflow")
        return (Job(backend, "without slow tests", ("-m", "not slow", *rest)),)
    if arguments:
        return tuple(Job(backend, "", tuple(arguments)) for backend in BACKENDS)
    return ALL


def main(arguments: list[str]) -> int:
    """Runs the jobs, and returns the exit code: 1 where one failed."""
    began = time.monotonic()
    waiting = collections.deque(jobs(arguments))
    alone = len(waiting) == 1
    running, failed = {}, []
    with tempfile.TemporaryDirectory() as folder:
        # Many tests, in processes of their own too, compile the same.
        compiled = os.path.join(folder, "compiled")
        while waiting or running:
            while waiting and len(running) < SLOTS:
                job = waiting.popleft()
                output = None if alone else open(os.path.join(folder, str(len(waiting))), "w+")
                running[job] = start(job, output, compiled), output, time.monotonic()
                print(f"=== {job}: started", flush=True)
            job = wait(running)
            process, output, started = running.pop(job)
            if process.returncode not in (0, NOTHING_COLLECTED):
                failed.append(str(job))
            print(f"=== {job}: {time.monotonic() - started:.0f} s", flush=True)
            if output:
                output.seek(0)
                print(output.read(), flush=True)
                output.close()
    print(f"=== {time.monotonic() - began:.0f} s in all", flush=True)
    if failed:
        print(f"Failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def start(job, output, compiled):
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "--durations=40", *job.arguments],
        cwd=ROOT,
        env={
            **os.environ,
            **SHARING,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "JAX_COMPILATION_CACHE_DIR": compiled,
            "KERAS_BACKEND": job.backend,
        },
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
    )


def wait(running):
    """The first of the running jobs to end."""
    while True:
        for job, (process, *_) in running.items():
            if process.poll() is not None:
                return job
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
