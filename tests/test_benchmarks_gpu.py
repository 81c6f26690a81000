"""The GPU benchmark runs on a CPU without TensorFlow."""

import os

import pytest
from processes import ROOT, run_python

PROGRAM = ROOT / "benchmarks" / "gpu.py"


@pytest.mark.long
def test_kernels_are_measured_without_tensorflow(tmp_path):
    pytest.importorskip("torch")
    # Imported by every Python process at startup.
    hide = "import sys; sys.modules.update(tensorflow=None, tensorflow_text=None)"
    (tmp_path / "sitecustomize.py").write_text(hide)
    path = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    options = ["--size=tiny", "--length=16", "--batch_size=1", "--steps=1"]
    options += ["--device=cpu", "--part=5", "--library=torch"]
    out, _ = run_python(PROGRAM, *options, PYTHONPATH=os.pathsep.join(path))
    _, part, case, *kernels = out.splitlines()
    assert part == "5. slowest kernels" and "ms in kernels" in case
    assert 0 < len(kernels) <= 15 and float(kernels[0].split(" ms")[0]) > 0
