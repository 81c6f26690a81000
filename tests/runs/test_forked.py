"""A forked process starts with the library loaded, and runs and ends like a new one."""

import os
import subprocess
import sys

from forked import Forked


def test_process_is_like_a_new_one(tmp_path, monkeypatch):
    code = (
        "import atexit, os, sys, threading, time\n"
        "assert 'keras_spanbert.models.task' in sys.modules\n"
        "print(sys.argv[1:], os.getcwd(), os.environ['A'], 'HOME' in os.environ)\n"
        "print(os.getsid(0) == os.getpid(), file=sys.stderr)\n"
        "atexit.register(print, 'at exit')\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()\n"
        "sys.exit('told')\n"
    )
    monkeypatch.setattr(subprocess, "Popen", Forked)
    done = subprocess.run(
        [sys.executable, "-c", code, "b"],
        cwd=tmp_path,
        env={"A": "1", "KERAS_BACKEND": os.environ["KERAS_BACKEND"]},
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == f"['b'] {tmp_path} 1 False\nthread\nat exit\n"
    assert (done.returncode, done.stderr) == (1, "True\ntold\n")
