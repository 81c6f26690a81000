"""The runner of ablations: order, locks, what is finished, statistics; and the learning curve."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from forked import Forked
from scipy import stats
from train_script import check_alone

from keras_spanbert import files

sys.path.append(str(pathlib.Path(__file__).parent.parent / "benchmarks"))
import ablation  # noqa: E402
import learning_curve  # noqa: E402

PLAN = {
    "start": "$START",
    "pretrain": ["--steps=10"],
    "rows": {"as it is": None, "MLM": ["--sbo_weight=0"]},
    "fine_tunings": {"entities": {"train": ["--task=token_classification"], "test": ["--batch"]}},
}
TOKENS = np.geomspace(1e6, 1e8, 10)
PLANS = list(pathlib.Path(ablation.__file__).parent.glob("plans/*.json"))


@pytest.fixture
def stages(monkeypatch, tmp_path):
    monkeypatch.setenv("START", "saved")
    return list(ablation.stages_of(PLAN, 2, str(tmp_path)))


def finish(folder, stage, steps=10, **metrics):
    """What a run leaves behind that was given 10 steps."""
    output = folder / stage.path
    output.mkdir(parents=True)
    (output / "metrics.json").write_text(json.dumps({"steps": steps, **metrics}))
    (output / "run.json").write_text(json.dumps({"flags": {"steps": 10}}))


def test_each_model_is_fine_tuned_and_the_best_epoch_tested(stages, tmp_path):
    assert [stage.path for stage in stages[:5]] == [
        "as it is/seed-0/entities",
        "as it is/seed-0/entities test",
        "MLM/seed-0/pretrain",
        "MLM/seed-0/entities",
        "MLM/seed-0/entities test",
    ]
    assert len(stages) == 10 and all(stage.seed == 1 for stage in stages[5:])
    start, _, pretrain, train, test = stages[:5]
    assert "--preset=saved" in start.flags
    assert pretrain.flags == ("--task=pretrain", "--steps=10", "--sbo_weight=0")
    assert f"--preset={tmp_path / pretrain.path}" in train.flags and train.needs is pretrain
    assert f"--preset={tmp_path / train.path}" in test.flags and test.needs is train


def test_interrupted_run_is_not_finished(stages, tmp_path):
    finish(tmp_path, stages[0], steps=7)
    finish(tmp_path, stages[1])
    assert ablation.metrics_of(tmp_path, stages[0]) is None
    assert ablation.metrics_of(tmp_path, stages[1]) == {"steps": 10}


def test_run_is_claimed_once_and_not_while_one_that_outlived_its_runner_goes_on(stages, tmp_path):
    _, lock = ablation.claim(tmp_path, stages[0])
    assert ablation.claim(tmp_path, stages[0]) is None
    lock.release()
    (tmp_path / stages[0].path).mkdir(parents=True)
    orphan = files.lock(tmp_path / stages[0].path)
    assert ablation.claim(tmp_path, stages[0]) is None
    orphan.release()
    _, lock = ablation.claim(tmp_path, stages[0])
    lock.release()


def test_intervals_are_those_of_student_and_differences_are_paired(stages, tmp_path, capsys):
    values = {"as it is": [60.0, 64.0], "MLM": [63.0, 66.0]}
    for row, found in values.items():
        for seed, value in enumerate(found):
            (stage,) = [
                s for s in stages if (s.row, s.seed, s.name) == (row, seed, "entities test")
            ]
            finish(tmp_path, stage.needs, best_score="f1", f1=90.0)
            finish(tmp_path, stage, precision=1.0, f1=value)
    ablation.report(stages, tmp_path)
    base, row = files.read_csv(tmp_path / "ablation.csv")
    assert base["score"] == "entities f1" and float(base["mean"]) == 62.0
    paired = stats.ttest_rel(values["MLM"], values["as it is"]).confidence_interval(0.95)
    low, high = (
        float(row["difference"]) + sign * float(row["difference_width"]) for sign in [-1, 1]
    )
    np.testing.assert_allclose([low, high], paired)
    (tmp_path / "ablation.png").stat()
    assert "| entities f1 | MLM | 2 | 64.50 ± 19.06 | +2.50 ± 6.35 |" in capsys.readouterr().out


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_plans_are_right(path, monkeypatch, tmp_path):
    for name in ["NOVELS", "LITBANK", "PRESET"]:
        monkeypatch.setenv(name, str(tmp_path))
    places = [f"{t}/{s}" for t in ["entities", "coreference"] for s in ["train", "dev", "test"]]
    for name in ["novel.txt.gz", *(f"{place}/a.conll" for place in places)]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    plan = files.read_json(path)
    ablation.check(plan)
    for stage in ablation.stages_of(plan, 1, str(tmp_path / "runs")):
        finish(tmp_path / "runs", stage)
        (tmp_path / "runs" / stage.path / "config.json").touch()
        flags = [os.path.expandvars(flag) for flag in stage.flags]
        check_alone(*flags, f"--output={tmp_path / 'run'}")


@pytest.mark.parametrize(
    "change, message",
    [
        ({"row": {}}, "no keys but"),
        ({"rows": {}}, "must have `rows`"),
        ({"start": ""}, "takes `start`"),
        ({"fine_tunings": {"entities": {"test": []}}}, "must have flags to `train` with"),
        ({"fine_tunings": {"entities": ["--epochs=1"]}}, "must have flags to `train` with"),
        ({"fine_tunings": ["entities"]}, "`fine_tunings` by their names"),
        ({"rows": ["MLM"]}, "`rows` by their names"),
        ({"start": 1}, "`start` must be a preset. Received: 1"),
        ({"pretrain": "--steps=10"}, "a list of strings. Received: '--steps=10'"),
        ({"rows": {"MLM": ["--steps", 10]}}, "a list of strings"),
    ],
)
def test_error_for_what_is_no_plan(change, message):
    with pytest.raises(ValueError, match=message):
        ablation.check({**PLAN, **change})


def test_plan_of_rows_that_pretrain_has_flags_for_these():
    plan = {name: value for name, value in PLAN.items() if name != "pretrain"}
    with pytest.raises(ValueError, match="must have `pretrain`"):
        ablation.check(plan)
    ablation.check({**plan, "rows": {"as it is": None}})


def test_folder_is_of_one_plan_which_may_grow(tmp_path):
    folder = str(tmp_path / "runs")
    ablation.take_folder(folder, PLAN)
    more = {**PLAN, "rows": {**PLAN["rows"], "whole words": ["--scheme=whole_word"]}}
    ablation.take_folder(folder, more)
    ablation.take_folder(folder, PLAN)
    assert files.read_json(f"{folder}/plan.json")["rows"] == more["rows"]
    with pytest.raises(ValueError, match="of one plan. Received: .*, of one with other `pretrain`"):
        ablation.take_folder(folder, {**PLAN, "pretrain": ["--steps=20"]})
    with pytest.raises(ValueError, match="of one with another 'MLM' of `rows`"):
        ablation.take_folder(folder, {**PLAN, "rows": {"MLM": []}})
    # Of a process that is about to write its plan, or was killed there.
    (tmp_path / "runs" / "plan.json").rename(tmp_path / "runs" / "plan.json.partial")
    ablation.take_folder(folder, PLAN)
    assert files.read_json(f"{folder}/plan.json") == PLAN
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    for taken in [tmp_path / "other", tmp_path / "other" / "notes.txt"]:
        with pytest.raises(ValueError, match="must be new, empty, or a plan's"):
            ablation.take_folder(str(taken), PLAN)


@pytest.mark.parametrize(
    ("plan", "arguments", "said"),
    [
        ("missing.json", [], "missing.json"),
        ("plan.json", [], "Variables of a plan must be set. Received: $START, in --preset=$START"),
        ("plan.json", ["--rows", "MLN"], "--rows must name some of 'MLM', 'as it is'"),
        ("plan.json", ["--fine_tunings", "entity"], "some of 'entities'. Received: entity"),
    ],
)
def test_mistakes_are_a_line_and_exit_code_2_before_any_run(tmp_path, plan, arguments, said):
    files.write_json(str(tmp_path / "plan.json"), PLAN)
    command = [sys.executable, ablation.__file__, str(tmp_path / plan), str(tmp_path / "runs")]
    process = Forked(
        [*command, *arguments], stderr=subprocess.PIPE, env={**os.environ, "START": "$START"}
    )
    _, stderr = process.communicate()
    assert process.returncode == 2 and said in stderr and stderr.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_error_for_a_folder_without_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["learning_curve.py", str(tmp_path)])
    with pytest.raises(SystemExit) as error:
        learning_curve.main()
    assert error.value.code == 2 and "must have runs that were evaluated" in capsys.readouterr().err


def test_learning_curve_is_found_again_from_its_points():
    true = [1.5, 5e4, 0.3, 2e6, 0.25]
    runs = [
        {"parameters": n, "points": [(d, learning_curve.loss_of(true, n, d)) for d in TOKENS]}
        for n in [4e5, 3e6, 4e7]
    ]
    found, error = learning_curve.fit(runs)
    np.testing.assert_allclose(found, true, rtol=1e-3)
    assert error < 1e-6
    # At the best split neither more parameters nor more tokens pay, for as many operations.
    parameters, tokens, loss = learning_curve.best(found, 1e18)
    assert 6 * parameters * tokens == pytest.approx(1e18)
    for factor in [0.8, 1.25]:
        assert learning_curve.loss_of(true, factor * parameters, tokens / factor) > loss
