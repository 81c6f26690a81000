"""The benchmark for a GPU runs through on a CPU, where TensorFlow is not installed."""

import json
import os
import pathlib
import runpy
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).parent.parent / "benchmarks" / "gpu.py"
OPTIONS = ["--size=tiny", "--length=16", "--batch_size=1", "--steps=1"]


def run(folder, *options):
    # Read by every Python process before its first import.
    hide = "import sys; sys.modules.update(tensorflow=None, tensorflow_text=None)"
    (folder / "sitecustomize.py").write_text(hide)
    path = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, str(PROGRAM), f"--results={folder}/rows.jsonl", *OPTIONS, *options],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(folder):
    return [json.loads(text) for text in (folder / "rows.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_part_is_measured_once_without_tensorflow(tmp_path):
    pytest.importorskip("torch")
    options = ["--device=cpu", "--part=5", "--library=torch"]
    run(tmp_path, *options)
    (row,) = found = rows(tmp_path)
    assert row["case"]["library"] == "torch" and row["versions"]["keras"]
    assert 0 < len(row["kernels"]) <= 15 and row["kernels"][0]["ms"] > 0
    run(tmp_path, *options)
    assert rows(tmp_path) == found


def test_without_a_gpu_it_says_so(tmp_path, monkeypatch, capsys):
    program = runpy.run_path(str(PROGRAM))
    monkeypatch.setattr(sys, "argv", ["gpu.py", f"--results={tmp_path}/rows.jsonl"])
    monkeypatch.setitem(program["main"].__globals__, "gpu_name", lambda: None)
    program["main"]()
    assert capsys.readouterr().out.startswith("No GPU is here: nothing was measured")
    assert not (tmp_path / "rows.jsonl").exists()
