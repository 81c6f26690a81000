"""Tests of `benchmarks/compare.py`."""

import json
import os
import pathlib
import sys

import numpy as np
import pytest
from processes import ROOT, run_python
from scipy import stats

from keras_spanbert import files

sys.path.insert(0, str(ROOT / "benchmarks"))
import compare  # noqa: E402

PLAN = {
    "start": "saved",
    "pretrain": ["--steps=10"],
    "rows": {"start": None, "MLM": ["--sbo_weight=0"]},
    "fine_tunings": {"entities": {"train": ["--task=token_classification"], "test": ["--batch"]}},
}
PLANS = list((ROOT / "benchmarks" / "plans").glob("*.json"))
TRAIN = ["--task=question_answering", "--preset=preset", "--train_data=a.json"]
SEEDS = {"train": [*TRAIN, "--eval_data=a.json"]}  # The simplest plan.
RATES = {**SEEDS, "rows": {"slow": ["--learning_rate=1e-6"], "fast": ["--learning_rate=1e-3"]}}


@pytest.fixture
def runs(monkeypatch, tmp_path):
    """Replaces runs: each writes its score. Returns the paths of the runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "preset").mkdir()
    (tmp_path / "a.json").write_text("{}")
    paths = []

    def run(folder, stage, ends):
        paths.append(stage.path)
        f1 = {"slow": 60.0, "fast": 63.0, "all": 50.0}[stage.row] + stage.seed
        finish(pathlib.Path(folder), stage, best_score="f1", f1=f1)
        return True

    monkeypatch.setattr(compare, "run", run)
    return paths


def finish(folder, stage, **metrics):
    """Writes the metrics of a run."""
    output = folder / stage.path
    output.mkdir(parents=True)
    (output / "metrics.json").write_text(json.dumps(metrics))


def test_rows_and_seeds_run_once_and_are_compared(runs, capsys):
    files.write_json("plan.json", RATES)
    compare.main(["plan.json", "out", "--num_seeds=2"])
    base, row = files.read_csv("out/comparison.csv")
    assert base["score"] == "f1" and float(base["mean"]) == 60.5
    assert row["row"] == "fast" and float(row["difference"]) == 3.0
    assert "Best mean f1: fast. Its best run: seed 1, 64.00\n" in capsys.readouterr().out
    compare.main(["plan.json", "out", "--num_seeds=3", "--rows", "fast"])
    assert runs[4:] == ["fast/seed-2/train"]  # Finished runs are not repeated.
    files.write_json("plan.json", SEEDS)
    with pytest.raises(SystemExit, match="must have one plan.*out/plan.json"):
        compare.main(["plan.json", "out"])


@pytest.mark.parametrize(
    "plan, message",
    [
        ({**RATES, "row": {}}, "only keys in"),
        ({}, "`train` or `rows`"),
        ({**RATES, "rows": {"a": ["--epochs=1", "--steps=1"]}}, "a/seed-0.*both be given"),
        ({**SEEDS, "train": ["--preset=$NO_SUCH"]}, "must be set.*NO_SUCH"),
    ],
)
def test_mistakes_are_told_before_the_first_run(runs, plan, message):
    files.write_json("plan.json", plan)
    with pytest.raises(SystemExit, match=message):
        compare.main(["plan.json", "out"])
    assert not runs and not os.path.exists("out")


def test_a_process_checks_all_rows(runs):
    files.write_json("plan.json", RATES)
    arguments = ["plan.json", "out", "--minutes=0"]
    out, _ = run_python(ROOT / "benchmarks" / "compare.py", *arguments, cwd=".")
    assert out == "6 of 6 runs are left; run the same command to resume\n"


def test_failed_runs_are_named(runs, monkeypatch):
    files.write_json("plan.json", SEEDS)
    monkeypatch.setattr(compare, "run", lambda folder, stage, ends: False)
    with pytest.raises(SystemExit, match="Failed: all/seed-0/train, all/seed-1/train"):
        compare.main(["plan.json", "out", "--num_seeds=2"])


def test_each_model_is_fine_tuned_and_tested(tmp_path):
    stages = compare.plan_stages(PLAN, 2, str(tmp_path))
    assert [stage.path for stage in stages[:5]] == [
        "start/seed-0/entities", "start/seed-0/entities test", "MLM/seed-0/pretrain",
        "MLM/seed-0/entities", "MLM/seed-0/entities test",
    ]  # fmt: skip
    assert len(stages) == 10 and all(stage.seed == 1 for stage in stages[5:])
    start, _, pretrain, train, test = stages[:5]
    assert "--preset=saved" in start.flags
    assert pretrain.flags == ("--task=pretrain", "--steps=10", "--sbo_weight=0")
    assert f"--preset={tmp_path / pretrain.path}" in train.flags and train.needs is pretrain
    assert f"--preset={tmp_path / train.path}" in test.flags and test.needs is train


def test_runs_have_the_flags_of_their_stage_and_resume(tmp_path, monkeypatch):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    train, test = compare.plan_stages(PLAN, 2, str(tmp_path))[5:7]
    for stage, own in [(train, ["--task=token_classification", "--seed=1"]), (test, ["--batch"])]:
        output = tmp_path / stage.path
        for resume in [[], ["--resume"]]:
            lock = compare.claim(tmp_path, stage)
            assert compare.claim(tmp_path, stage) is None
            assert compare.run(tmp_path, stage, float("inf"))
            lock.release()
            log = (tmp_path / ".claims" / stage.path / "log.txt").read_text()
            flags = log.rpartition("train.py\n")[2].split("\n")[1:-1]  # The first is the preset.
            assert sorted(flags) == sorted([*own, f"--output={output}", *resume])
            output.mkdir(parents=True, exist_ok=True)
            (output / "run.json").touch()
    finish(tmp_path, compare.Stage("a", 0, "train", ()), interrupted=True, f1=50.0)
    assert compare.read_metrics(tmp_path, compare.Stage("a", 0, "train", ())) is None


# Without evaluation, a training does not name its score.
@pytest.mark.parametrize("trained", [{"best_score": "f1", "f1": 90.0}, {}], ids=["f1", "unscored"])
def test_student_t_intervals_and_paired_differences(tmp_path, capsys, trained):
    stages = compare.plan_stages(PLAN, 2, str(tmp_path))
    values = {"start": [60.0, 64.0], "MLM": [63.0, 66.0]}
    for stage in stages:
        if stage.is_test:
            finish(tmp_path, stage.needs, **trained)
            finish(tmp_path, stage, precision=1.0, f1=values[stage.row][stage.seed])
    compare.report(stages, tmp_path)
    base, row = files.read_csv(tmp_path / "comparison.csv")
    assert base["score"] == "entities f1" and float(base["mean"]) == 62.0
    paired = stats.ttest_rel(values["MLM"], values["start"]).confidence_interval(0.95)
    difference, width = float(row["difference"]), float(row["difference_width"])
    np.testing.assert_allclose([difference - width, difference + width], paired)
    assert "| entities f1 | MLM | 2 | 64.50 ± 19.06 | +2.50 ± 6.35 |" in capsys.readouterr().out


def test_table_of_the_evidence_page_has_the_means_of_its_file():
    docs = ROOT / "docs"
    found = {}
    for row in files.read_csv(docs / "evidence" / "fine_tuning.csv"):
        found.setdefault(row["start"], {}).setdefault(row["task"], []).append(float(row["f1"]))
    page = (docs / "evidence.md").read_text()
    for start, by_task in found.items():
        cells = [start]
        for task in ["squad5k", "entities"]:
            pairs = np.subtract(by_task[task], found["MiniLM"][task])
            cells.append("{:.2f} ± {:.2f}".format(*compare.interval(by_task[task])))
            cells.append("{:+.2f} ± {:.2f}".format(*compare.interval(pairs)) if any(pairs) else "")
        assert f"| {' | '.join(cells)} |".replace("|  |", "| |") in page


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_plans_are_valid(path, monkeypatch, tmp_path):
    for name in ["TEXTS", "PRESET"]:
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("VOCABULARY", str(tmp_path / "vocab.txt"))
    tasks = [f"litbank/{task}" for task in ["entities", "coreference"]]
    names = [f"{task}/{split}/a.conll" for task in tasks for split in ["train", "dev", "test"]]
    names += ["novels/a.txt.gz", "sotu/a.txt", "wiki/a.txt", "vocab.txt"]
    names += [f"{x}.json" for x in ["squad-5000", "squad-dev-quarter", "train-v1.1", "dev-v1.1"]]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for stage in compare.plan_stages(files.read_json(path), 1, str(tmp_path / "runs")):
        compare.check_stage(stage, str(tmp_path / "runs"))
