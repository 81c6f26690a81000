"""docs/tour.ipynb runs and has its outputs. `python docs/run_tour.py` renews them."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
CELLS = [
    cell
    for cell in json.loads((ROOT / "docs" / "tour.ipynb").read_text())["cells"]
    if cell["cell_type"] == "code"
]


@pytest.mark.once
def test_tour_has_outputs_without_warnings_and_paths():
    assert sum(bool(cell["outputs"]) for cell in CELLS) >= 8
    text = json.dumps([cell["outputs"] for cell in CELLS])
    assert not re.search(r"stderr|Warning|/home/|/root/|site-packages", text)


@pytest.mark.long
@pytest.mark.once("torch")
def test_tour_runs_and_prints_the_same_answers():
    code = "\n".join("".join(cell["source"]) for cell in CELLS)
    assert "STEPS, EPOCHS = 10, 10" in code
    code = code.replace("STEPS, EPOCHS = 10, 10", "STEPS, EPOCHS = 6, 2")
    code = code.replace("warmup_steps=10", "warmup_steps=2")
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    printed = "".join(
        text for cell in CELLS for output in cell["outputs"] for text in output.get("text", [])
    )
    # Scores may differ in the last digit.
    without_scores = re.compile(r"-?\d+\.\d+|\d+%")
    assert without_scores.sub("", run.stdout) == without_scores.sub("", printed)
