"""The recipes in configs/: they parse, start and train."""

import csv
import json
import pathlib
import re

import numpy as np
import pytest
from train_script import ROOT, in_process

pytestmark = pytest.mark.usefixtures("one_layer", "untraced")

RECIPES = sorted(str(p.relative_to(ROOT / "configs")) for p in ROOT.glob("configs/**/*.cfg"))
SMALL = [
    "--size=tiny", "--vocabulary_size=200", "--sequence_length=16", "--batch_size=4", "--steps=8",
    "--warmup_steps=2", "--eval_every=4", "--eval_steps=2", "--held_out=0.2",
    "--gradient_accumulation=2",
]  # fmt: skip


def with_spans(texts, folder):
    """The same texts as JSON lines, the first word of each sentence marked."""
    for path in sorted(pathlib.Path(texts).parent.glob("*.txt")):
        text = path.read_text()
        words = [match.span() for match in re.finditer("[A-Z][a-z]+", text)]
        line = {"text": text, "spans": {"entity": words, "noun_phrase": words}}
        (folder / f"{path.stem}.jsonl").write_text(json.dumps(line))
    return str(folder / "*.jsonl")


def is_traced(name):
    marks = [pytest.mark.traced] if name == "roberta_base.cfg" else []
    return pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", map(is_traced, RECIPES))
def test_recipe_trains_some_steps_at_a_small_size(name, texts, tmp_path):
    output = tmp_path / "run"
    flagfile = ROOT / "configs" / name
    if "--scheme=entity" in flagfile.read_text() or "--scheme=noun_phrase" in flagfile.read_text():
        texts = with_spans(texts, tmp_path)
    flags = [f"--flagfile={flagfile}", f"--train_data={texts}", *SMALL]
    in_process(*flags, f"--output={output}")
    assert json.loads((output / "metrics.json").read_text())["steps"] == 8
    with open(output / "history.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["4", "8"]
    assert rows[0]["val_mlm_cross_entropy"] != rows[1]["val_mlm_cross_entropy"]
    wanted = re.search("--objectives=(.*)", (ROOT / "configs" / name).read_text())
    wanted = set(wanted[1].split(",") if wanted else ["mlm", "sbo"])
    assert {o for o in ["mlm", "sbo", "nsp"] if f"val_{o}_accuracy" in rows[0]} == wanted
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
        *((name, 1_200_000, 256) for name in RECIPES if name.startswith("ablation/")),
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


def test_ablations_differ_from_the_published_recipe_in_what_their_tables_compare():
    def flags_of(name):
        lines = (ROOT / "configs" / name).read_text().splitlines()
        return {line for line in lines if line.startswith("--")}

    base = flags_of("spanbert_base.cfg")
    names = [name for name in RECIPES if name.startswith("ablation/")]
    assert len(names) == 8
    for name in names:
        differing = {line.split("=")[0] for line in flags_of(name) ^ base}
        assert differing <= {"--steps", "--scheme", "--objectives", "--replacement"}, name
        assert ("--objectives=mlm,nsp" in flags_of(name)) == ("single" not in name)
