"""The GPU benchmark runs on a CPU without TensorFlow."""

import os
import pathlib
import runpy
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).parent.parent / "benchmarks" / "gpu.py"


@pytest.mark.long
def test_kernels_are_measured_without_tensorflow(tmp_path):
    pytest.importorskip("torch")
    # Imported by every Python process at startup.
    hide = "import sys; sys.modules.update(tensorflow=None, tensorflow_text=None)"
    (tmp_path / "sitecustomize.py").write_text(hide)
    path = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    options = ["--size=tiny", "--length=16", "--batch_size=1", "--steps=1"]
    done = subprocess.run(
        [sys.executable, PROGRAM, *options, "--device=cpu", "--part=5", "--library=torch"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    _, part, case, *kernels = done.stdout.splitlines()
    assert part == "5. slowest kernels" and "ms in kernels" in case
    assert 0 < len(kernels) <= 15 and float(kernels[0].split(" ms")[0]) > 0


def test_message_without_a_gpu(monkeypatch, capsys):
    program = runpy.run_path(str(PROGRAM))
    monkeypatch.setattr(sys, "argv", ["gpu.py"])
    monkeypatch.setitem(program["main"].__globals__, "gpu_name", lambda: None)
    program["main"]()
    assert capsys.readouterr().out.startswith("No GPU was found, nothing was measured")
