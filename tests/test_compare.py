"""Tests of `spanbert-compare`."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from scipy import stats
from squad_runs import SIZES, save_preset, write_squad

from keras_spanbert import compare, files

ROOT = pathlib.Path(__file__).parent.parent
PLAN = {
    "start": "$START",
    "pretrain": ["--steps=10"],
    "rows": {"start": None, "MLM": ["--sbo_weight=0"]},
    "fine_tunings": {"entities": {"train": ["--task=token_classification"], "test": ["--batch"]}},
}
PLANS = list((ROOT / "benchmarks" / "plans").glob("*.json"))
TRAIN = ["--task=question_answering", "--preset=preset", "--train_data=a.json"]
# The simplest plan.
SEEDS = {"train": [*TRAIN, "--eval_data=b.json"]}
RATES = {**SEEDS, "rows": {"slow": ["--learning_rate=1e-6"], "fast": ["--learning_rate=1e-3"]}}


@pytest.fixture
def stages(monkeypatch, tmp_path):
    monkeypatch.setenv("START", "saved")
    return list(compare.plan_stages(compare.standard_form(PLAN), 2, str(tmp_path)))


@pytest.fixture
def here(monkeypatch, tmp_path):
    """A working directory with files of the names in the plans."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "preset").mkdir()
    for name in ["a.json", "b.json"]:
        (tmp_path / name).write_text("{}")
    return tmp_path


@pytest.fixture
def runs(here, monkeypatch):
    """Replaces runs: each writes its score. Returns the paths of the runs."""
    paths = []

    def run(folder, stage, ends):
        paths.append(stage.path)
        f1 = {"slow": 60.0, "fast": 63.0, "all": 50.0}[stage.row] + stage.seed
        finish(pathlib.Path(folder), stage, best_score="f1", f1=f1)
        return True

    monkeypatch.setattr(compare, "run", run)
    return paths


def finish(folder, stage, steps=10, **metrics):
    """Writes the output of a finished run of 10 steps."""
    output = folder / stage.path
    output.mkdir(parents=True)
    (output / "metrics.json").write_text(json.dumps({"steps": steps, **metrics}))
    (output / "run.json").write_text(json.dumps({"flags": {"steps": 10}}))


def check_mistake(capsys, arguments, *values):
    """Checks that the command prints one line with the values, and that its exit code is 2."""
    assert compare.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1 and captured.err.startswith("spanbert-compare: ")
    for value in values:
        assert value in captured.err, captured.err


def test_plan_without_rows_runs_each_seed(runs, capsys):
    files.write_json("plan.json", SEEDS)
    assert compare.main(["plan.json", "out", "--num_seeds=2"]) == 0
    assert runs == ["all/seed-0/train", "all/seed-1/train"]
    out = capsys.readouterr().out
    assert "| f1 | all | 2 | 50.50 ± 6.35 |  |" in out
    assert "Best mean f1: all. Its best run: seed 1, 51.00\n" in out
    assert compare.main(["plan.json", "out", "--num_seeds=3"]) == 0
    assert runs[2:] == ["all/seed-2/train"]  # Finished runs are not repeated.


def test_rows_without_pretraining(runs, capsys):
    files.write_json("plan.json", {**RATES, "test": ["--task=question_answering"]})
    plan = compare.standard_form(files.read_json("plan.json"))
    train, test = list(compare.plan_stages(plan, 1, "out"))[:2]
    assert train.flags == (*SEEDS["train"], "--learning_rate=1e-6")
    assert test.flags == ("--preset=out/slow/seed-0/train", "--task=question_answering")
    files.write_json("plan.json", RATES)
    assert compare.main(["plan.json", "out", "--num_seeds=2"]) == 0
    base, row = files.read_csv("out/comparison.csv")
    assert base["score"] == "f1" and float(base["mean"]) == 60.5
    assert row["row"] == "fast" and float(row["difference"]) == 3.0
    assert os.path.getsize("out/comparison.png") > 8_000
    assert "Best mean f1: fast. Its best run: seed 1, 64.00\n" in capsys.readouterr().out
    assert compare.main(["plan.json", "out", "--num_seeds=3", "--rows", "fast"]) == 0
    assert runs[4:] == ["fast/seed-2/train"]


@pytest.mark.parametrize(
    "plan, arguments, values",
    [
        ({**RATES, "row": {}}, [], ["Keys of a plan", "'row'"]),
        ({**RATES, "pretrain": []}, [], ["`train` must have no pretraining", "train, pretrain"]),
        ({**RATES, "rows": {"a": None}}, [], ["no null row", "a null row"]),
        ({**RATES, "rows": {"a": "--seed=1"}}, [], ["list of strings", "--seed=1"]),
        ({**RATES, "train": "--seed=1"}, [], ["list of strings", "--seed=1"]),
        ({"rows": {"a": []}}, [], ["must have `train` or `pretrain`"]),
        ({}, [], ["`train` or `rows`"]),
        ({**SEEDS, "train": [*TRAIN, "--learning_rat=1"]}, [], ["all/seed-0/train", "rat"]),
        ({**RATES, "rows": {"a": ["--epochs=x"]}}, [], ["a/seed-0/train", "--epochs=x"]),
        ({**RATES, "rows": {"a": ["--epochs=1", "--steps=1"]}}, [], ["a/seed-0", "both be given"]),
        ({**SEEDS, "test": ["--task=question_answering", "--x"]}, [], ["seed-0/train test", "'x'"]),
        ({**SEEDS, "train": ["--preset=$NO_SUCH"]}, [], ["must be set", "$NO_SUCH"]),
        (SEEDS, ["--num_seeds=0"], ["--num_seeds must be at least 1. Received: 0"]),
        (SEEDS, ["--num_seeds=x"], ["--num_seeds", "'x'"]),
        (SEEDS, ["--rows", "b"], ["--rows must be one or more of 'all'. Received: b"]),
        (SEEDS, ["--show"], ["--show needs a folder with runs. Received: out"]),
    ],
)
def test_mistakes_are_told_in_one_line(runs, capsys, plan, arguments, values):
    files.write_json("plan.json", plan)
    check_mistake(capsys, ["plan.json", "out", *arguments], *values)
    assert not runs and not os.path.exists("out")


def test_mistakes_of_files_and_launchers(here, capsys, monkeypatch):
    check_mistake(capsys, [], "PLAN")
    check_mistake(capsys, ["no_plan.json", "out"], "no_plan.json")
    files.write_json("plan.json", SEEDS)
    check_mistake(capsys, ["plan.json", "."], "must be new, empty, or that of a plan")
    check_mistake(capsys, ["plan.json", "s3://bucket/x"], "on a local disk. Received: s3://bucket")
    monkeypatch.setenv("WORLD_SIZE", "2")
    check_mistake(capsys, ["plan.json", "out"], "a single process", "WORLD_SIZE=2")


def test_other_plan_in_the_folder_is_refused(runs, capsys):
    files.write_json("plan.json", SEEDS)
    compare.main(["plan.json", "out", "--num_seeds=1"])
    files.write_json("plan.json", RATES)
    capsys.readouterr()
    check_mistake(capsys, ["plan.json", "out"], "must have one plan", "out/plan.json")


def test_failed_runs_are_named_and_tried_again(here, monkeypatch, capsys):
    files.write_json("plan.json", SEEDS)
    monkeypatch.setattr(compare, "run", lambda folder, stage, ends: False)
    assert compare.main(["plan.json", "out", "--num_seeds=2"]) == 1
    err = capsys.readouterr().err
    assert "Failed: all/seed-0/train" in err and "2 of 2 runs are left, 2 failed" in err


@pytest.mark.long
@pytest.mark.once("torch")
def test_interrupted_command_resumes(tmp_path):
    """Stops the first run of the installed command, and runs the command again."""
    plan = {
        "train": [
            "--task=question_answering", f"--preset={save_preset(tmp_path / 'preset')}", *SIZES,
            f"--train_data={write_squad(tmp_path / 'train.json', 40, seed=1)}",
            f"--eval_data={write_squad(tmp_path / 'dev.json', 10, seed=2)}",
            "--steps=60", "--eval_every=20", "--learning_rate=5e-3",
        ],
    }  # fmt: skip
    files.write_json(str(tmp_path / "plan.json"), plan)
    program = "import sys, keras_spanbert_commands as c; sys.exit(c.compare())"
    command = [sys.executable, "-c", program, "plan.json", "out", "--num_seeds=1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def start():
        return subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip

    log = tmp_path / "out" / ".claims" / "all" / "seed-0" / "train" / "log.txt"
    with start() as process:
        while not (log.exists() and "step 20/60" in log.read_text()):
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM and "the same command to resume" in err
    assert "Saved step" in log.read_text()  # The run was told, and saved a checkpoint.
    with start() as process:
        out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err + log.read_text()
    assert "Continuing from step" in log.read_text() and "| f1 | all | 1 |" in out
    record = files.read_json(str(tmp_path / "out" / "all" / "seed-0" / "train" / "run.json"))
    assert record["flags"]["seed"] == 0 and record["flags"]["steps"] == 60


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


def test_runs_have_the_flags_of_their_stage(stages, tmp_path, monkeypatch):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    folder = tmp_path / "out"
    train, test = stages[5:7]
    for stage, own in [(train, ["--task=token_classification", "--seed=1"]), (test, ["--batch"])]:
        output = folder / stage.path
        for resume in [[], ["--resume"]]:
            _, lock = compare.claim(folder, stage)
            assert compare.run(folder, stage, float("inf"))
            lock.release()
            log = (folder / ".claims" / stage.path / "log.txt").read_text().splitlines()
            start = len(log) - log[::-1].index("keras_spanbert_commands")
            flags = [flag for flag in log[start:] if not flag.startswith("--preset=")]
            assert sorted(flags) == sorted([*own, f"--output={output}", *resume])
            output.mkdir(parents=True, exist_ok=True)
            (output / "run.json").touch()


def test_interrupted_runs_are_not_finished(stages, tmp_path):
    for stage, steps in zip(stages, [9, 10]):
        finish(tmp_path, stage, steps, f1=50.0)
    found = [compare.read_metrics(tmp_path, stage) for stage in stages[:3]]
    assert found == [None, {"steps": 10, "f1": 50.0}, None]


def test_run_is_claimed_once_and_not_while_it_is_running(stages, tmp_path):
    _, lock = compare.claim(tmp_path, stages[0])
    assert compare.claim(tmp_path, stages[0]) is None
    lock.release()
    (tmp_path / stages[0].path).mkdir(parents=True)
    orphan = files.lock(tmp_path / stages[0].path)
    assert compare.claim(tmp_path, stages[0]) is None
    orphan.release()
    _, lock = compare.claim(tmp_path, stages[0])
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
    compare.report(stages, tmp_path)
    base, row = files.read_csv(tmp_path / "comparison.csv")
    assert base["score"] == "entities f1" and float(base["mean"]) == 62.0
    paired = stats.ttest_rel(values["MLM"], values["start"]).confidence_interval(0.95)
    low, high = (
        float(row["difference"]) + sign * float(row["difference_width"]) for sign in [-1, 1]
    )
    np.testing.assert_allclose([low, high], paired)
    (tmp_path / "comparison.png").stat()
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
    plan = files.read_json(path)
    compare.check(plan)
    plan = compare.standard_form(plan)
    compare.check_flags(
        list(compare.plan_stages(plan, 1, str(tmp_path / "runs"))), str(tmp_path / "runs")
    )
