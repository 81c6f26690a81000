"""Atomic writing of files and folders."""

import errno
import json
import os
import pathlib
import shutil
from unittest import mock

import pytest

from keras_spanbert import files
from keras_spanbert.data.text_files import find_files
from keras_spanbert.runs import checkpoint_folder


def test_json_has_null_for_nan_and_infinity(tmp_path):
    path = tmp_path / "metrics.json"
    files.write_json(path, {"größe": float("nan"), "scores": [1.5, (float("-inf"),)]})
    found = json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert found == {"größe": None, "scores": [1.5, [None]]}
    with mock.patch("json.loads", pytest.fail):  # Other values need no copy.
        files.write_json(path, {"f1": (1.5,)})
    assert json.loads(path.read_text()) == {"f1": [1.5]}
    assert os.listdir(tmp_path) == ["metrics.json"]


def test_csv_has_empty_cells_for_missing_values(tmp_path):
    path = tmp_path / "history.csv"
    files.write_csv(path, [{"step": 1, "loss": 2.5}, {"step": 2, "f1": 3}])
    first, second = {"step": "1", "loss": "2.5", "f1": ""}, {"step": "2", "loss": "", "f1": "3"}
    assert files.read_csv(path) == [first, second]
    with pytest.raises(TypeError):
        files.write_csv(path, [], delimiter="two")
    assert files.read_csv(path) == [first, second]  # A failed write keeps the old file.


def test_file_is_on_the_disk_before_it_is_renamed(tmp_path, monkeypatch):
    calls = []
    for name in ["fsync", "replace"]:
        function = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *args, name=name, call=function: calls.append(name) or call(*args)
        )
    files.write_json(tmp_path / "a.json", {})
    assert calls == ["fsync", "replace"] and os.listdir(tmp_path) == ["a.json"]
    with pytest.raises(ValueError, match="a path"):
        files.write_json(None, {})


@pytest.mark.parametrize(
    "error, message",
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "No space left on device: '.*loss.png'"),
        (OSError("encoder error -2"), f"Errno {errno.EIO}] encoder error -2: '.*loss.png'"),
        (FileNotFoundError(errno.ENOENT, "No such file", "a.txt"), "No such file: 'a.txt'"),
    ],
)
def test_error_of_writing_names_the_file(tmp_path, error, message):
    with pytest.raises(OSError, match=f"{message}$"):
        with files.atomic_write(str(tmp_path / "loss.png")):
            raise error
    assert not list(tmp_path.iterdir())


def test_folder_is_renamed_before_it_is_removed(tmp_path, monkeypatch):
    def rmtree(path):
        raise KeyboardInterrupt

    (tmp_path / "step-1").mkdir()
    monkeypatch.setattr(shutil, "rmtree", rmtree)
    with pytest.raises(KeyboardInterrupt):
        checkpoint_folder._remove(str(tmp_path / "step-1"))
    assert os.listdir(tmp_path) == ["step-1.partial"]


def test_new_folder_is_complete_or_missing(tmp_path):
    path = tmp_path / "deep" / "model"
    with pytest.raises(RuntimeError), files.new_folder(path) as folder:
        with open(os.path.join(folder, "half"), "w") as file:
            file.write("x")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []  # The parent folder is removed too.
    with files.new_folder(path) as folder:
        assert not path.exists()
        os.mkdir(os.path.join(folder, "inner"))
    assert [p.name for p in path.iterdir()] == ["inner"]
    assert [p.name for p in path.parent.iterdir()] == ["model"]
    (tmp_path / "a_file").touch()
    (tmp_path / "a_link").symlink_to(tmp_path / "nothing")
    for taken in (path, tmp_path / "a_file", tmp_path / "a_link"):
        with pytest.raises(ValueError, match=f"new or empty. Received: .*{taken.name}"):
            files.check_new(taken)
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(
        ValueError, match="must be a folder. Received: .*new, where .*file is not a folder"
    ):
        files.check_new(tmp_path / "file" / "new")  # Before anything is written.


def test_error_while_files_are_moved_restores_all(tmp_path, monkeypatch):
    names = ["config.json", "a.h5", "sub/b.txt", "new/c.txt"]

    def write(folder, text):
        for name in names:
            path = pathlib.Path(folder) / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)

    write(tmp_path, "old")
    shutil.rmtree(tmp_path / "new")
    (tmp_path / "mine").write_text("mine")
    before = {p: p.is_file() and p.read_text() for p in tmp_path.rglob("*")}
    replace, moved = os.replace, []
    for number in range(1, 8):

        def fail(source, target, number=number):
            moved.append(target)
            if len(moved) == number:  # Later moves restore the files.
                raise KeyboardInterrupt
            replace(source, target)

        moved.clear()
        monkeypatch.setattr(os, "replace", fail)
        with pytest.raises(KeyboardInterrupt), files.add_to_folder(tmp_path) as folder:
            write(folder, "new")
        assert {p: p.is_file() and p.read_text() for p in tmp_path.rglob("*")} == before
    # Without `config.json` no library loads a mixture of files.
    moved.clear()
    monkeypatch.setattr(os, "replace", lambda x, y: moved.append(y) or replace(x, y))
    with files.add_to_folder(tmp_path) as folder:
        write(folder, "new")
    names_moved = [os.path.basename(path) for path in moved]
    assert names_moved[0] == names_moved[-1] == "config.json" and len(moved) == 7
    assert {(tmp_path / name).read_text() for name in names} == {"new"}
    assert (tmp_path / "mine").read_text() == "mine"


def test_checksums_of_replaced_files_are_removed(tmp_path):
    (tmp_path / "a").write_text("old")
    (tmp_path / "b").write_text("b")
    for replaced, is_kept in [("other", True), ("a", False)]:
        sums = [f"{files.sha256(tmp_path / name)}  {name}\n" for name in ["a", "b"]]
        (tmp_path / "SHA256SUMS").write_text("".join(sums))
        with files.add_to_folder(tmp_path) as folder:
            (pathlib.Path(folder) / replaced).write_text("new")
        assert (tmp_path / "SHA256SUMS").exists() == is_kept
    (tmp_path / "SHA256SUMS").write_text("notes")  # The user's own file.
    with files.add_to_folder(tmp_path) as folder:
        (pathlib.Path(folder) / "a").write_text("new")
    assert (tmp_path / "SHA256SUMS").read_text() == "notes"


@pytest.mark.parametrize(
    "given, found",
    [
        ("draft[1].txt", ["draft[1].txt"]),
        ("draft[12].txt", ["draft1.txt"]),
        ("draft[[]1].txt", ["draft[1].txt"]),
        ("run [a]/x*.txt", ["run [a]/x.txt"]),
        ("./*.txt", ["./draft1.txt", "./draft[1].txt"]),
        ("~/draft1.txt", ["HOME/draft1.txt"]),
        ("~odd*.txt", "write ./~odd"),
        ("~odd/x", ["~odd/x"]),
        ("~nobody_here/x", "home folder of a user.*write ./~nobody_here/x"),
    ],
)
def test_existing_names_are_no_globs_and_tilde_is_home(tmp_path, monkeypatch, given, found):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ["draft1.txt", "draft[1].txt", "run [a]/x.txt", "run a/x.txt", "~odd/x"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text")
    if isinstance(found, str):
        with pytest.raises(ValueError, match=found):
            find_files(given)
    else:
        assert find_files(given) == [name.replace("HOME", str(tmp_path)) for name in found]


@pytest.mark.parametrize("target", ["store/a.txt", "/dev/shm/keras_spanbert.txt"])
def test_links_are_written_through(tmp_path, monkeypatch, target):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("store").mkdir()
    if not os.path.isdir(os.path.dirname(target)):
        pytest.skip("There is no second disk")
    pathlib.Path("link.txt").symlink_to(target)  # To a file that is created.
    try:
        for text in ["one", "two"]:
            with files.atomic_write("link.txt") as file:
                file.write(text)
            assert pathlib.Path(target).read_text() == text
            with files.add_to_folder(".") as folder:
                pathlib.Path(folder, "link.txt").write_text(text * 2)
            assert pathlib.Path(target).read_text() == text * 2
        with pytest.raises(KeyboardInterrupt), files.add_to_folder(".") as folder:
            pathlib.Path(folder, "link.txt").write_text("half")
            pathlib.Path(folder, "z").write_text("half")
            replace = os.replace

            def fail(source, path):
                if path.endswith("/z"):
                    raise KeyboardInterrupt
                replace(source, path)

            monkeypatch.setattr(os, "replace", fail)
        assert os.path.islink("link.txt") and pathlib.Path(target).read_text() == "twotwo"
        assert sorted(os.listdir()) == ["link.txt", "store"]
        assert [name for name in os.listdir(os.path.dirname(target)) if "partial" in name] == []
    finally:
        pathlib.Path(target).unlink(missing_ok=True)


def test_new_folder_is_written_through_a_link(tmp_path):
    (tmp_path / "v1").mkdir()
    (tmp_path / "latest").symlink_to("v1")
    with files.new_folder(tmp_path / "latest") as folder:
        pathlib.Path(folder, "x").touch()
    assert os.listdir(tmp_path / "v1") == ["x"] and (tmp_path / "latest").is_symlink()


def test_only_leftovers_of_killed_processes_are_removed(tmp_path):
    (tmp_path / ".model-x.partial").mkdir()
    (tmp_path / "metrics.json.partial").write_text("{")
    (tmp_path / "metrics.json").write_text("{}")
    files.remove_partial(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.json"]


@pytest.mark.parametrize(("text", "what"), [("{", "JSON in UTF-8"), ("[]", "JSON object")])
def test_invalid_json_file_is_named(tmp_path, text, what):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=f"a.json must (be|have a) {what}"):
        files.read_json(tmp_path / "a.json")
