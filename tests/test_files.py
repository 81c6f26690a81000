"""Files and folders are written whole or not at all."""

import csv
import json
import os

import pytest

from keras_spanbert import files


class NoText:
    def __str__(self):
        raise ValueError


def test_json_is_written_whole(tmp_path):
    path = tmp_path / "metrics.json"
    files.write_json(path, {"steps": 3, "name": "größe"})
    assert json.loads(path.read_text(encoding="utf-8")) == {"steps": 3, "name": "größe"}
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.json"]


def test_json_has_null_for_what_is_no_number(tmp_path):
    path = tmp_path / "metrics.json"
    files.write_json(path, {"pearson": float("nan"), "scores": [1.5, (float("-inf"),)], "n": 2})
    assert json.loads(path.read_text(), parse_constant=pytest.fail) == {
        "pearson": None,
        "scores": [1.5, [None]],
        "n": 2,
    }


def test_csv_leaves_what_a_row_lacks_empty(tmp_path):
    path = tmp_path / "history.csv"
    files.write_csv(path, [{"step": 1, "loss": 2.5}, {"step": 2, "f1": 3}])
    with open(path, newline="") as file:
        assert list(csv.DictReader(file)) == [
            {"step": "1", "loss": "2.5", "f1": ""},
            {"step": "2", "loss": "", "f1": "3"},
        ]


@pytest.mark.parametrize(
    "write",
    [
        lambda path: files.write_json(path, {"fits": 1, "does not": object()}),
        lambda path: files.write_csv(path, [{"step": 1}, {"step": NoText()}]),
    ],
    ids=["json", "csv"],
)
def test_failed_writing_leaves_the_old_file_alone(tmp_path, write):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises((TypeError, ValueError)):
        write(path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_new_folder_is_there_whole_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "model"
    with pytest.raises(RuntimeError), files.new_folder(path) as folder:
        with open(os.path.join(folder, "half"), "w") as file:
            file.write("x")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []  # Nor the folder above it.
    with files.new_folder(path, sync=True) as folder:
        assert not path.exists()
        os.mkdir(os.path.join(folder, "inner"))
    assert [p.name for p in path.iterdir()] == ["inner"]
    assert [p.name for p in path.parent.iterdir()] == ["model"]
    with pytest.raises(ValueError, match="new or empty. Received: .*model"):
        with files.new_folder(path):
            raise AssertionError("is not reached")
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ValueError, match="must be a folder. Received: .*new, where .*file is none"):
        files.check_new(tmp_path / "file" / "new")  # Before there is anything to write.


def test_files_added_to_a_folder_leave_the_others_alone(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "old").write_text("old")
    with pytest.raises(RuntimeError), files.added_to_folder(tmp_path) as folder:
        with open(os.path.join(folder, "old"), "w") as file:
            file.write("half")
        raise RuntimeError
    assert (tmp_path / "old").read_text() == "old"
    with files.added_to_folder(tmp_path) as folder:
        with open(os.path.join(folder, "old"), "w") as file:
            file.write("new")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"mine": "mine", "old": "new"}


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path):
    (tmp_path / ".model-x.partial").mkdir()
    (tmp_path / "metrics.json.partial").write_text("{")
    (tmp_path / "metrics.json").write_text("{}")
    files.remove_partial(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.json"]


@pytest.mark.parametrize(("text", "what"), [("{", "JSON in UTF-8"), ("[]", "JSON object")])
def test_file_that_is_no_json_object_is_named(tmp_path, text, what):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=f"a.json must (be|hold a) {what}"):
        files.read_json(tmp_path / "a.json")
