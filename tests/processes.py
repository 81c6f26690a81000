"""New Python processes, for tests of what happens from the start."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent


def run_python(*arguments, code=0, cwd=ROOT, **environment):
    """Runs Python with arguments, checks its exit code, and returns its stdout and stderr."""
    inherited = {k: v for k, v in os.environ.items() if environment.get(k, "") is not None}
    given = {k: v for k, v in environment.items() if v is not None}
    command, env = [sys.executable, *map(str, arguments)], {**inherited, **given}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr
