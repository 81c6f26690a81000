"""Runs of train.py, for tests."""

import contextlib
import io
import logging as python_logging
import os
import shutil
import subprocess
import sys

import keras
import pytest
from absl import logging
from absl.testing import flagsaver
from comparisons import assert_close
from forked import Forked
from processes import ROOT

import keras_spanbert as ks
from keras_spanbert import files
from keras_spanbert.recipes.run import check_flags, define_flags, parse_flags, run_recipe

define_flags()  # Otherwise flagsaver would remove them at the end of a test.

TIMEOUT = 180  # Seconds. A run takes about 15.


def start(*arguments, popen=Forked):
    """Starts train.py. With `popen=subprocess.Popen`, it imports everything again."""
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    environment["PYTHONPATH"] = str(ROOT)
    return popen(
        [sys.executable, "train.py", *arguments], cwd=ROOT, env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run(*arguments, popen=Forked):
    with start(*arguments, popen=popen) as process:
        out, err = process.communicate(timeout=TIMEOUT)
    return process.returncode, out, err


def run_in_process(*arguments):
    """Runs train.py in this process."""
    policy = keras.config.dtype_policy()
    try:
        with flagsaver.flagsaver():
            run_recipe(parse_flags(["train.py", *arguments]))
    finally:
        keras.config.set_dtype_policy(policy)


def run_and_capture(*arguments):
    """Returns the stdout and stderr of such a run."""
    out, err = io.StringIO(), io.StringIO()
    # Scripts get this handler from `absl.app.run`.
    handler = logging.get_absl_handler()
    stream = handler.python_handler.setStream(err)
    python_logging.getLogger().addHandler(handler)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            run_in_process(*arguments)
    finally:
        python_logging.getLogger().removeHandler(handler)
        handler.python_handler.setStream(stream)
    return out.getvalue(), err.getvalue()


def check_resumes(capsys, output, cls, flags, kept, steps):
    """Checks that a run that resumes from the first of its checkpoints gives the same results."""

    def read():
        weights = cls.from_preset(str(output)).get_weights()
        return files.read_csv(output / "history.csv"), weights

    run_in_process(*flags, f"--output={output}")
    history, weights = read()
    checkpoints = output / "checkpoints"
    assert sorted(os.listdir(checkpoints)) == [".lock", *(f"step-{step}" for step in kept)]
    for step in kept[1:]:
        shutil.rmtree(checkpoints / f"step-{step}")
    capsys.readouterr()
    run_in_process(f"--output={output}", "--resume")
    assert f"Continuing from step {kept[0]}" in capsys.readouterr().out
    again, weights_again = read()
    assert [row["step"] for row in again] == [str(step) for step in steps]
    for row, before in zip(again, history, strict=True):
        assert float(row["loss"]) == pytest.approx(float(before["loss"]), rel=1e-5)
        score = files.read_json(output / "metrics.json")["best_score"]
        assert float(row[score]) == float(before[score])
    assert_close(weights_again, weights, 1e-5)


def write_record(folder, flags, given=None):
    """Writes the `run.json` of a run that was started with given flags, by default with all."""
    folder.mkdir(exist_ok=True)
    given = flags if given is None else given
    files.write_json(folder / "run.json", {"flags": flags, "given": given, "versions": {}})


class StoppedError(Exception):
    """Ends a run at the place that a test chooses. Holds the arguments of the call there."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args)
        self.kwargs = kwargs


def stop(*args, **kwargs):
    raise StoppedError(*args, **kwargs)


def check_flags_only(*arguments):
    """Runs the checks of train.py before it loads a backend or reads data."""
    with flagsaver.flagsaver():
        check_flags(parse_flags(["train.py", *arguments]))


def check_error(code, err, *values):
    assert code == 2
    assert len(err.splitlines()) == 1 and "Traceback" not in err, err
    assert err.startswith("train.py: ")
    for value in values:
        assert str(value) in err


def check_fails(capsys, flags, *values):
    """Runs train.py in this process, and checks that it ends with an error that has the values."""
    with pytest.raises(SystemExit) as error:
        run_in_process(*flags)
    check_error(error.value.code, capsys.readouterr().err, *values)


def save_encoder(folder, backbone, vocabulary):
    """Writes a preset with pretraining heads only, to fine-tune from."""
    length = backbone.max_sequence_length
    preprocessor = ks.SpanBertPretrainerPreprocessor(ks.SpanBertTokenizer(vocabulary), length)
    ks.SpanBertPretrainer(backbone, preprocessor).save_to_preset(folder)
    return folder
