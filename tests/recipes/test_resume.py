"""train.py --resume: runs that stop early, and mistakes with them."""

import json
import os
import signal
import subprocess
import sys

import pytest
from train_script import ROOT, TIMEOUT, check_mistake, in_process, run, start

TINY = [
    "--vocabulary_size=200", "--sequence_length=16", "--batch_size=4", "--size=tiny",
    "--dropout=0.1", "--steps=14", "--eval_every=4", "--eval_steps=2", "--checkpoint_every=3",
    "--shuffle_blocks=8",
]  # fmt: skip


@pytest.fixture(scope="module")
def stopped(texts, tmp_path_factory):
    """A run that SIGTERM stopped."""
    output = tmp_path_factory.mktemp("stopped") / "run"
    flags = [flag for flag in TINY if "--steps" not in flag]
    with start(f"--train_data={texts}", f"--output={output}", "--steps=100000", *flags) as process:
        try:
            for line in process.stdout:
                if line.startswith("step "):
                    break
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
    assert process.returncode == 143, err
    return output


def newest(output):
    steps = [int(name.split("-")[1]) for name in os.listdir(output / "checkpoints") if "-" in name]
    return max(steps)


def test_killed_runs_end_like_one_in_peace(texts):
    done = subprocess.run(
        [
            sys.executable, str(ROOT / "benchmarks" / "resume.py"), "--kills=2", "--",
            f"--train_data={texts}", *TINY,
        ],
        capture_output=True,
        text=True,
        timeout=3 * TIMEOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "largest difference of history and weights: 0" in done.stdout or (
        os.environ.get("KERAS_BACKEND") != "tensorflow"
    )


def test_sigterm_saves_the_step_it_stopped_at(stopped):
    steps = json.loads((stopped / "metrics.json").read_text())["steps"]
    assert newest(stopped) == steps >= 4


def test_finished_run_is_not_trained_again_and_answers_to_its_output_alone(texts, tmp_path, capsys):
    output = tmp_path / "run"
    in_process(f"--train_data={texts}", f"--output={output}", *TINY)
    history = (output / "history.csv").read_text()
    capsys.readouterr()
    in_process(f"--output={output}", "--resume")
    out = capsys.readouterr().out
    assert (
        "Going on from step 14" in out
        and "counting tokens" not in out
        and "and words" not in out
        and "vocabulary" not in out
    )
    assert (output / "history.csv").read_text() == history
    assert newest(output) == 14


# === Mistakes ===


def mistake(capsys, flags, *values):
    with pytest.raises(SystemExit) as error:
        in_process(*flags)
    check_mistake(error.value.code, capsys.readouterr().err, *values)


def test_mistake_of_no_output_to_resume(capsys):
    mistake(capsys, ["--resume"], "--resume", "--output")


def test_mistake_of_a_run_of_another_version(tmp_path, capsys):
    (tmp_path / "run.json").write_text(json.dumps({"versions": {"keras-spanbert": "0.0.9"}}))
    flags = [f"--output={tmp_path}", "--resume"]
    mistake(capsys, flags, "of this version", "of version 0.0.9")


def test_run_that_was_killed_before_it_wrote_its_flags_starts_anew(texts, tmp_path, capsys):
    output = tmp_path / "run"
    (output / "checkpoints").mkdir(parents=True)
    in_process(f"--train_data={texts}", f"--output={output}", "--resume", *TINY)
    assert newest(output) == 14


def test_mistake_of_another_flag_names_both_values(stopped, capsys):
    flags = [f"--output={stopped}", "--resume", "--batch_size=8"]
    mistake(capsys, flags, "--batch_size is 4, here 8", str(stopped))


def test_mistake_of_text_that_changed_names_the_file(stopped, texts, capsys):
    path = texts.replace("*", "07")
    with open(path) as file:
        before = file.read()
    try:
        with open(path, "a") as file:
            file.write(" More.")
        values = [path, f"{len(before)} bytes", f"{len(before) + 6} now"]
        mistake(capsys, [f"--output={stopped}", "--resume"], *values)
    finally:
        with open(path, "w") as file:
            file.write(before)


def test_mistake_of_two_runs_in_one_output(stopped, capsys):
    from keras_spanbert.files import lock

    with lock(str(stopped / "checkpoints")):  # Released at the end.
        before = newest(stopped)
        mistake(capsys, [f"--output={stopped}", "--resume"], "in use by another process")
        assert newest(stopped) == before


def test_mistake_of_a_learning_rate_that_diverges_names_step_batch_and_checkpoint(texts, tmp_path):
    code, out, err = run(
        f"--train_data={texts}", f"--output={tmp_path / 'run'}", "--learning_rate=1e38",
        "--clip_norm=0", *TINY,
    )  # fmt: skip
    check_mistake(code, err, "must be finite", "step", "checkpoint")
    if "batch" in err:
        assert list((tmp_path / "run" / "checkpoints").glob("bad-batch-step-*.npz"))
