"""The recipes in configs/: they parse, start and train."""

import csv
import json

import keras
import numpy as np
import pytest
from train_script import ROOT, in_process

RECIPES = sorted(path.name for path in ROOT.glob("configs/*.cfg"))
WORDS = "apple berry cherry grape lemon mango melon olive peach plum".split()
SMALL = [
    "--size=tiny", "--vocabulary_size=200", "--sequence_length=16", "--batch_size=4", "--steps=20",
    "--warmup_steps=4", "--eval_every=10", "--eval_steps=2", "--held_out=0.2",
]  # fmt: skip


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    generator = np.random.default_rng(0)
    for i in range(10):
        (folder / f"{i}.txt").write_text(" ".join(generator.choice(WORDS, 90)))
    return str(folder / "*.txt")


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="what flags do is the same on each backend"
)
@pytest.mark.parametrize("name", RECIPES)
def test_recipe_trains_20_steps_at_a_small_size(name, texts, tmp_path, train):
    output = tmp_path / "run"
    flags = [f"--flagfile={ROOT / 'configs' / name}", f"--train_data={texts}", *SMALL]
    in_process(train, *flags, f"--output={output}")
    assert json.loads((output / "metrics.json").read_text())["steps"] == 20
    with open(output / "history.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["10", "20"]
    for row in rows:
        assert np.isfinite(float(row["loss"])) and float(row["step_ms"]) > 0
        assert 0 < float(row["flops_utilization"]) < 1 and float(row["peak_gb"]) > 0
        assert 0 <= float(row["waiting_ms"]) <= float(row["step_ms"]) + 1


def test_recipes_are_the_published_ones():
    assert RECIPES == [
        "roberta_base.cfg", "single_gpu_24h.cfg", "sotu_tiny.cfg", "spanbert_base.cfg",
        "spanbert_large.cfg",
    ]  # fmt: skip
