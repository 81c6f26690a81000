"""train.py with s3:// paths: text, runs, presets, prepared shards, predictions and exports."""

import glob
import os
import re
import signal
import sys
import time

import pytest
from comparisons import assert_close
from forked import Forked
from small_runs import start
from train_script import check_fails, check_flags_only, run_in_process

import keras_spanbert as ks
from keras_spanbert import cache, files, stores

pytest_plugins = ["some_stores"]
pytestmark = pytest.mark.usefixtures("one_layer", "untraced")

SHORT = ["--batch_size=4", "--size=tiny", "--steps=8", "--eval_every=4", "--eval_steps=2"]
TINY = [
    "--vocabulary_size=200", "--sequence_length=16", "--dropout=0.1", "--checkpoint_every=2",
    *SHORT,
]  # fmt: skip
# The first lines do the same as the fixture `one_layer`.
TRAIN = """
import pathlib, time
import fsspec
from some_stores import BrokenStore
from keras_spanbert import SpanBertBackbone
from keras_spanbert_commands import train
SpanBertBackbone.SIZES["tiny"].update(num_layers=1, num_heads=2, hidden_dim=16, intermediate_dim=32)
fsspec.register_implementation("broken", BrokenStore, clobber=True)
def hang(request):
    if request.startswith("put") and request.endswith("/step-6/state.json"):
        pathlib.Path("MARKER").touch()
        time.sleep(600)
BrokenStore.fault = hang
train()
"""


def put_files(pattern, folder):
    for path in glob.glob(pattern):
        stores.upload(path, stores.join(folder, os.path.basename(path)))
    return folder


def figures(folder):
    """Returns the history without times, and the weights."""
    rows = files.read_csv(cache.local_copy(stores.join(str(folder), "history.csv")))
    rows = [{k: row[k] for k in row if "loss" in k or k == "step"} for row in rows]
    return rows, ks.SpanBertPretrainer.from_preset(str(folder)).get_weights()


def test_run_killed_during_a_checkpoint_resumes_elsewhere(broken, texts, tmp_path, capsys):
    text = put_files(texts, f"{broken}/texts")
    flags = [f"--train_data={text}/*.txt", f"--output={broken}/run", *TINY]
    marker = tmp_path / "marker"
    process = Forked([sys.executable, "-c", TRAIN.replace("MARKER", str(marker)), *flags])
    while not marker.exists():
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL
    there = stores.names(f"{broken}/run/checkpoints")
    assert "step-6/arrays.npz" in there and "step-6/SHA256SUMS" not in there
    # Like on a machine without local files of the run.
    run_in_process("--resume", f"--output={broken}/run")
    assert f"Continuing from step 4 of {broken}/run/checkpoints/step-4" in capsys.readouterr().out
    run_in_process(f"--train_data={text}/*.txt", f"--output={tmp_path / 'whole'}", *TINY)
    assert_close(figures(f"{broken}/run"), figures(tmp_path / "whole"))
    names = {path.name for path in (tmp_path / "whole").iterdir()} - {".lock"}
    assert set(stores.entries(f"{broken}/run")) == names
    run_in_process("--resume", f"--output={broken}/run")
    assert "Continuing from step 8" in capsys.readouterr().out
    check_fails(capsys, flags, "new or empty", f"{broken}/run")


@pytest.mark.once("tensorflow")
def test_fine_tuning_with_predictions_and_export_in_a_store(bucket, tmp_path):
    import tensorflow as tf

    _, flags = start("question_answering", tmp_path)
    stores.upload(str(tmp_path), bucket)
    flags = [flag.replace(str(tmp_path), bucket) for flag in flags]
    flags += [f"--eval_data={bucket}/d*.json", "--epochs=1"]
    outputs = [f"--predictions={bucket}/answers.json", f"--export={bucket}/served"]
    run_in_process(*flags, f"--predict_data={bucket}/data.json", f"--output={bucket}/run", *outputs)
    assert len(files.read_json(f"{bucket}/answers.json")) == 12
    assert "answers.nbest.json" in stores.entries(bucket)
    served = tf.saved_model.load(cache.local_copy(f"{bucket}/served/1"))
    question, context = [tf.constant([text]) for text in ["who wrote it", "ann wrote it ."]]
    found = served.signatures["serving_default"](question=question, context=context)
    assert found["answer"].shape == [1]
    # The run can be resumed, and its files are not overwritten.
    evaluated = ["--task=question_answering", f"--preset={bucket}/run", "--batch_size=4"]
    run_in_process(*evaluated, f"--eval_data={bucket}/data.json", f"--output={bucket}/again")
    first, again = (files.read_json(f"{bucket}/{n}/metrics.json") for n in ["run", "again"])
    assert first["f1"] == again["f1"]
    with pytest.raises(ValueError, match="must be a new file"):
        check_flags_only(*evaluated, f"--predict_data={bucket}/data.json", outputs[0])


def test_paths_are_checked_before_reading(broken, store, tmp_path, texts):
    text = put_files(texts, f"{broken}/texts")
    stores.upload(glob.glob(texts)[0], f"{broken}/old/file")
    store.operations.clear()
    for flags, values in [
        ([f"--output={broken}/old"], ["new or empty", f"{broken}/old"]),
        ([f"--output={broken}/texts/run", f"--train_data={text}/**"], ["must not match the files"]),
        ([f"--train_data={broken}/none/*.txt"], ["no file matches", f"{broken}/none"]),
        ([f"--preset={broken}/none"], ["must be a preset", f"{broken}/none"]),
        ([f"--vocabulary={broken}/none"], ["must be a file", f"{broken}/none"]),
        (["--output=nowhere://b/run"], ["Protocol not known", "nowhere://b/run"]),
        ([f"--output={broken}/x", f"--export={broken}/x/"], ["folder of its own"]),
    ]:
        with pytest.raises(ValueError) as error:
            check_flags_only(f"--output={tmp_path / 'run'}", f"--train_data={texts}", *flags)
        for value in values:
            assert value in str(error.value)
    assert not [request for request in store.operations if request.startswith(("open", "get"))]
    store.fail(PermissionError("no key"), "put")
    with pytest.raises(ValueError, match=f"`--output` must be writable. Received: {broken}/new"):
        check_flags_only(f"--train_data={texts}", f"--output={broken}/new")


@pytest.mark.parametrize(
    ("operation", "message"),
    [("get .*[.]txt", "/texts/"), ("put .*step-4", "last good checkpoint is")],
)
def test_store_errors_are_one_line(broken, store, texts, capsys, operation, message):
    text = put_files(texts, f"{broken}/texts")

    def fault(request):
        has_begun = any("put" in r and "step-2/SHA256SUMS" in r for r in store.operations)
        if (has_begun or request.startswith("get")) and re.match(operation, request):
            raise TimeoutError("down")

    store.fault = staticmethod(fault)
    flags = [f"--train_data={text}/*.txt", f"--output={broken}/run", *TINY, "--steps=2000"]
    check_fails(capsys, flags, "The store failed: TimeoutError: down", message)
