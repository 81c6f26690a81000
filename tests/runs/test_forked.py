"""A forked process begins with the library loaded, and goes and ends like a new one."""

import os
import signal
import subprocess
import sys

import pytest
from forked import Forked

BEGINS = "import os, sys\nassert 'keras_spanbert.models.task' in sys.modules\n"


def run(code, *arguments, **kwargs):
    command = [sys.executable, "-c", BEGINS + code, *arguments]
    return subprocess.run(command, text=True, timeout=60, **kwargs)


@pytest.fixture(autouse=True)
def forked(monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", Forked)


def test_process_is_as_a_new_one(tmp_path):
    code = (
        "import atexit, threading, time\n"
        "print(sys.argv[1:], os.getcwd(), os.environ['A'], 'HOME' in os.environ)\n"
        "print(os.getsid(0) == os.getpid(), file=sys.stderr)\n"
        "atexit.register(print, 'at exit')\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()\n"
        "sys.exit('told')\n"
    )
    environment = {"A": "1", "KERAS_BACKEND": os.environ["KERAS_BACKEND"]}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    done = run(code, "b", cwd=tmp_path, env=environment, start_new_session=True, **pipes)
    assert done.stdout == f"['b'] {tmp_path} 1 False\nthread\nat exit\n"
    assert (done.returncode, done.stderr) == (1, "True\ntold\n")


def test_output_goes_where_it_is_sent(capfd):
    code = "print('out', flush=True); print('err', file=sys.stderr)"
    assert run(code).returncode == 0
    assert capfd.readouterr() == ("out\n", "err\n")
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    assert run(f"{code}\nprint('x' * 100_000)", **both).stdout == f"out\nerr\n{'x' * 100_000}\n"


@pytest.mark.parametrize(
    ("code", "returncode"),
    [
        ("sys.exit(5)", 5),
        ("raise OSError('full')", 1),
        ("os._exit(7)", 7),
        ("os.kill(os.getpid(), 15)", -signal.SIGTERM),
    ],
)
def test_exit_codes(code, returncode):
    done = run(code, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == returncode
    assert ("OSError: full" in done.stderr) == (returncode == 1)


def test_process_that_takes_too_long_is_killed():
    process = Forked([sys.executable, "-c", "import time; time.sleep(600)"], stdout=-1)
    with pytest.raises(subprocess.TimeoutExpired):
        process.communicate(timeout=0.2)
    assert process.wait(60) == -signal.SIGKILL
