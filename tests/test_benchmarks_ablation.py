"""Tests of `benchmarks/ablation.py`."""

import json
import os
import pathlib
import sys

import numpy as np
import pytest
from scipy import stats
from train_script import check_flags_only

from keras_spanbert import files

sys.path.append(str(pathlib.Path(__file__).parent.parent / "benchmarks"))
import ablation  # noqa: E402

PLAN = {
    "start": "$START",
    "pretrain": ["--steps=10"],
    "rows": {"start": None, "MLM": ["--sbo_weight=0"]},
    "fine_tunings": {"entities": {"train": ["--task=token_classification"], "test": ["--batch"]}},
}
PLANS = list(pathlib.Path(ablation.__file__).parent.glob("plans/*.json"))


@pytest.fixture
def stages(monkeypatch, tmp_path):
    monkeypatch.setenv("START", "saved")
    return list(ablation.plan_stages(PLAN, 2, str(tmp_path)))


def finish(folder, stage, steps=10, **metrics):
    """Writes the output of a finished run of 10 steps."""
    output = folder / stage.path
    output.mkdir(parents=True)
    (output / "metrics.json").write_text(json.dumps({"steps": steps, **metrics}))
    (output / "run.json").write_text(json.dumps({"flags": {"steps": 10}}))


def test_each_model_is_fine_tuned_and_tested(stages, tmp_path):
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


def test_run_is_claimed_once_and_not_while_it_is_running(stages, tmp_path):
    _, lock = ablation.claim(tmp_path, stages[0])
    assert ablation.claim(tmp_path, stages[0]) is None
    lock.release()
    (tmp_path / stages[0].path).mkdir(parents=True)
    orphan = files.lock(tmp_path / stages[0].path)
    assert ablation.claim(tmp_path, stages[0]) is None
    orphan.release()
    _, lock = ablation.claim(tmp_path, stages[0])
    lock.release()


# Without evaluation, a training does not name its score.
@pytest.mark.parametrize("trained", [{"best_score": "f1", "f1": 90.0}, {}], ids=["f1", "unscored"])
def test_student_t_intervals_and_paired_differences(stages, tmp_path, capsys, trained):
    values = {"start": [60.0, 64.0], "MLM": [63.0, 66.0]}
    for row, found in values.items():
        for seed, value in enumerate(found):
            (stage,) = [
                s for s in stages if (s.row, s.seed, s.name) == (row, seed, "entities test")
            ]
            finish(tmp_path, stage.needs, **trained)
            finish(tmp_path, stage, precision=1.0, f1=value)
    ablation.report(stages, tmp_path)
    base, row = files.read_csv(tmp_path / "ablation.csv")
    assert base["score"] == "entities f1" and float(base["mean"]) == 62.0
    paired = stats.ttest_rel(values["MLM"], values["start"]).confidence_interval(0.95)
    low, high = (
        float(row["difference"]) + sign * float(row["difference_width"]) for sign in [-1, 1]
    )
    np.testing.assert_allclose([low, high], paired)
    (tmp_path / "ablation.png").stat()
    assert "| entities f1 | MLM | 2 | 64.50 ± 19.06 | +2.50 ± 6.35 |" in capsys.readouterr().out


def test_table_of_the_evidence_page_has_the_means_of_its_file():
    docs = pathlib.Path(__file__).parent.parent / "docs"
    found = {}
    for row in files.read_csv(docs / "evidence" / "fine_tuning.csv"):
        found.setdefault(row["start"], {}).setdefault(row["task"], []).append(float(row["f1"]))
    page = (docs / "evidence.md").read_text()
    for start, by_task in found.items():
        cells = [start]
        for task in ["squad5k", "entities"]:
            pairs = np.subtract(by_task[task], found["MiniLM"][task])
            cells.append("{:.2f} ± {:.2f}".format(*ablation.interval(by_task[task])))
            cells.append("{:+.2f} ± {:.2f}".format(*ablation.interval(pairs)) if any(pairs) else "")
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
    plan = files.read_json(path)
    ablation.check(plan)
    ablation.check_variables(list(ablation.plan_stages(plan, 1, str(tmp_path))))
    for stage in ablation.plan_stages(plan, 1, str(tmp_path / "runs")):
        finish(tmp_path / "runs", stage)
        (tmp_path / "runs" / stage.path / "config.json").touch()
        flags = [os.path.expandvars(flag) for flag in stage.flags]
        check_flags_only(*flags, f"--output={tmp_path / 'run'}")
