"""docs/tour.ipynb runs and has its outputs. `python docs/run_tour.py` renews them."""

import json
import re

import pytest
from processes import ROOT, run_python

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
    out, _ = run_python("-c", code, MPLBACKEND="agg")
    printed = "".join(
        text for cell in CELLS for output in cell["outputs"] for text in output.get("text", [])
    )
    # Scores may differ in the last digit.
    without_scores = re.compile(r"-?\d+\.\d+|\d+%")
    assert without_scores.sub("", out) == without_scores.sub("", printed)
