"""train.py --resume: interrupted runs and errors."""

import os

import keras
import pytest
from comparisons import assert_close
from processes import ROOT, run_python
from train_script import check_fails, check_flags_only, run_in_process, write_record

import keras_spanbert as ks
from keras_spanbert import files

pytestmark = pytest.mark.usefixtures("one_layer", "untraced")

TINY = [
    "--vocabulary_size=200", "--sequence_length=16", "--batch_size=4", "--size=tiny",
    "--dropout=0.1", "--steps=14", "--eval_every=4", "--eval_steps=2", "--checkpoint_every=3",
]  # fmt: skip
EVERY_50 = "--eval_every=50"
# Dies at step 7, with a checkpoint of step 6, in the middle of an epoch.
TRAIN_AND_DIE = """
import os
import keras
from keras_spanbert.runs.training_checkpoint import TrainingCheckpoint
from keras_spanbert_commands import train
if os.environ["KERAS_BACKEND"] == "tensorflow":
    keras.Model.run_eagerly = property(lambda self: True, lambda self, value: None)
end_step = TrainingCheckpoint.on_train_batch_end
def die_at_step_7(self, batch, logs=None):
    end_step(self, batch, logs)
    if self.step == 7:
        self.wait()
        os._exit(9)
TrainingCheckpoint.on_train_batch_end = die_at_step_7
train()
"""


@pytest.fixture(scope="module")
def finished(texts, tmp_path_factory):
    """Starts with --resume in the folder of a run that was killed before writing its flags.

    The run lowers --eval_every to its number of steps.
    """
    output = tmp_path_factory.mktemp("finished") / "run"
    (output / "checkpoints").mkdir(parents=True)
    run_in_process(f"--train_data={texts}", f"--output={output}", "--resume", *TINY, EVERY_50)
    return output


def newest(output):
    steps = [int(name.split("-")[1]) for name in os.listdir(output / "checkpoints") if "-" in name]
    return max(steps)


@pytest.mark.every_backend
def test_run_without_flags_starts_again_and_a_finished_one_does_not(finished, capsys):
    assert newest(finished) == 14
    assert files.read_json(finished / "metrics.json")["steps"] == 14
    history = (finished / "history.csv").read_text()
    run_in_process(f"--output={finished}", "--resume")
    out = capsys.readouterr().out
    assert "Continuing from step 14" in out
    assert not any(words in out for words in ["counting tokens", "and words", "vocabulary"])
    assert (finished / "history.csv").read_text() == history
    assert newest(finished) == 14


@pytest.fixture(scope="module")
def preset_run(texts, finished, tmp_path_factory):
    """Flags of a run with the same random numbers on all backends, and its output."""
    preset = tmp_path_factory.mktemp("preset_run") / "preset"
    preprocessor = ks.SpanBertPretrainerPreprocessor.from_preset(str(finished))
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32}
    backbone = ks.SpanBertBackbone(
        preprocessor.tokenizer.vocabulary_size(), dropout=0.0, max_sequence_length=16, **sizes
    )
    ks.SpanBertPretrainer(backbone, preprocessor=preprocessor).save_to_preset(str(preset))
    flags = [
        f"--preset={preset}", f"--train_data={texts}", "--sequence_length=16", "--batch_size=4",
        "--steps=14", "--eval_every=4", "--eval_steps=2", "--checkpoint_every=3",
        "--learning_rate=1e-2",
    ]  # fmt: skip
    output = preset.parent / "uninterrupted"
    run_in_process(f"--output={output}", *flags)
    return flags, output


@pytest.mark.every_backend
def test_run_resumes_on_another_backend(preset_run, tmp_path):
    others = {"tensorflow": "torch", "jax": "tensorflow", "torch": "jax"}
    other = others[keras.backend.backend()]
    flags, uninterrupted = preset_run
    flags = [f"--output={tmp_path / 'run'}", *flags]
    run_python("-c", TRAIN_AND_DIE, *flags, code=9, KERAS_BACKEND=other, PYTHONPATH=str(ROOT))
    assert newest(tmp_path / "run") == 6
    run_in_process("--resume", f"--output={tmp_path / 'run'}")
    models = [ks.SpanBertPretrainer.from_preset(str(p)) for p in [uninterrupted, tmp_path / "run"]]
    assert_close(*(model.weights for model in models), 1e-4)
    losses = [
        files.read_json(p / "metrics.json")["mlm_cross_entropy"]
        for p in [uninterrupted, tmp_path / "run"]
    ]
    assert losses[1] == pytest.approx(losses[0], abs=1e-4)


def test_resume_needs_the_output_of_a_run(capsys, tmp_path):
    check_fails(capsys, ["--resume"], "--resume", "--output")
    for output in [tmp_path, tmp_path / "typo"]:
        flag = f"--output={output}"
        check_fails(capsys, ["--resume", flag], "which has no run", flag)
    assert not (tmp_path / "typo").exists()
    check_flags_only("--resume", f"--output={tmp_path / 'new'}", "--steps=3")
    files.write_json(tmp_path / "run.json", {"versions": {"keras-spanbert": "0.0.9"}})
    flags = [f"--output={tmp_path}", "--resume"]
    check_fails(capsys, flags, "of this version", "of version 0.0.9")
    write_record(tmp_path, {"grid": None, "replacement": "span"})
    check_fails(capsys, flags, "of this version", "with former flags grid, replacement")


def test_flags_of_a_run_cannot_change_except_those_of_the_machine(finished, capsys):
    resumed = [f"--output={finished}", "--resume"]
    # The suggested command works.
    hint = f"--preset={finished}"
    for flag, difference in [
        ("--batch_size=8", "--batch_size=8 with --resume"),
        ("--train_data=README.md", "--train_data=['README.md'] with --resume"),
        ("--task=prepare", "--task='prepare' with --resume"),
    ]:
        check_fails(capsys, [*resumed, flag], difference, hint)
    resumed = [f"--output={finished}", "--resume", "--batch_size=4", "--dropout=0.1"]
    check_flags_only(
        *resumed, "--checkpoint_every=7", "--keep_checkpoints=1", "--distribution=none", EVERY_50
    )
    check_flags_only(*resumed, "--eval_every=14")  # The value that the run used.


def test_unfinished_run_is_not_a_preset(tmp_path, capsys):
    write_record(tmp_path, {"seed": 1})
    flags = [f"--output={tmp_path}", "--resume", "--seed=2"]
    check_fails(capsys, flags, "--seed=2 with --resume", "where it is 1", "another --output")


def test_divergence_error_names_step_and_checkpoint(texts, tmp_path, capsys):
    flags = [f"--train_data={texts}", f"--output={tmp_path / 'run'}", *TINY]
    flags += ["--learning_rate=1e38", "--clip_norm=0"]
    check_fails(capsys, flags, "must be finite", "step", "checkpoint")
