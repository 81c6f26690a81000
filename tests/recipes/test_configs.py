"""The recipes in configs/: they parse, start and train."""

import csv
import json

import numpy as np
import pytest
from train_script import ROOT, in_process

pytestmark = pytest.mark.usefixtures("one_layer", "untraced")

RECIPES = sorted(path.name for path in ROOT.glob("configs/*.cfg"))
SMALL = [
    "--size=tiny", "--vocabulary_size=200", "--sequence_length=16", "--batch_size=4", "--steps=8",
    "--warmup_steps=2", "--eval_every=4", "--eval_steps=2", "--held_out=0.2",
    "--gradient_accumulation=2",
]  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(RECIPES[0], marks=pytest.mark.traced), *RECIPES[1:]])
def test_recipe_trains_some_steps_at_a_small_size(name, texts, tmp_path):
    output = tmp_path / "run"
    flags = [f"--flagfile={ROOT / 'configs' / name}", f"--train_data={texts}", *SMALL]
    in_process(*flags, f"--output={output}")
    assert json.loads((output / "metrics.json").read_text())["steps"] == 8
    with open(output / "history.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["4", "8"]
    assert rows[0]["val_mlm_cross_entropy"] != rows[1]["val_mlm_cross_entropy"]
    for row in rows:
        assert np.isfinite(float(row["loss"])) and float(row["step_ms"]) > 0
        assert float(row["tflops_per_second"]) > 0 and float(row["peak_gb"]) > 0
        assert 0 <= float(row["waiting_ms"]) <= float(row["step_ms"]) + 1


@pytest.mark.parametrize(
    ("name", "updates", "blocks"),
    [
        ("spanbert_base.cfg", 2_400_000, 256),
        ("spanbert_large.cfg", 2_400_000, 256),
        ("roberta_base.cfg", 500_000, 8192),
    ],
)
def test_recipe_makes_the_published_number_of_updates_of_that_many_blocks(name, updates, blocks):
    lines = (ROOT / "configs" / name).read_text().splitlines()
    flags = dict(line.split("=", 1) for line in lines if line.startswith("--") and "=" in line)
    batches = int(flags.get("--gradient_accumulation", 1))
    assert int(flags["--steps"]) == updates * batches
    assert int(flags["--batch_size"]) * batches == blocks
    warmup = {8192: 24_000, 256: 10_000}[blocks]
    assert int(flags["--warmup_steps"]) == warmup * batches
