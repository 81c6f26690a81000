"""train.py --resume: runs that stop early, and mistakes with them."""

import json
import os
import subprocess
import sys

import pytest
from forked import Forked
from train_script import ROOT, check_alone, check_mistake, in_process

pytestmark = pytest.mark.usefixtures("one_layer", "untraced")

TINY = [
    "--vocabulary_size=200", "--sequence_length=16", "--batch_size=4", "--size=tiny",
    "--dropout=0.1", "--steps=14", "--eval_every=4", "--eval_steps=2", "--checkpoint_every=3",
    "--shuffle_blocks=8",
]  # fmt: skip
# As `one_layer` and `untraced`.
TRAIN = """
import keras
from keras_spanbert import SpanBertBackbone
from keras_spanbert_commands import train
SpanBertBackbone.SIZES["tiny"].update(num_layers=1, num_heads=2, hidden_dim=16)
keras.Model.run_eagerly = property(lambda self: True, lambda self, value: None)
train()
"""


@pytest.fixture(scope="module")
def finished(texts, tmp_path_factory):
    """A run that was told to go on where another one was killed before it wrote its flags."""
    output = tmp_path_factory.mktemp("finished") / "run"
    (output / "checkpoints").mkdir(parents=True)
    in_process(f"--train_data={texts}", f"--output={output}", "--resume", *TINY)
    return output


def newest(output):
    steps = [int(name.split("-")[1]) for name in os.listdir(output / "checkpoints") if "-" in name]
    return max(steps)


# That what is in a checkpoint is all that a run needs, runs/test_training_checkpoint.py and the
# other recipes tell on each backend.
@pytest.mark.once
def test_killed_runs_end_like_one_in_peace(texts, tmp_path, monkeypatch, capsys):
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import resume

    monkeypatch.setattr(resume, "TRAIN", tmp_path / "train.py")
    # Halfway through, and while a checkpoint is being written.
    flags = ["--kills=2", "--seed=7", "--", f"--train_data={texts}", *TINY, "--steps=8"]
    monkeypatch.setattr(sys, "argv", ["resume.py", *flags])
    monkeypatch.setattr(subprocess, "Popen", Forked)
    Forked([sys.executable, "-c", ""]).wait()  # The moment is by the time the first run takes.
    resume.main()
    out = capsys.readouterr().out
    assert "killed 2 times" in out and "largest difference of history and weights: 0" in out


def test_run_that_was_killed_before_it_wrote_its_flags_starts_anew(finished):
    assert newest(finished) == 14
    assert json.loads((finished / "metrics.json").read_text())["steps"] == 14


def test_finished_run_is_not_trained_again_and_answers_to_its_output_alone(finished, capsys):
    history = (finished / "history.csv").read_text()
    in_process(f"--output={finished}", "--resume")
    out = capsys.readouterr().out
    assert "Going on from step 14" in out
    assert not any(words in out for words in ["counting tokens", "and words", "vocabulary"])
    assert (finished / "history.csv").read_text() == history
    assert newest(finished) == 14


@pytest.mark.once("torch")
def test_a_number_of_steps_that_is_too_large_for_a_run_is_taken_again(texts, tmp_path, capsys):
    flags = [f"--train_data={texts}", f"--output={tmp_path / 'run'}", "--resume", *TINY]
    for _ in range(2):
        in_process(*flags, "--eval_every=50")
    assert "Going on from step 14" in capsys.readouterr().out


# === Mistakes ===


def mistake(capsys, flags, *values):
    with pytest.raises(SystemExit) as error:
        in_process(*flags)
    check_mistake(error.value.code, capsys.readouterr().err, *values)


@pytest.mark.once
def test_mistake_of_no_output_to_resume(capsys):
    mistake(capsys, ["--resume"], "--resume", "--output")


@pytest.mark.once
def test_mistake_of_a_run_of_another_version(tmp_path, capsys):
    (tmp_path / "run.json").write_text(json.dumps({"versions": {"keras-spanbert": "0.0.9"}}))
    flags = [f"--output={tmp_path}", "--resume"]
    mistake(capsys, flags, "of this version", "of version 0.0.9")


@pytest.mark.once
def test_mistake_of_another_flag_names_both_values(finished, capsys):
    resumed = [f"--output={finished}", "--resume"]
    # What works instead.
    values = [f"--preset={finished}", "--resume"]
    for flag, difference in [
        ("--batch_size=8", "--batch_size is 4, here 8"),
        ("--steps=28", "--steps is 14, here 28"),
        ("--train_data=README.md", "here ['README.md']"),
        ("--task=prepare", "--task is 'pretrain', here 'prepare'"),
    ]:
        mistake(capsys, [*resumed, flag], difference, *values)


@pytest.mark.once
def test_flags_as_they_were_or_of_the_machine_are_taken(finished):
    resumed = [f"--output={finished}", "--resume", "--batch_size=4", "--dropout=0.1"]
    check_alone(*resumed, "--checkpoint_every=7", "--keep_checkpoints=1", "--distribution=none")


@pytest.mark.once
def test_run_without_a_preset_is_no_preset_of_another(tmp_path, capsys):
    record = {"given": {"seed": 1}, "flags": {"seed": 1}, "versions": {}}
    (tmp_path / "run.json").write_text(json.dumps(record))
    flags = [f"--output={tmp_path}", "--resume", "--seed=2"]
    mistake(capsys, flags, "--seed is 1, here 2", "another --output")


@pytest.mark.once
def test_mistake_of_text_that_changed_names_the_file(finished, texts, capsys):
    path = texts.replace("*", "07")
    with open(path) as file:
        before = file.read()
    try:
        with open(path, "a") as file:
            file.write(" More.")
        values = [path, f"{len(before)} bytes", f"{len(before) + 6} now", f"--preset={finished}"]
        mistake(capsys, [f"--output={finished}", "--resume"], *values)
    finally:
        with open(path, "w") as file:
            file.write(before)


@pytest.mark.once
def test_mistake_of_two_runs_in_one_output(finished, capsys):
    from keras_spanbert.files import lock

    with lock(str(finished / "checkpoints")):  # Released at the end.
        before = newest(finished)
        mistake(capsys, [f"--output={finished}", "--resume"], "in use by another process")
        assert newest(finished) == before


@pytest.mark.once
def test_mistake_of_a_learning_rate_that_diverges_names_step_batch_and_checkpoint(
    texts, tmp_path, capsys
):
    with pytest.raises(SystemExit) as error:
        in_process(
            f"--train_data={texts}", f"--output={tmp_path / 'run'}", "--learning_rate=1e38",
            "--clip_norm=0", *TINY,
        )  # fmt: skip
    err = capsys.readouterr().err
    check_mistake(error.value.code, err, "must be finite", "step", "checkpoint")
    if "batch" in err:
        assert list((tmp_path / "run" / "checkpoints").glob("bad-batch-step-*.npz"))
