"""Runs never overwrite other files, and check output paths before reading data."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from absl.testing import flagsaver
from train_script import check_fails, check_flags_only, write_record

from keras_spanbert.recipes.flags import FLAGS
from keras_spanbert.recipes.run import parse_flags
from keras_spanbert.recipes.run_folder import reserve_output_folder


@pytest.fixture
def folder(folder):
    """A working directory with a preset, questions and answers."""
    for name in ["preset", "empty", "data/more"]:
        (folder / name).mkdir(parents=True)
    names = ["preset/config.json", "data/dev.json", "data/more/a.json"]
    for name in [*names, "old.json", "other.nbest.json"]:
        (folder / name).write_text("{}")
    return folder


ANSWERING = ["--task=question_answering", "--preset=preset", "--predict_data=data/dev.json"]


def listing(folder):
    return {path: path.is_file() and path.read_text() for path in folder.rglob("*")}


@pytest.mark.parametrize(
    "flags, values",
    [
        # The input, earlier answers, and earlier n-best answers.
        (["--predictions=data/dev.json"], ["new file", "--predictions=data/dev.json"]),
        (["--predictions=old.json"], ["new file", "another name"]),
        (["--predictions=other.json"], ["new file", "other.nbest.json exists"]),
        (["--predictions=no/such/answers.json"], ["existing folder", "no/such/answers.json"]),
        (["--predictions=data/new/"], ["must be a file", "data/new/"]),
        # Files of the run, in a new or an existing folder.
        (["--predictions=run/b/answers.json", "--output=run"], ["outside --output", "run"]),
        # Files that the same command would read the next time.
        (["--predictions=data/a.json", "--eval_data=**/*.json"], ["--eval_data=**/*.json"]),
        (["--output=data/run", "--eval_data=data/*"], ["`--output`", "--eval_data=data/*"]),
        (["--output=data/run", "--eval_data=data/*/*.json"], ["`--output`", "data/run"]),
        (["--output=data/x/run", "--eval_data=data/**"], ["`--output`", "data/x/run"]),
        (["--export=data/served", "--eval_data=data/**/*"], ["`--export`", "data/served"]),
        (["--output=preset"], ["new or empty", "preset"]),
        (["--output=~nobody_here/run"], ["home folder of a user", "./~nobody_here/run"]),
        (["--export=preset"], ["folder of its own", "--export=preset"]),
        (["--export=run", "--output=./run"], ["folder of its own", "--export=run"]),
        (
            ["--export=saved_models/question_answering", "--eval_data=data/dev.json"],
            ["folder of its own", "--export=saved_models/question_answering"],
        ),
        (["--output=old.json/run"], ["`--output` must be a folder", "old.json is not a folder"]),
        (["--export=preset", "--preset=data"], ["`--export` must not be", "preset"]),
    ],
)
def test_invalid_path_is_named_and_nothing_is_written(folder, capsys, flags, values):
    before = listing(folder)
    given = {flag.split("=")[0] for flag in flags}
    predictions = [] if "--predictions" in given else ["--predictions=new.json"]
    check_fails(capsys, [*ANSWERING, *predictions, *flags], *values)
    assert listing(folder) == before


@pytest.mark.parametrize("flag", ["--output=locked/a", "--export=locked", "--predictions=locked/a"])
def test_unwritable_folder_is_named(folder, capsys, monkeypatch, flag):
    (folder / "locked").mkdir()
    access = os.access  # root can write anywhere.
    monkeypatch.setattr(os, "access", lambda p, mode: "locked" not in str(p) and access(p, mode))
    predictions = [] if "predictions" in flag else ["--predictions=new.json"]
    check_fails(capsys, [*ANSWERING, *predictions, flag], flag.split("=")[0], "locked")


def test_run_without_output_checks_the_default_folder(folder, capsys):
    (folder / "saved_models").write_text("a file")
    flags = [*ANSWERING, "--predictions=new.json"]
    evaluate = "--eval_data=data/dev.json"
    check_fails(capsys, [*flags, evaluate], "`--output`", "saved_models is not a folder")
    check_flags_only(*flags)  # Writes nothing there.


@pytest.mark.parametrize(
    "flags",
    [
        ["--predictions=new.json", "--output=runs/run", "--export=runs/served"],
        ["--predictions=data/answers.json", "--eval_data=data/dev*.json"],
        ["--predictions=answers.json", "--eval_data=data/**/*.json", "--output=../run"],
        ["--predictions=new.json", "--output=run", "--eval_data=data/*.json"],
        ["--predictions=new.json", "--output=empty"],
        ["--predictions=link.json"],
        ["--predictions=[b].json", "--output=[b]", "--eval_data=data[1]/*.json,data/*.json"],
    ],
)
def test_free_paths_are_accepted(folder, flags):
    (folder / "link.json").symlink_to("data/linked.json")
    (folder / "data[1]").mkdir()
    (folder / "data[1]" / "a.json").touch()
    check_flags_only(*ANSWERING, *flags)


def test_run_killed_while_writing_its_flags_can_start_again(folder):
    for name in ["checkpoints", ".run.json-0a1b2c3d.partial"]:
        (folder / "run" / name).mkdir(parents=True)
    check_flags_only(*ANSWERING, "--predictions=new.json", "--output=run", "--resume")


@flagsaver.flagsaver
def test_tilde_is_home_in_path_flags(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder))
    lists, paths = ["train_data", "eval_data", "predict_data"], ["output", "export", "predictions"]
    paths += ["preset", "vocabulary", "html", "span_annotator"]
    parse_flags(["train.py", *(f"--{name}=~/a" for name in [*lists, *paths])])
    assert {FLAGS[name].value for name in paths} == {f"{folder}/a"}
    assert [FLAGS[name].value for name in lists] == [[f"{folder}/a"]] * 3


@pytest.mark.parametrize(
    "task, data, others, extensions",
    [
        ("question_answering", "a.json", [], [".json"]),
        ("classification", "a.csv", [], [".csv", ".tsv", ".jsonl"]),
        ("relation_extraction", "a.json", ["--dataset=tacred"], [".txt", ".tsv"]),
        ("multiple_choice", "a.csv", ["--dataset=cosmos_qa"], [".lst", ".txt", ".csv"]),
        ("token_classification", "a.conll", [], [".conll", ".txt", ".csv", ".tsv", ".jsonl"]),
        ("token_classification", "a.csv", ["--text_column=text"], [".jsonl"]),
        ("coreference", "a.conll", [], [".jsonlines", ".jsonl", ".conll"]),
    ],
)
def test_extension_of_predictions_is_checked_early(folder, task, data, others, extensions):
    (folder / data).write_bytes(b"\xff")  # Reading it would fail.
    flags = [f"--task={task}", "--preset=preset", f"--predict_data={data}", *others]
    rule = f"`--predictions` must be a file that ends in {', '.join(extensions)}. Received"
    with pytest.raises(ValueError, match=rule):
        check_flags_only(*flags, "--predictions=new.json.gz")
    for extension in extensions:
        check_flags_only(*flags, f"--predictions=new{extension}")


def test_resumed_run_does_not_overwrite_predictions(folder, capsys):
    given = {"task": "question_answering", "preset": "preset"}
    given |= {"predict_data": ["data/dev.json"], "predictions": "old.json"}
    write_record(folder / "run", given)
    resumed = ["--resume", "--output=run"]
    check_fails(capsys, resumed, "new file", "old.json", "--predict_data= --predictions=")
    check_flags_only(*resumed, "--predictions=new.json")
    check_flags_only(*resumed, "--predict_data=", "--predictions=", "--eval_data=data/dev.json")


def test_simultaneous_runs_use_different_folders(folder):
    with flagsaver.flagsaver(task="pretrain", output=None), ThreadPoolExecutor(8) as pool:
        barrier = threading.Barrier(8)

        def start(_):
            barrier.wait()
            return reserve_output_folder()

        found = list(pool.map(start, range(8)))
    names = ["pretrain", *(f"pretrain-{i}" for i in range(2, 9))]
    assert sorted(found) == [os.path.join("saved_models", name) for name in names]
    assert sorted(os.listdir("saved_models")) == names


def test_error_in_the_data_leaves_no_default_folder(folder, capsys):
    (folder / "rows.jsonl").write_text('{"text": ""}\n')
    check_fails(capsys, ["--task=prepare", "--train_data=rows.jsonl"], "rows.jsonl")
    assert not os.listdir("saved_models")
