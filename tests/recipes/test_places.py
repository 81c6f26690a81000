"""No run overwrites what it did not write, and places are checked before anything is read."""

import json
import os
import shutil

import pytest
from train_script import check_alone, check_mistake, in_process

from keras_spanbert.recipes.question_answering import n_best_path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a preset, questions, text and answers."""
    monkeypatch.chdir(tmp_path)
    for name in ["preset", "texts", "data/more"]:
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "texts" / "a.txt").write_text("Some text.")
    names = ["preset/config.json", "data/dev.json", "data/more/a.json"]
    for name in [*names, "old.json", "other.nbest.json"]:
        (tmp_path / name).write_text("{}")
    return tmp_path


ANSWERING = ["--task=question_answering", "--preset=preset", "--predict_data=data/dev.json"]


def listing(folder):
    return {path: path.is_file() and path.read_text() for path in folder.rglob("*")}


@pytest.mark.parametrize(
    "flags, values",
    [
        # The input itself, earlier answers, and the n-best of some.
        (["--predictions=data/dev.json"], ["new file", "--predictions=data/dev.json"]),
        (["--predictions=old.json"], ["new file", "name another"]),
        (["--predictions=other.json"], ["new file", "other.nbest.json exists"]),
        (["--predictions=data"], ["new file", "data exists"]),
        (["--predictions=no/such/answers.json"], ["folder that exists", "no/such/answers.json"]),
        (["--predictions=data/new/"], ["must be a file", "data/new/"]),
        (["--predictions=old.json/answers.json"], ["folder that exists", "old.json/answers.json"]),
        # Files of the run, where its folder is new or not.
        (["--predictions=run/metrics.json", "--output=run"], ["outside of --output", "run"]),
        (["--predictions=run/b/answers.json", "--output=run"], ["outside of --output", "run"]),
        # What the same command would read when it is given again.
        (["--predictions=data/a.json", "--eval_data=data/*.json"], ["--eval_data=data/*.json"]),
        (["--predictions=data/a.json", "--eval_data=**/*.json"], ["--eval_data=**/*.json"]),
        (["--output=data/run", "--eval_data=data/*"], ["`--output`", "--eval_data=data/*"]),
        (["--output=data/run", "--eval_data=data/*/*.json"], ["`--output`", "data/run"]),
        (["--output=data/x/run", "--eval_data=data/**"], ["`--output`", "data/x/run"]),
        (["--export=data/served", "--eval_data=data/**/*"], ["`--export`", "data/served"]),
        (["--output=preset"], ["new or empty", "preset"]),
        (["--export=preset"], ["folder of its own", "--export=preset"]),
        (["--export=run", "--output=./run"], ["folder of its own", "--export=run"]),
        (["--output=old.json"], ["`--output` must be a folder", "old.json"]),
        (["--output=old.json/run"], ["`--output` must be a folder", "old.json is none"]),
        (["--export=old.json/served"], ["`--export` must be a folder", "old.json is none"]),
    ],
)
def test_mistake_of_a_place_names_it_and_writes_nothing(folder, capsys, flags, values):
    before = listing(folder)
    given = {flag.split("=")[0] for flag in flags}
    predictions = [] if "--predictions" in given else ["--predictions=new.json"]
    with pytest.raises(SystemExit) as error:
        in_process(*ANSWERING, *predictions, *flags)
    check_mistake(error.value.code, capsys.readouterr().err, *values)
    assert listing(folder) == before


@pytest.mark.parametrize(
    "flag", ["--output=locked/run", "--export=locked", "--predictions=locked/a"]
)
def test_mistake_of_a_folder_that_cannot_be_written_names_it(folder, capsys, monkeypatch, flag):
    (folder / "locked").mkdir()
    access = os.access  # Root may write anywhere.
    monkeypatch.setattr(
        os, "access", lambda path, mode: "locked" not in str(path) and access(path, mode)
    )
    predictions = [] if "predictions" in flag else ["--predictions=new.json"]
    with pytest.raises(SystemExit) as error:
        in_process(*ANSWERING, *predictions, flag)
    check_mistake(error.value.code, capsys.readouterr().err, flag.split("=")[0], "locked")


def test_run_without_output_checks_where_it_would_write(folder, capsys):
    (folder / "saved_models").write_text("a file")
    with pytest.raises(SystemExit) as error:
        in_process(*ANSWERING, "--predictions=new.json")
    check_mistake(error.value.code, capsys.readouterr().err, "`--output`", "saved_models is none")


@pytest.mark.parametrize(
    "flags",
    [
        ["--predictions=new.json", "--output=runs/run", "--export=runs/served"],
        ["--predictions=data/answers.json", "--eval_data=data/dev*.json"],
        ["--predictions=answers.txt", "--eval_data=**/*.json", "--output=../run"],
        ["--predictions=new.json", "--output=run", "--eval_data=data/*.json"],
        ["--predictions=new.json", "--output=data", "--eval_data=old.json"],
    ],
)
def test_places_that_are_free_are_taken(folder, flags):
    if "--output=data" in flags:
        (folder / "data" / "dev.json").rename(folder / "dev.json")
        shutil.rmtree(folder / "data" / "more")
        flags = [*flags, "--predict_data=dev.json"]
    check_alone(*ANSWERING, *flags)


def test_only_question_answering_needs_a_place_for_the_best_answers(folder):
    (folder / "other.nbest.json").rename(folder / "found.nbest.json")
    (folder / "data" / "dev.conll").write_text("")
    check_alone(
        "--task=coreference", "--preset=preset", "--predict_data=data/dev.conll",
        "--predictions=found.conll",
    )  # fmt: skip


def test_run_that_goes_on_does_not_overwrite_its_answers(folder, capsys):
    (folder / "run").mkdir()
    given = {"task": "question_answering", "preset": "preset"}
    given |= {"predict_data": ["data/dev.json"], "predictions": "old.json"}
    record = {"given": given, "flags": given, "versions": {}}
    (folder / "run" / "run.json").write_text(json.dumps(record))
    resumed = ["--resume", "--output=run"]
    with pytest.raises(SystemExit) as error:
        in_process(*resumed)
    values = ["new file", "old.json", "--predict_data= --predictions="]
    check_mistake(error.value.code, capsys.readouterr().err, *values)
    check_alone(*resumed, "--predictions=new.json")
    check_alone(*resumed, "--predict_data=", "--predictions=", "--eval_data=data/dev.json")


def test_n_best_never_has_the_name_of_the_answers():
    assert n_best_path("out/answers.json") == "out/answers.nbest.json"
    for path in ["a", "a.json", "a.nbest", "a.nbest.json", "b.c/a"]:
        assert n_best_path(path) != path
