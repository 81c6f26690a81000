"""Runs the tests on every backend, each in a process of its own."""

import os
import pathlib
import subprocess
import sys

BACKENDS = ("tensorflow", "jax", "torch")


def main(arguments):
    root = pathlib.Path(__file__).parent.parent
    failed = []
    for backend in BACKENDS:
        print(f"=== KERAS_BACKEND={backend}", flush=True)
        command = [sys.executable, "-m", "pytest", "-q", "--durations=5", *arguments]
        environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
        if subprocess.run(command, cwd=root, env=environment).returncode:
            failed.append(backend)
    if failed:
        print(f"Failed on: {', '.join(failed)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
