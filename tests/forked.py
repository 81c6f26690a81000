"""Python processes for tests that start with the library already imported.

In most tests, importing takes longer than the rest of the process. Each pytest process therefore
has a server that imports the library once, initialises no backend, and is forked for each process.
The difference from a new process is that environment variables which are read during import, like
`JAX_...` and `TF_CPP_MIN_LOG_LEVEL`, have the values of the server.
"""

import atexit
import concurrent.futures
import multiprocessing.forkserver
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile
import threading
from multiprocessing.connection import Connection

import keras
import pytest

ROOT = pathlib.Path(__file__).parent.parent
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["keras_spanbert.recipes.fit"])


class Forked:
    """The parts of `subprocess.Popen` that tests use, for a script or `-c` with code."""

    def __init__(
        self, command, cwd=ROOT, env=None, stdout=None, stderr=None, text=True,
        start_new_session=False,
    ):  # fmt: skip
        env = dict(os.environ if env is None else env)
        assert env.setdefault("KERAS_BACKEND", "tensorflow") == keras.backend.backend() and text
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(ROOT)
            patch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
            multiprocessing.forkserver.ensure_running()
        out, err = os.dup(1), os.dup(2)
        if stdout == subprocess.PIPE:
            reader, writer = os.pipe()
            self.stdout = open(reader)
            os.dup2(writer, out)
            os.close(writer)
        if stderr == subprocess.PIPE:
            self.stderr = tempfile.TemporaryFile("w+")  # Read only at the end.
            os.dup2(self.stderr.fileno(), err)
        elif stderr == subprocess.STDOUT:
            os.dup2(out, err)
        pipes = Connection(out), Connection(err)
        script = command[2:] if command[1] == "-P" else command[1:]
        arguments = script, str(cwd), env, start_new_session, *pipes
        self._process = CONTEXT.Process(target=_run, args=arguments)
        self._process.start()
        for pipe in pipes:
            pipe.close()
        self.args, self.pid, self.kill = command, self._process.pid, self._process.kill

    stdout = stderr = _outputs = None
    returncode = property(lambda self: self._process.exitcode)

    def poll(self):
        return self.returncode

    def wait(self, timeout=None):
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def communicate(self, input=None, timeout=None):
        if self._outputs is None:
            with self, concurrent.futures.ThreadPoolExecutor() as pool:
                out = pool.submit(self.stdout.read) if self.stdout else None
                try:
                    self.wait(timeout)
                except subprocess.TimeoutExpired:
                    self.kill()
                    raise
                if self.stderr:
                    self.stderr.seek(0)
                self._outputs = out and out.result(), self.stderr and self.stderr.read()
        return self._outputs

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.wait()
        for file in filter(None, [self.stdout, self.stderr]):
            file.close()


def _run(arguments, cwd, environment, start_new_session, out, err):
    """Runs the script in the child process, and shuts down like Python."""
    if start_new_session:
        os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    out.close()
    err.close()
    sys.stdout, sys.stderr = open(1, "w"), open(2, "w", buffering=1)
    try:
        if arguments[0] == "-c":
            sys.argv = ["-c", *arguments[2:]]
            exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = arguments
            runpy.run_path(arguments[0], run_name="__main__")
    finally:
        # Before Python 3.14, multiprocessing skips this. It handles exceptions and the exit code.
        threading._shutdown()
        atexit._run_exitfuncs()
