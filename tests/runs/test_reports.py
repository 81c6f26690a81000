"""What a run writes beside its preset."""

import csv
import json

import keras
import numpy as np

import keras_spanbert as ks
from keras_spanbert.runs import reports


def test_run_record_names_backend_flags_and_versions():
    record = reports.run_record({"steps": 7})
    assert record["backend"] == keras.backend.backend()
    assert record["flags"] == {"steps": 7}
    assert record["versions"]["keras"] == keras.__version__
    assert record["versions"]["numpy"] == np.__version__
    assert {"python", "keras-hub", "tokenizers"} <= set(record["versions"])
    json.dumps(record)


# === Training report ===


def test_history_gets_a_row_an_evaluation_and_training_ends_at_total_steps(tmp_path, capsys):
    report = reports.TrainingReport(
        tmp_path / "history.csv",
        total_steps=6,
        tokens_per_step=10,
        describe=ks.SpanBertPretrainer.describe,
    )

    class Model:
        stop_training = False

    report.set_model(Model())
    report.set_params({"steps": 4})
    report.on_train_begin()
    for epoch, steps in enumerate([4, 2]):
        report.on_epoch_begin(epoch)
        for i in range(steps):
            assert not report.model.stop_training
            report.on_train_batch_begin(i)
            report.on_train_batch_end(i, logs={})
        report.on_test_begin()
        logs = {"val_mlm_cross_entropy": 2.0 - epoch, "val_sbo_cross_entropy": 3.0}
        report.on_epoch_end(epoch, logs)
    assert report.model.stop_training
    with open(tmp_path / "history.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["4", "6"]
    assert [row["val_mlm_cross_entropy"] for row in rows] == ["2.0", "1.0"]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and lines[0].endswith("the first step")
    assert lines[2].startswith("step 6/6  held-out MLM 1.000  SBO 3.000") and "0:00" in lines[2]


def test_progress_and_history_show_what_the_steps_cost(tmp_path, capsys):
    class Cost:
        def now(self):
            return 0.0, 0.0

        def figures(self, since, steps):
            return {"step_ms": 91.3, "tflops_per_second": 0.07543, "peak_gb": 1.26}

    report = reports.TrainingReport(tmp_path / "history.csv", 4, tokens_per_step=10, cost=Cost())
    report.set_params({"steps": 4})
    report.on_train_begin()
    report.on_epoch_begin(0)
    for i in range(4):
        report.on_train_batch_begin(i)
        report.on_train_batch_end(i, logs={})
    report.on_epoch_end(0, {"loss": 2.0})
    assert "  91 ms a step  0.0754 TFLOP/s  peak 1.3 GB  0:00 left" in capsys.readouterr().out
    with open(tmp_path / "history.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["tflops_per_second"] == "0.07543"


def test_best_model_is_saved_by_its_score_and_known_to_a_run_that_goes_on(tmp_path, capsys):
    scores = iter([{"f1": 10.0, "exact": 5.0}, {"f1": 30.0, "exact": 9.0}, {"f1": 20.0}])
    saved = []
    report = reports.TrainingReport(
        tmp_path / "history.csv",
        total_steps=9,
        tokens_per_step=10,
        describe=ks.SpanBertQuestionAnswerer.describe,
        evaluate=lambda: next(scores),
        best_score="f1",
        save_best=lambda: saved.append(report.step),
    )
    report.set_params({"steps": 3})
    report.on_train_begin()
    for epoch in range(3):
        report.on_epoch_begin(epoch)
        for i in range(3):
            report.on_train_batch_begin(i)
            report.on_train_batch_end(i, logs={})
        report.on_epoch_end(epoch, {"loss": 1.0})
    assert saved == [3, 6] and report.best == {"f1": 30.0, "exact": 9.0}
    assert "loss 1.000  exact match 9.00  F1 30.00" in capsys.readouterr().out
    another = reports.TrainingReport(None, total_steps=9, tokens_per_step=10)
    another.set_state(json.loads(json.dumps(report.get_state())))
    assert another.best == report.best and another.step == 9
