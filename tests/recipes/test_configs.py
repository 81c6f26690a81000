"""The recipes in configs/: they parse, start and train."""

import json
import pathlib
import re

import numpy as np
import pytest
from processes import ROOT
from train_script import check_flags_only, run_in_process

from keras_spanbert import files

pytestmark = pytest.mark.usefixtures("one_layer", "untraced")

RECIPES = sorted(str(p.relative_to(ROOT / "configs")) for p in ROOT.glob("configs/**/*.cfg"))
SMALL = [
    "--size=tiny", "--vocabulary_size=200", "--sequence_length=16", "--batch_size=4", "--steps=8",
    "--warmup_steps=2", "--eval_every=4", "--eval_steps=2", "--held_out=0.2",
    "--gradient_accumulation=2",
]  # fmt: skip


def with_spans(texts, folder):
    """Writes the same texts as JSON lines, with the first word of each sentence marked."""
    for path in sorted(pathlib.Path(texts).parent.glob("*.txt")):
        text = path.read_text()
        words = [match.span() for match in re.finditer("[A-Z][a-z]+", text)]
        line = {"text": text, "spans": {"entity": words, "noun_phrase": words}}
        (folder / f"{path.stem}.jsonl").write_text(json.dumps(line))
    return str(folder / "*.jsonl")


def read_flags(name):
    lines = (ROOT / "configs" / name).read_text().splitlines()
    return {line for line in lines if line.startswith("--")}


@pytest.mark.parametrize("name", RECIPES)
def test_flags_of_each_recipe_are_valid(name):
    data = "README.md"
    if "coreference" in name:
        data = "examples/data/stories_dev.jsonlines"
    elif name == "squad.cfg":
        data = "examples/data/repairs_dev.json"
    flags = [f"--flagfile={ROOT / 'configs' / name}", f"--train_data={data}"]
    if any(flag.startswith("--task=") for flag in read_flags(name)):  # It fine-tunes.
        flags += ["--preset=hf://owner/name", f"--eval_data={data}"]
        flags += ["--dataset=rte"] if name == "glue.cfg" else []
    check_flags_only(*flags)


# The others differ in one flag.
@pytest.mark.parametrize(
    ("name", "objectives"),
    [
        ("ablation/table6_entity.cfg", ["mlm", "nsp"]),
        pytest.param("roberta_base.cfg", ["mlm"], marks=pytest.mark.traced),
        ("spanbert_base.cfg", ["mlm", "sbo"]),
    ],
)
def test_recipe_trains_at_a_small_size(name, objectives, texts, tmp_path):
    output = tmp_path / "run"
    if "--masking_scheme=entity" in read_flags(name):
        texts = with_spans(texts, tmp_path)
    flagfile = f"--flagfile={ROOT / 'configs' / name}"
    run_in_process(flagfile, f"--train_data={texts}", f"--output={output}", *SMALL)
    rows = files.read_csv(output / "history.csv")
    assert [row["step"] for row in rows] == ["4", "8"]
    assert rows[0]["val_mlm_cross_entropy"] != rows[1]["val_mlm_cross_entropy"]
    assert [o for o in ["mlm", "sbo", "nsp"] if f"val_{o}_accuracy" in rows[0]] == objectives
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
def test_recipe_has_the_published_steps_and_batch_size(name, updates, blocks):
    flags = dict(flag.split("=", 1) for flag in read_flags(name) if "=" in flag)
    batches = int(flags.get("--gradient_accumulation", 1))
    assert int(flags["--steps"]) == updates * batches
    assert int(flags["--batch_size"]) * batches == blocks
    warmup = {8192: 24_000, 256: 10_000}[blocks]
    assert int(flags["--warmup_steps"]) == warmup * batches


def test_ablations_differ_only_in_the_compared_flags():
    base = read_flags("spanbert_base.cfg")
    names = [name for name in RECIPES if name.startswith("ablation/")]
    assert len(names) == 8
    for name in names:
        differing = {line.split("=")[0] for line in read_flags(name) ^ base}
        compared = {"--steps", "--masking_scheme", "--objectives", "--mask_replacement"}
        assert differing <= compared, name
        assert ("--objectives=mlm,nsp" in read_flags(name)) == ("single" not in name)
