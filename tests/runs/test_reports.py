"""The reports of a run."""

import json
import re
from types import SimpleNamespace

from tiny_models import answerer, pretrainer

from keras_spanbert.files import read_csv
from keras_spanbert.runs import reports


def train(report, losses):
    """Calls the report as `fit` does, with three steps per epoch."""
    if report.model is None:
        report.set_model(SimpleNamespace(optimizer=SimpleNamespace(learning_rate=3e-4)))
    report.set_params({"steps": 3})
    report.on_train_begin()
    for epoch, logs in enumerate(losses):
        report.on_epoch_begin(epoch)
        for i in range(3):
            report.on_train_batch_begin(i)
            report.on_train_batch_end(i, logs={})
        report.on_epoch_end(epoch, logs)


def test_history_has_a_row_per_evaluation(tmp_path, capsys):
    report = reports.TrainingReport(
        tmp_path / "history.csv",
        total_steps=5,  # The last epoch is cut.
        tokens_per_step=10,
        task=pretrainer(),
    )

    class Model:
        stop_training = False

    report.set_model(Model())
    rest = {"val_sbo_cross_entropy": 3.0}
    train(report, [{"val_mlm_cross_entropy": 2.0, **rest}])
    assert not report.model.stop_training
    report.on_epoch_begin(1)
    for i in range(2):
        assert not report.model.stop_training
        report.on_train_batch_begin(i)
        report.on_train_batch_end(i, logs={})
    report.on_test_begin()
    report.on_epoch_end(1, {"val_mlm_cross_entropy": 1.0, **rest})
    assert report.model.stop_training
    rows = read_csv(tmp_path / "history.csv")
    assert [row["step"] for row in rows] == ["3", "5"]
    assert [row["val_mlm_cross_entropy"] for row in rows] == ["2.0", "1.0"]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and lines[0].endswith("the first step")
    assert lines[2].startswith("step 5/5  held-out MLM 1.000, SBO 3.000") and "0:00" in lines[2]


def test_progress_and_history_show_step_costs(tmp_path, capsys):
    class Cost:
        def now(self):
            return 0.0, 0.0

        def figures(self, since, steps):
            return {"step_ms": 91.3, "tflops_per_second": 0.07543, "peak_gb": 1.26}

    report = reports.TrainingReport(tmp_path / "history.csv", 4, 10, answerer(), cost=Cost())
    train(report, [{"loss": 2.0}])
    line = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(r"step 3/4  loss 2\.000  lr 3\.0e-04  [\d,]+ tokens/s  0:00 left", line)
    (row,) = read_csv(tmp_path / "history.csv")
    assert row["tflops_per_second"] == "0.07543" and row["learning_rate"] == "0.0003"


def test_best_model_is_saved_and_known_after_resuming(tmp_path, capsys):
    scores = iter([{"f1": 10.0, "exact": 5.0}, *[{"f1": 30.0, "exact": 9.0}] * 2, {"f1": 20.0}])
    saved = []
    report = reports.TrainingReport(
        tmp_path / "history.csv",
        total_steps=12,
        tokens_per_step=10,
        task=answerer(),
        evaluate=lambda: next(scores),
        save_best=lambda: saved.append(report.step),
    )
    train(report, 4 * [{"loss": 1.0, "exact": 0.5}])  # Fractions of training batches.
    assert saved == [3, 6, 9] and report.best == {"f1": 30.0, "exact": 9.0, "best_step": 9}
    assert "loss 1.000  F1 30.00  lr" in capsys.readouterr().out
    assert [row["exact"] for row in read_csv(tmp_path / "history.csv")] == ["5.0", "9.0", "9.0", ""]
    another = reports.TrainingReport(None, 12, 10, answerer())
    another.set_state(json.loads(json.dumps(report.get_state())))
    assert another.best == report.best and another.step == 12
