"""A run is not continued on other data than it started with."""

import pytest
from small_runs import start
from train_script import check_fails, run_in_process

pytestmark = pytest.mark.usefixtures("one_layer", "untraced")


@pytest.mark.once("torch")
def test_changed_text_is_refused(tmp_path, capsys):
    path = tmp_path / "text.txt"
    path.write_text("One two three four five six seven eight. Nine ten. " * 40)
    run = f"--output={tmp_path / 'run'}"
    run_in_process(
        f"--train_data={path}", f"--eval_data={path}", run, "--steps=2", "--batch_size=2",
        "--sequence_length=16", "--vocabulary_size=100", "--eval_steps=1", "--checkpoint_every=1",
    )  # fmt: skip
    path.write_text(path.read_text() + "Eleven.")
    check_fails(capsys, ["--resume", run], f"{path}, which has changed")


@pytest.mark.once("torch")
def test_changed_rows_are_refused(tmp_path, capsys):
    _, flags = start("classification", tmp_path)
    run = f"--output={tmp_path / 'run'}"
    run_in_process(*flags, run, "--steps=2", "--checkpoint_every=1")
    path = tmp_path / "rows.csv"
    path.write_text(path.read_text().rstrip("\n").rsplit("\n", 1)[0] + "\n")
    check_fails(capsys, ["--resume", run], "12 rows at the start and 11 now")
