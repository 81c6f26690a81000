"""train.py with s3:// paths: text, runs, presets, prepared shards, predictions and exports."""

import glob
import os
import re
import signal
import sys
import threading

import h5py
import numpy as np
import pytest
from forked import Forked
from train_script import check_fails, check_flags_only, run_in_process

from keras_spanbert import cache, files, stores
from keras_spanbert.stores import fsspec_calls

pytest_plugins = ["s3_server"]
pytestmark = pytest.mark.usefixtures("one_layer", "untraced")

SHORT = ["--batch_size=4", "--size=tiny", "--steps=8", "--eval_every=4", "--eval_steps=2"]
TINY = [
    "--vocabulary_size=200", "--sequence_length=16", "--dropout=0.1", "--checkpoint_every=2",
    *SHORT,
]  # fmt: skip
# Same as the fixture `one_layer`.
TRAIN = """
from keras_spanbert import SpanBertBackbone
from keras_spanbert_commands import train
SpanBertBackbone.SIZES["tiny"].update(num_layers=1, num_heads=2, hidden_dim=16, intermediate_dim=32)
train()
"""


def put_files(pattern, folder):
    for path in glob.glob(pattern):
        files.put_file(path, stores.join(folder, os.path.basename(path)))
    return folder


def figures(folder):
    """Returns the weights, and the history without times."""
    arrays = {}

    def add(name, item):
        if isinstance(item, h5py.Dataset):
            arrays[name] = item[...]

    with h5py.File(os.path.join(folder, "task.weights.h5")) as file:
        file.visititems(add)
    rows = files.read_csv(os.path.join(folder, "history.csv"))
    return arrays, [{k: row[k] for k in row if "loss" in k or k == "step"} for row in rows]


def test_run_killed_during_a_checkpoint_resumes_elsewhere(proxy, bucket, texts, tmp_path, capsys):
    text = put_files(texts, f"{bucket}/texts")
    flags = [f"--train_data={text}/*.txt", f"--output={bucket}/run", *TINY]
    is_writing = threading.Event()

    def hang(request):
        if request.startswith("PUT") and "/step-6/state.json" in request:
            is_writing.set()
            return "hang"

    proxy.fault = hang
    process = Forked([sys.executable, "-c", TRAIN, *flags])
    while not is_writing.wait(0.2):
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL
    proxy.fault = lambda request: None
    there = files.names(f"{bucket}/run/checkpoints")
    assert "step-6/arrays.npz" in there and "step-6/SHA256SUMS" not in there
    # Like on a machine without local files of the run.
    run_in_process("--resume", f"--output={bucket}/run")
    assert f"Continuing from step 4 of {bucket}/run/checkpoints/step-4" in capsys.readouterr().out
    run_in_process(f"--train_data={text}/*.txt", f"--output={tmp_path / 'whole'}", *TINY)
    arrays, rows = figures(cache.local_copy(f"{bucket}/run", lambda name: "/" not in name))
    theirs, their_rows = figures(tmp_path / "whole")
    assert rows == their_rows and arrays.keys() == theirs.keys()
    for name in arrays:
        np.testing.assert_array_equal(arrays[name], theirs[name])
    names = {path.name for path in (tmp_path / "whole").iterdir()} - {".lock"}
    assert set(files.entries(f"{bucket}/run")) == {*names, "SHA256SUMS"}
    run_in_process("--resume", f"--output={bucket}/run")
    assert "Continuing from step 8" in capsys.readouterr().out
    check_fails(capsys, flags, "new or empty", f"{bucket}/run")


def test_training_on_a_corpus_prepared_in_a_store(bucket, texts, tmp_path, capsys):
    text = put_files(texts, f"{bucket}/texts")
    run_in_process(
        "--task=prepare", f"--train_data={text}/*.txt", f"--output={bucket}/prepared",
        "--sequence_length=16", "--vocabulary_size=200", "--held_out=0.2", "--shards=2",
    )  # fmt: skip
    assert "metrics.json" in files.entries(f"{bucket}/prepared")
    run_in_process(f"--train_data={bucket}/prepared", f"--output={tmp_path / 'run'}", *SHORT)
    assert files.read_json(tmp_path / "run" / "metrics.json")["steps"] == 8
    run_in_process("--resume", f"--output={tmp_path / 'run'}")
    assert "Continuing from step 8" in capsys.readouterr().out


@pytest.mark.once("tensorflow")
def test_fine_tuning_with_predictions_and_export_in_a_store(bucket, tmp_path):
    import squad_runs
    import tensorflow as tf

    squad_runs.save_preset(tmp_path / "preset")
    files.put_folder(str(tmp_path / "preset"), f"{bucket}/preset")
    for name, count in [("train", 24), ("dev", 4)]:
        path = squad_runs.write_squad(tmp_path / f"{name}.json", count, seed=count)
        files.put_file(str(path), f"{bucket}/{name}.json")
    flags = [
        "--task=question_answering", f"--preset={bucket}/preset", *squad_runs.SIZES,
        f"--train_data={bucket}/train.json", f"--eval_data={bucket}/d*.json", "--epochs=1",
    ]  # fmt: skip
    outputs = [f"--predictions={bucket}/answers.json", f"--export={bucket}/served"]
    run_in_process(*flags, f"--predict_data={bucket}/dev.json", f"--output={bucket}/run", *outputs)
    assert len(
        files.read_json(f"{bucket}/answers.json")
    ) == 4 and "answers.nbest.json" in files.entries(bucket)
    served = tf.saved_model.load(cache.local_copy(f"{bucket}/served/1"))
    question, context = [tf.constant([text]) for text in ["who wrote it", "ann wrote it ."]]
    found = served.signatures["serving_default"](question=question, context=context)
    assert found["answer"].shape == [1]
    # The run can be resumed, and its files are not overwritten.
    evaluated = ["--task=question_answering", f"--preset={bucket}/run", *squad_runs.SIZES[3:]]
    run_in_process(*evaluated, f"--eval_data={bucket}/dev.json", f"--output={bucket}/again")
    first, again = (files.read_json(f"{bucket}/{n}/metrics.json") for n in ["run", "again"])
    assert first["f1"] == again["f1"]
    with pytest.raises(ValueError, match="must be a new file"):
        check_flags_only(*evaluated, f"--predict_data={bucket}/dev.json", outputs[0])


def test_paths_are_checked_before_reading(proxy, bucket, tmp_path, texts):
    text = put_files(texts, f"{bucket}/texts")
    files.put_file(glob.glob(texts)[0], f"{bucket}/old/file")
    proxy.requests.clear()
    for flags, values in [
        ([f"--output={bucket}/old"], ["new or empty", f"{bucket}/old"]),
        (["--output=s3://no-such-bucket/run"], ["must be writable", "s3://no-such-bucket/run"]),
        ([f"--output={bucket}/texts/run", f"--train_data={text}/**"], ["must not match the files"]),
        ([f"--train_data={bucket}/none/*.txt"], ["no file matches", f"{bucket}/none"]),
        ([f"--preset={bucket}/none"], ["must be a preset", f"{bucket}/none"]),
        ([f"--vocabulary={bucket}/none"], ["must be a file", f"{bucket}/none"]),
        (["--output=nowhere://b/run"], ["fsspec supports", "nowhere://b/run"]),
        ([f"--output={bucket}/x", f"--export={bucket}/x/"], ["folder of its own"]),
    ]:
        with pytest.raises(ValueError) as error:
            check_flags_only(f"--output={tmp_path / 'run'}", f"--train_data={texts}", *flags)
        for value in values:
            assert value in str(error.value)
    assert not [r for r in proxy.requests if r.startswith("GET") and ".txt" in r]
    proxy.fault = lambda request: "refuse" if request.startswith("PUT") else None
    with pytest.raises(ValueError, match=f"`--output` must be writable. Received: {bucket}/new"):
        check_flags_only(f"--train_data={texts}", f"--output={bucket}/new")


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ("GET .*[.]txt", "/texts/"),
        ("PUT .*step-4", "last good checkpoint is"),
    ],
)
def test_store_errors_are_one_line(proxy, bucket, texts, capsys, monkeypatch, request_, message):
    monkeypatch.setattr(fsspec_calls, "_ATTEMPTS", 2)
    text = put_files(texts, f"{bucket}/texts")

    def fault(request):
        has_begun = any("step-2/SHA256SUMS" in earlier for earlier in proxy.requests)
        is_due = has_begun or request.startswith("GET")
        return "error" if is_due and re.match(request_, request) else None

    proxy.fault = fault
    flags = [f"--train_data={text}/*.txt", f"--output={bucket}/run", *TINY, "--steps=2000"]
    check_fails(capsys, flags, "The store failed 2 times", message)
