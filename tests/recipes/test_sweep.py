"""`train.py --num_seeds` and `--grid`: several runs and their summary."""

import itertools
import os
import signal
import subprocess

import pytest
from absl.testing import flagsaver
from forked import Forked
from squad_runs import SIZES, save_preset, write_squad
from train_script import TIMEOUT, check_fails, run_in_process, start

from keras_spanbert import files, metrics
from keras_spanbert.recipes import sweep
from keras_spanbert.recipes.flags import FLAGS, given
from keras_spanbert.recipes.run import check_flags, parse_flags

FLAGS_OF_ALL = ["--task=question_answering", "--preset=preset", "--train_data=train.json"]
FLAGS_OF_ALL += ["--eval_data=dev.json", "--output=out"]


class Calls(list):
    """The flags of each run, and the exit codes of failing ones by their --output."""

    codes = {}


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Replaces runs by writing their files with given scores. Returns the flags of the runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "preset").mkdir()
    for name in ["train.json", "dev.json"]:
        (tmp_path / name).write_text("{}")
    calls = Calls()

    def start_run(arguments):
        flags = dict(argument.removeprefix("--").partition("=")[::2] for argument in arguments)
        calls.append(flags)
        code = calls.codes.get(flags["output"], 0)
        if code is None:  # Fails before it starts.
            return 2, None
        os.makedirs(flags["output"], exist_ok=True)
        if "train_data" not in flags:
            return code, None
        rate, seed = float(flags.get("learning_rate", 2e-5)), int(flags["seed"])
        f1 = 60.0 + 1e5 * rate + {0: 0.0, 1: 3.0, 2: 1.5}[seed]
        path = flags["output"]
        files.write_json(f"{path}/run.json", {"flags": {"steps": 9}, "given": {}})
        files.write_csv(f"{path}/history.csv", [{"step": 5, "f1": f1 / 2}, {"step": 9, "f1": f1}])
        metrics = {"steps": 4 if code else 9, "seconds": 1.5, "exact": f1 / 2, "f1": f1}
        files.write_json(f"{path}/metrics.json", {**metrics, "total": 40, "best_score": "f1"})
        return code, None

    monkeypatch.setattr(sweep, "start_run", start_run)
    return calls


def test_seeds_are_summarized(runs, capsys):
    run_in_process(*FLAGS_OF_ALL, "--num_seeds=3", "--epochs=2")
    assert [call["seed"] for call in runs] == ["0", "1", "2"]
    assert [call["output"] for call in runs] == [f"out/seed-{seed}" for seed in range(3)]
    for call in runs:
        assert call["train_data"] == "train.json" and call["epochs"] == "2"
        assert not {"seeds", "resume", "grid", "predictions"} & set(call)
    found = files.read_json("out/metrics.json")
    f1 = found["scores"]["f1"]
    assert f1["values"] == {"0": 62.0, "1": 65.0, "2": 63.5}
    assert f1["mean"] == pytest.approx(63.5) and f1["standard_deviation"] == pytest.approx(1.5)
    assert f1["interval"] == pytest.approx([62.0, 65.0])
    assert found["scores"]["exact"]["mean"] == pytest.approx(31.75)
    assert set(found["scores"]) == {"f1", "exact"}  # Counts are not scores.
    assert found["best"] == {"flags": {}, "seed": 1, "folder": "seed-1", "f1": 65.0}
    rows = files.read_csv("out/runs.csv")
    assert [(row["seed"], row["folder"], row["f1"]) for row in rows] == [
        ("0", "seed-0", "62.0"), ("1", "seed-1", "65.0"), ("2", "seed-2", "63.5"),
    ]  # fmt: skip
    assert os.path.getsize("out/runs.png") > 8_000
    lines = capsys.readouterr().out.splitlines()
    table = [line.split() for line in lines]
    assert ["mean", "sd", "95%", "interval"] in table
    assert ["f1", "63.50", "1.50", "62.00", "to", "65.00"] in table
    assert "f1 of each seed: 62.00, 65.00, 63.50" in lines
    assert lines[-2] == "Best on --eval_data: seed 1, f1 65.00, out/seed-1"
    assert lines[-1].startswith("Wrote metrics.json, runs.csv, runs.png, run.json")


def test_grid_is_sorted_by_the_mean_of_its_seeds(runs, capsys):
    values = "--grid=learning_rate=1e-5,3e-5 epochs=3,10"
    run_in_process(*FLAGS_OF_ALL, values, "--num_seeds=2", "--seed=1")
    found = [(call["learning_rate"], call["epochs"], call["seed"]) for call in runs]
    assert found == list(itertools.product(["1e-5", "3e-5"], ["3", "10"], ["1", "2"]))
    rows = files.read_csv("out/runs.csv")
    found = [(row["learning_rate"], row["epochs"], row["seed"]) for row in rows]
    assert found == list(itertools.product(["1e-05", "3e-05"], ["3", "10"], ["1", "2"]))
    # Seeds 1 and 2 add 3 and 1.5.
    assert [float(row["f1"]) for row in rows[-2:]] == pytest.approx([66.0, 64.5])
    assert rows[0]["folder"] == "learning_rate-1e-5_epochs-3/seed-1"
    assert os.path.getsize("out/runs.png") > 8_000
    found = files.read_json("out/metrics.json")["combinations"]
    assert [(row["flags"]["learning_rate"], row["flags"]["epochs"]) for row in found] == [
        (3e-5, 3), (3e-5, 10), (1e-5, 3), (1e-5, 10),
    ]  # fmt: skip
    scores = [row["scores"]["f1"] for row in found]
    assert scores[0]["mean"] == pytest.approx(65.25) and len(scores[0]["values"]) == 2
    assert scores[0]["interval"][0] == pytest.approx(64.5)
    assert scores[2]["mean"] == pytest.approx(63.25)
    out = capsys.readouterr().out
    assert "Best on --eval_data: --learning_rate=3e-05 --epochs=3, mean f1 65.25" in out
    assert "seed 1, f1 66.00, out/learning_rate-3e-5_epochs-3/seed-1" in out


def test_ties_are_logged_and_the_first_is_used(runs, capsys, monkeypatch):
    # The means differ by rounding.
    scores = {"3": [0.1, 0.2, 0.3], "10": [0.3, 0.2, 0.1], "2": [0.0] * 3}  # For seeds 0, 1, 2.

    def read_metrics(output, name):
        combination, seed = name.split("/seed-")
        f1 = scores[combination.removeprefix("epochs-")][int(seed)]
        return {"steps": 9, "seconds": 1.5, "f1": f1, "best_score": "f1"}

    monkeypatch.setattr(sweep.sweep_results, "read_metrics", read_metrics)
    run_in_process(*FLAGS_OF_ALL, "--grid=epochs=2,10,3", "--num_seeds=3")
    assert (
        "2 combinations share the best mean f1: --epochs=10; --epochs=3. The first one in the "
        "order of --grid is used\nBest on --eval_data: --epochs=10, mean f1 0.20\n"
    ) in capsys.readouterr().out


def test_resume_runs_missing_and_additional_seeds(runs, capsys):
    runs.codes = {"out/seed-1": -9}
    with pytest.raises(SystemExit) as error:
        run_in_process(*FLAGS_OF_ALL, "--num_seeds=2", "--epochs=2")
    assert error.value.code == 1
    captured = capsys.readouterr()
    assert "seed-1 (exit code -9); --resume --output=out runs them" in captured.err
    assert "1 of 2 runs" in captured.out
    runs.codes = {}
    runs.clear()
    run_in_process("--resume", "--output=out", "--num_seeds=3", "--checkpoint_every=7")
    assert [call["output"] for call in runs] == ["out/seed-1", "out/seed-2"]
    assert "resume" in runs[0] and "resume" not in runs[1]
    for call in runs:
        assert call["epochs"] == "2" and call["checkpoint_every"] == "7"
    assert files.read_json("out/metrics.json")["finished"] == 3
    runs.clear()
    run_in_process("--resume", "--output=out")
    assert not runs and "3 of 3 runs" in capsys.readouterr().out


def test_error_in_the_first_run_ends_the_sweep(runs):
    runs.codes = {"out/seed-0": None}
    with pytest.raises(SystemExit) as error:
        run_in_process(*FLAGS_OF_ALL, "--num_seeds=3")
    assert error.value.code == 2 and len(runs) == 1
    assert not os.path.exists("out")


def test_predictions_and_export_use_the_best_run(runs, capsys):
    flags = ["--predict_data=dev.json", "--predictions=answers.json", "--export=served"]
    flags += ["--doc_stride=40", "--grid=learning_rate=1e-5,3e-5"]
    run_in_process(*FLAGS_OF_ALL, *flags)
    assert len(runs) == 3 and "predictions" not in runs[0] and "export" not in runs[1]
    last = runs[-1]
    assert last["preset"] == "out/learning_rate-3e-5/seed-0" and last["output"] == "out/best"
    assert last["predictions"] == "answers.json" and last["export"] == "served"
    assert last["doc_stride"] == "40"
    assert not {"train_data", "eval_data", "learning_rate"} & set(last)
    assert "share the best" not in capsys.readouterr().out


def test_runs_get_only_flags_with_an_effect(runs, tmp_path):
    (tmp_path / "story.txt").write_text("Ann left.")
    flags = ["--predict_data=story.txt", "--question=who", "--encoding_errors=replace"]
    run_in_process(*FLAGS_OF_ALL, *flags, "--num_seeds=2", "--weight_decay=0.1", "--epochs=1")
    *trained, best = runs
    for call in trained:
        assert not {"question", "encoding_errors"} & set(call) and call["weight_decay"] == "0.1"
    assert best["question"] == "who" and best["encoding_errors"] == "replace"
    assert not {"weight_decay", "epochs", "seed"} & set(best)


def test_two_sweeps_in_one_folder_are_refused(runs, capsys):
    run_in_process(*FLAGS_OF_ALL, "--num_seeds=1")
    with files.lock("out"):
        check_fails(capsys, ["--resume", "--output=out"], "in use by another process")


@pytest.mark.parametrize(
    "flags, values",
    [
        (["--num_seeds=0"], ["--num_seeds=0"]),
        (["--num_seeds=2", "--eval_data="], ["--eval_data", "--num_seeds"]),
        (["--num_seeds=2", f"--seed={2**32 - 1}"], [f"--seed={2**32}", "below"]),
        (["--grid=learning_rate"], ["--grid", "learning_rate=1e-5,2e-5"]),
        (["--grid= "], ["--grid"]),
        (["--grid=dtype=1,2"], ["numeric flags of training", "with dtype"]),
        (["--grid=seed=1,2"], ["--num_seeds"]),
        (["--grid=head_learning_rate=1e-4"], ["--task=question_answering", "head_learning_rate"]),
        (["--grid=epochs=2 epochs=3"], ["each flag once", "with epochs=3"]),
        (["--grid=beta_2=0.9,0.8,9e-1"], ["value of --beta_2 once", "0.9 and 9e-1, the same"]),
        (["--grid=epochs=1.5"], ["`--grid` has --epochs=1.5"]),
        (["--grid=learning_rate=1e-5,nan"], ["`--learning_rate` must be a finite number", "nan"]),
        (["--grid=doc_stride=40,400"], ["--sequence_length=384", "--doc_stride=400"]),
        (["--grid=steps=1,2 epochs=3"], ["--steps", "cannot both be given"]),
        (["--grid=epochs=1,2", "--epochs=3"], ["--epochs=3", "--grid", "given on its own"]),
    ],
)
def test_invalid_grid_is_named(runs, capsys, flags, values):
    names = {flag.split("=")[0] for flag in flags}
    usual = [flag for flag in FLAGS_OF_ALL if flag.split("=")[0] not in names]
    check_fails(capsys, [*usual, *flags], *values)
    assert not runs and not os.path.exists("out")


@pytest.mark.parametrize("task, flag", [("pretrain", "num_seeds=2"), ("prepare", "grid=epochs=1")])
def test_other_tasks_refuse_sweeps(runs, capsys, task, flag):
    flags = [f"--task={task}", "--train_data=train.json", "--output=out", f"--{flag}"]
    name = flag.split("=")[0]
    check_fails(capsys, flags, f"--task={task} does not use --{name}")


def test_sweep_needs_a_new_folder_and_one_process(runs, tmp_path, capsys, monkeypatch):
    (tmp_path / "out").mkdir()
    given = {"task": "question_answering", "preset": "preset", "train_data": ["train.json"]}
    given["eval_data"] = ["dev.json"]
    files.write_json("out/run.json", {"flags": given, "given": given})
    flags = ["--resume", "--output=out", "--num_seeds=2"]
    check_fails(capsys, flags, "--output=out, which holds a single run")
    monkeypatch.setenv("WORLD_SIZE", "2")
    flags = [*FLAGS_OF_ALL, "--num_seeds=2", "--output=other"]
    check_fails(capsys, flags, "WORLD_SIZE=2", "a single process")


def test_changed_values_are_refused(runs, capsys):
    run_in_process(*FLAGS_OF_ALL, "--grid=epochs=1,2")
    for flags, value in [(["--grid=epochs=1,3"], "epochs=1,2"), (["--batch_size=8"], "32")]:
        check_fails(capsys, ["--resume", "--output=out", *flags], "keeps its flags", value)


@pytest.mark.parametrize(
    "flags, count, epochs",
    [
        (["--task=question_answering", "--learning_rate=2e-5"], 2, "4"),
        (["--task=classification"], 10, "10"),
        (["--task=classification", "--benchmark=cola"], 10, "4"),
    ],
)
def test_published_grid(runs, flags, count, epochs):
    run_in_process(*FLAGS_OF_ALL, *flags, "--grid=paper")
    assert len(runs) == count and {call["epochs"] for call in runs} == {epochs}
    assert [call["batch_size"] for call in runs[:2]] == ["16", "32"]


def test_checking_a_grid_does_not_change_flags(runs):
    with flagsaver.flagsaver():
        parse_flags(["train.py", *FLAGS_OF_ALL, "--grid=epochs=1,2 learning_rate=1e-5"])
        before = given()
        check_flags(["train.py"])
        assert FLAGS["epochs"].value is None and FLAGS["learning_rate"].value is None
        assert given() == before


@pytest.mark.long
@pytest.mark.once("torch")
def test_interrupted_grid_resumes_and_predicts_with_the_best(tmp_path, monkeypatch, capfd):
    train = write_squad(tmp_path / "train.json", 60, seed=1)
    dev = write_squad(tmp_path / "dev.json", 20, seed=2)
    output, answers = tmp_path / "out", tmp_path / "answers.json"
    given = [
        "--task=question_answering", f"--preset={save_preset(tmp_path / 'preset')}", *SIZES,
        f"--train_data={train}", f"--eval_data={dev}", f"--predict_data={dev}",
        f"--predictions={answers}", f"--output={output}", "--grid=learning_rate=1e-6,5e-3",
        "--seed=1", "--steps=80", "--eval_every=40",
    ]  # fmt: skip
    with start(*given) as process:
        is_second = False
        for line in process.stdout:
            is_second = is_second or line.startswith("Run 2 of 2")
            if is_second and line.startswith("step 40/80"):
                process.send_signal(signal.SIGINT)
                break
        out, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130, err
    assert f"Interrupted in run 2 of 2; --resume --output={output} continues" in out
    assert files.read_json(output / "metrics.json")["finished"] == 1
    bad, good = (output / f"learning_rate-{rate}" / "seed-1" for rate in ["1e-6", "5e-3"])
    first = (bad / "run.json").stat().st_mtime_ns
    monkeypatch.setattr(subprocess, "Popen", Forked)
    run_in_process("--resume", f"--output={output}")
    out = capfd.readouterr().out
    assert "Finished before: 1 of 2 runs" in out and "Continuing from step" in out
    assert "Wrote 20 answers" in out
    assert (bad / "run.json").stat().st_mtime_ns == first
    found = files.read_json(output / "metrics.json")
    assert found["finished"] == 2 and found["best"]["flags"] == {"learning_rate": 5e-3}
    means = [row["scores"]["f1"]["mean"] for row in found["combinations"]]
    assert means[0] > means[1]
    for folder, mean in zip([good, bad], means):
        rows = files.read_csv(folder / "history.csv")
        assert len(rows) == 2 and rows[-1]["step"] == "80"
        assert max(float(row["f1"]) for row in rows) == pytest.approx(mean)
        record = files.read_json(folder / "run.json")
        assert record["flags"]["seed"] == 1 and record["flags"]["grid"] is None
    best = files.read_json(good / "metrics.json")
    scores = metrics.squad(files.read_json(dev), files.read_json(answers))
    assert scores["f1"] == pytest.approx(best["f1"]) == pytest.approx(means[0])
