"""`train.py --seeds` and `--grid`: several runs, and what they say together."""

import csv
import json
import os
import signal
import subprocess

import pytest
from absl.testing import flagsaver
from forked import Forked
from squad_runs import SIZES, save_preset, write_squad
from train_script import TIMEOUT, check_mistake, in_process, start

from keras_spanbert import files, metrics
from keras_spanbert.recipes import grid, sweep
from keras_spanbert.recipes.flags import FLAGS, given
from keras_spanbert.recipes.run import check_flags, parse_flags

FLAGS_OF_ALL = ["--task=question_answering", "--preset=preset", "--train_data=train.json"]
FLAGS_OF_ALL += ["--eval_data=dev.json", "--output=out"]


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Runs that only write what a run would, with scores by their flags; gives what they got."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "preset").mkdir()
    for name in ["train.json", "dev.json"]:
        (tmp_path / name).write_text("{}")
    calls = []

    def start_run(arguments, signals, variables):
        flags = dict(argument.removeprefix("--").partition("=")[::2] for argument in arguments)
        calls.append({**flags, **variables})
        code = calls.codes.get(flags["output"], 0)
        if code is None:  # Before it began.
            return 2
        os.makedirs(flags["output"], exist_ok=True)
        if "train_data" not in flags:
            return code
        rate, seed = float(flags.get("learning_rate", 2e-5)), int(flags["seed"])
        f1 = 60.0 + 1e5 * rate + {0: 0.0, 1: 3.0, 2: 1.5}[seed]
        path = flags["output"]
        files.write_json(f"{path}/run.json", {"flags": {"steps": 9}, "given": {}})
        files.write_csv(f"{path}/history.csv", [{"step": 5, "f1": f1 / 2}, {"step": 9, "f1": f1}])
        metrics = {"steps": 4 if code else 9, "seconds": 1.5, "exact": f1 / 2, "f1": f1}
        files.write_json(f"{path}/metrics.json", {**metrics, "total": 40, "best_score": "f1"})
        return code

    class Calls(list):
        codes = {}

    calls = Calls()
    monkeypatch.setattr(sweep, "start_run", start_run)
    return calls


def test_seeds_are_summed_up(runs, capsys):
    in_process(*FLAGS_OF_ALL, "--seeds=3", "--epochs=2")
    assert [call["seed"] for call in runs] == ["0", "1", "2"]
    assert [call["output"] for call in runs] == [f"out/seed-{seed}" for seed in range(3)]
    for call in runs:
        assert call["train_data"] == "train.json" and call["epochs"] == "2"
        assert not {"seeds", "resume", "grid", "predictions"} & set(call)
    assert [call.get(sweep.SHARE) for call in runs] == ["3 3.0", None, None]
    found = files.read_json("out/metrics.json")
    f1 = found["scores"]["f1"]
    assert f1["values"] == {"0": 62.0, "1": 65.0, "2": 63.5}
    assert f1["mean"] == pytest.approx(63.5) and f1["standard_deviation"] == pytest.approx(1.5)
    assert f1["interval"] == pytest.approx([62.0, 65.0])
    assert found["scores"]["exact"]["mean"] == pytest.approx(31.75)
    assert set(found["scores"]) == {"f1", "exact"}  # No count.
    assert found["best"] == {"flags": {}, "seed": 1, "folder": "seed-1", "f1": 65.0}
    rows = read_csv("out/seeds.csv")
    assert [(row["seed"], row["folder"], row["f1"]) for row in rows] == [
        ("0", "seed-0", "62.0"), ("1", "seed-1", "65.0"), ("2", "seed-2", "63.5"),
    ]  # fmt: skip
    assert os.path.getsize("out/seeds.png") > 8_000
    lines = capsys.readouterr().out.splitlines()
    table = [line.split() for line in lines]
    assert ["mean", "sd", "95%", "interval"] in table
    assert ["f1", "63.50", "1.50", "62.00", "to", "65.00"] in table
    assert ["f1", "62.00", "65.00", "63.50"] in table
    assert lines[-2] == "Best on --eval_data: seed 1, f1 65.00, out/seed-1"
    assert lines[-1].startswith("Wrote metrics.json, seeds.csv, seeds.png, run.json")


def test_grid_is_sorted_by_the_mean_of_its_seeds(runs, capsys):
    values = "--grid=learning_rate=1e-5,3e-5 epochs=3,10"
    in_process(*FLAGS_OF_ALL, values, "--seeds=2", "--seed=1")
    assert [(call["learning_rate"], call["epochs"], call["seed"]) for call in runs] == [
        (rate, epochs, seed)
        for rate in ["1e-5", "3e-5"]
        for epochs in ["3", "10"]
        for seed in ["1", "2"]
    ]
    # Of 4 times 3 epochs and 4 times 10, the first run is 3.
    number, share = runs[0][sweep.SHARE].split()
    assert number == "8" and float(share) == pytest.approx(52 / 3)
    rows = read_csv("out/grid.csv")
    assert [(row["learning_rate"], row["epochs"]) for row in rows] == [
        ("3e-05", "3"), ("3e-05", "10"), ("1e-05", "3"), ("1e-05", "10"),
    ]  # fmt: skip
    # Seeds 1 and 2 add 3 and 1.5.
    assert float(rows[0]["f1"]) == pytest.approx(65.25) and rows[0]["runs"] == "2"
    assert float(rows[0]["f1_low"]) == pytest.approx(64.5)
    assert float(rows[2]["f1"]) == pytest.approx(63.25)
    assert os.path.getsize("out/grid.png") > 8_000 and not os.path.exists("out/seeds.csv")
    found = files.read_json("out/metrics.json")
    assert [row["flags"]["learning_rate"] for row in found["combinations"]] == [3e-5] * 2 + [
        1e-5
    ] * 2
    out = capsys.readouterr().out
    assert "Best on --eval_data: --learning_rate=3e-05 --epochs=3, mean f1 65.25" in out
    assert "seed 1, f1 66.00, out/learning_rate-3e-5_epochs-3/seed-1" in out


def test_only_what_is_missing_is_run_again_and_more_seeds(runs, capsys):
    runs.codes = {"out/seed-1": -9}
    with pytest.raises(SystemExit) as error:
        in_process(*FLAGS_OF_ALL, "--seeds=2", "--epochs=2")
    assert error.value.code == 1
    captured = capsys.readouterr()
    assert "seed-1 (exit code -9); --resume --output=out tries" in captured.err
    assert "1 of 2 runs" in captured.out
    runs.codes = {}
    del runs[:]
    in_process("--resume", "--output=out", "--seeds=3", "--checkpoint_every=7")
    assert [call["output"] for call in runs] == ["out/seed-1", "out/seed-2"]
    assert "resume" in runs[0] and "resume" not in runs[1]
    for call in runs:
        assert call["epochs"] == "2" and call["checkpoint_every"] == "7"
    assert files.read_json("out/metrics.json")["finished"] == 3
    del runs[:]
    in_process("--resume", "--output=out")
    assert not runs and "3 of 3 runs" in capsys.readouterr().out


def test_mistake_that_the_first_run_finds_ends_all(runs):
    runs.codes = {"out/seed-0": None}
    with pytest.raises(SystemExit) as error:
        in_process(*FLAGS_OF_ALL, "--seeds=3")
    assert error.value.code == 2 and len(runs) == 1
    assert not os.path.exists("out")


def test_predictions_and_export_are_of_the_best_run(runs, tmp_path):
    flags = ["--predict_data=dev.json", "--predictions=answers.json", "--export=served"]
    flags += ["--doc_stride=40", "--grid=learning_rate=1e-5,3e-5"]
    in_process(*FLAGS_OF_ALL, *flags)
    assert len(runs) == 3 and "predictions" not in runs[0] and "export" not in runs[1]
    last = runs[-1]
    assert last["preset"] == "out/learning_rate-3e-5/seed-0" and last["output"] == "out/best"
    assert last["predictions"] == "answers.json" and last["export"] == "served"
    assert last["doc_stride"] == "40"
    assert not {"train_data", "eval_data", "learning_rate"} & set(last)


def test_no_two_sweeps_in_one_folder(runs, tmp_path, capsys):
    in_process(*FLAGS_OF_ALL, "--seeds=1")
    with files.lock("out"), pytest.raises(SystemExit) as error:
        in_process("--resume", "--output=out")
    check_mistake(error.value.code, capsys.readouterr().err, "in use by another process")


# === Mistakes ===


@pytest.mark.parametrize(
    "flags, values",
    [
        (["--seeds=0"], ["--seeds=0"]),
        (["--seeds=2", "--eval_data="], ["--eval_data", "--seeds"]),
        (["--seeds=2", f"--seed={2**32 - 1}"], [f"--seed={2**32}", "below"]),
        (["--grid=learning_rate"], ["--grid", "learning_rate=1e-5,2e-5"]),
        (["--grid= "], ["--grid"]),
        (["--grid=learning_rate=1e-5,"], ["--grid", "with learning_rate=1e-5,"]),
        (["--grid=no_such=1,2"], ["numeric flags of training", "no_such"]),
        (["--grid=dtype=1,2"], ["numeric flags of training", "with dtype"]),
        (["--grid=seed=1,2"], ["--seeds"]),
        (["--grid=head_learning_rate=1e-4"], ["--task=question_answering", "head_learning_rate"]),
        (["--grid=epochs=2 epochs=3"], ["flags that differ"]),
        (["--grid=learning_rate=1e-5,0.00001"], ["--learning_rate that differ"]),
        (["--grid=epochs=1.5"], ["flag --epochs=1.5"]),
        (["--grid=learning_rate=1e-5,-1"], ["flag --learning_rate=-1"]),
        (["--grid=learning_rate=1e-5,nan"], ["`--learning_rate` must be a finite number", "nan"]),
        (["--grid=beta_2=0.9,1"], ["`--beta_2` must be in [0, 1)", "--beta_2=1"]),
        (["--grid=doc_stride=40,400"], ["--sequence_length=384", "--doc_stride=400"]),
        (["--grid=steps=1,2 epochs=3"], ["--steps", "exclude"]),
        (["--grid=epochs=1,2", "--epochs=3"], ["--epochs=3", "--grid", "by itself"]),
        (["--grid=dropout=0.1,0.2"], ["`--dropout` is for new models"]),
    ],
)
def test_mistake_names_what_is_wrong(runs, capsys, flags, values):
    names = {flag.split("=")[0] for flag in flags}
    usual = [flag for flag in FLAGS_OF_ALL if flag.split("=")[0] not in names]
    with pytest.raises(SystemExit) as error:
        in_process(*usual, *flags)
    check_mistake(error.value.code, capsys.readouterr().err, *values)
    assert not runs and not os.path.exists("out")


@pytest.mark.parametrize("flag", ["--seeds=2", "--grid=epochs=1,2"])
@pytest.mark.parametrize("task", ["pretrain", "prepare"])
def test_tasks_that_are_not_fine_tuned_take_none(runs, capsys, task, flag):
    with pytest.raises(SystemExit) as error:
        in_process(f"--task={task}", "--train_data=train.json", "--output=out", flag)
    name = flag.split("=")[0]
    check_mistake(error.value.code, capsys.readouterr().err, f"--task={task} takes no {name}")


def test_run_of_its_own_becomes_no_sweep(runs, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    given = {"task": "question_answering", "preset": "preset", "train_data": ["train.json"]}
    given["eval_data"] = ["dev.json"]
    files.write_json("out/run.json", {"flags": given, "given": given})
    with pytest.raises(SystemExit) as error:
        in_process("--resume", "--output=out", "--seeds=2")
    check_mistake(error.value.code, capsys.readouterr().err, "--output=out, which is one run")


def test_several_processes_are_refused(runs, capsys, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SystemExit) as error:
        in_process(*FLAGS_OF_ALL, "--seeds=2")
    check_mistake(error.value.code, capsys.readouterr().err, "WORLD_SIZE=2", "one process")


def test_other_values_than_those_of_the_sweep_are_refused(runs, capsys):
    in_process(*FLAGS_OF_ALL, "--grid=epochs=1,2")
    for flags, value in [(["--grid=epochs=1,3"], "epochs=1,2"), (["--batch_size=8"], "32")]:
        with pytest.raises(SystemExit) as error:
            in_process("--resume", "--output=out", *flags)
        check_mistake(error.value.code, capsys.readouterr().err, "own flags", value)


def test_grid_of_the_paper(runs):
    in_process(*FLAGS_OF_ALL, "--grid=paper", "--learning_rate=2e-5")
    assert [(call["batch_size"], call["epochs"]) for call in runs] == [("16", "4"), ("32", "4")]
    del runs[:]
    flags = [flag for flag in FLAGS_OF_ALL if "question" not in flag and "out" not in flag]
    in_process("--task=classification", "--output=classes", "--grid=paper", *flags)
    assert len(runs) == 10 and {call["epochs"] for call in runs} == {"10"}
    del runs[:]
    in_process("--task=classification", "--benchmark=cola", "--output=cola", "--grid=paper", *flags)
    assert len(runs) == 10 and {call["epochs"] for call in runs} == {"4"}


def test_numbers_of_the_task_itself_are_taken(runs):
    for task, flag in [("coreference", "max_span_width"), ("question_answering", "doc_stride")]:
        with flagsaver.flagsaver():
            parse_flags(["train.py", f"--task={task}", f"--grid={flag}=8,16"])
            assert grid.combinations() == [{flag: "8"}, {flag: "16"}]


def test_check_of_a_grid_leaves_flags_as_they_were(runs):
    with flagsaver.flagsaver():
        parse_flags(["train.py", *FLAGS_OF_ALL, "--grid=epochs=1,2 learning_rate=1e-5"])
        before = given()
        check_flags(["train.py"])
        assert FLAGS["epochs"].value is None and FLAGS["learning_rate"].value is None
        assert given() == before


# === Processes ===


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    preset = save_preset(folder / "preset")
    train, dev = (
        write_squad(folder / f"{name}.json", count, seed)
        for name, count, seed in [("train", 60, 1), ("dev", 20, 2)]
    )
    data = [f"--train_data={train}", f"--eval_data={dev}", f"--predict_data={dev}"]
    return ["--task=question_answering", f"--preset={preset}", *data[:2], *SIZES], data[2]


@pytest.mark.slow
@pytest.mark.once("torch")
def test_interrupted_grid_goes_on_where_it_stood_and_gives_the_answers_of_the_best(
    flags, tmp_path, monkeypatch, capfd
):
    output, answers = tmp_path / "out", tmp_path / "answers.json"
    shape = ["--grid=learning_rate=1e-6,5e-3", "--seed=1", "--steps=200", "--eval_every=40"]
    given = [*flags[0], flags[1], *shape, f"--predictions={answers}", f"--output={output}"]
    with start(*given) as process:
        lines = []
        for line in process.stdout:
            lines.append(line)
            is_second = any(line.startswith("Run 2 of 2") for line in lines)
            if is_second and line.startswith("step 40/200"):
                process.send_signal(signal.SIGINT)
                break
        out, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130, err
    assert any("All 2 runs: " in line for line in lines)
    assert f"Interrupted in run 2 of 2; --resume --output={output} goes on" in out
    assert json.loads((output / "metrics.json").read_text())["finished"] == 1
    bad, good = (output / f"learning_rate-{rate}" / "seed-1" for rate in ["1e-6", "5e-3"])
    first = (bad / "run.json").stat().st_mtime_ns
    monkeypatch.setattr(subprocess, "Popen", Forked)
    in_process("--resume", f"--output={output}")
    out = capfd.readouterr().out
    assert "1 of 2 runs are finished" in out and "Going on from step" in out
    assert "Wrote 20 answers" in out
    assert (bad / "run.json").stat().st_mtime_ns == first
    found = json.loads((output / "metrics.json").read_text())
    assert found["finished"] == 2 and found["best"]["flags"] == {"learning_rate": 5e-3}
    means = [row["scores"]["f1"]["mean"] for row in found["combinations"]]
    assert means[0] > means[1]
    for folder, mean in zip([good, bad], means):
        rows = read_csv(folder / "history.csv")
        assert len(rows) == 5 and rows[-1]["step"] == "200"
        assert max(float(row["f1"]) for row in rows) == pytest.approx(mean)
        record = json.loads((folder / "run.json").read_text())
        assert record["flags"]["seed"] == 1 and record["flags"]["grid"] is None
    best = json.loads((good / "metrics.json").read_text())
    dataset = json.loads((tmp_path / flags[1].partition("=")[2]).read_text())
    scores = metrics.squad(dataset, json.loads(answers.read_text()))
    assert scores["f1"] == pytest.approx(best["f1"]) == pytest.approx(means[0])
