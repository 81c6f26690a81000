"""What a run writes beside its preset."""

import csv
import json
import struct

import keras
import numpy as np
import pytest

from keras_spanbert.training import reports


def batch(mlm_ids, mlm_weights, sbo_ids, sbo_weights):
    y = {"mlm": np.array([mlm_ids]), "sbo": np.array([sbo_ids])}
    return None, y, {"mlm": np.array([mlm_weights]), "sbo": np.array([sbo_weights])}


def png_size(path):
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert b"IEND" in data[-12:]
    return struct.unpack(">II", data[16:24]), len(data)


# === Unigram entropies ===


def test_unigram_entropies_are_those_worked_out_by_hand():
    # A quarter more of each: 13/28, 9/28, 5/28, 1/28.
    counts = np.array([3, 2, 1, 0])
    dataset = [
        batch([0, 1, 3], [1.0, 1.0, 0.0], [2, 0, 0], [1.0, 0.0, 0.0]),
        batch([3, 0, 0], [1.0, 0.0, 0.0], [3, 1, 0], [1.0, 1.0, 0.0]),
    ]
    entropies = reports.unigram_entropies(counts, dataset)
    assert entropies == {
        "mlm": pytest.approx(-np.log(13 * 9 * 1 / 28**3) / 3),
        "sbo": pytest.approx(-np.log(5 * 1 * 9 / 28**3) / 3),
    }


def test_unigram_entropy_of_a_head_without_targets_is_0_as_keras_has_it():
    # Short held-out blocks may hold no span with both neighbours.
    dataset = [batch([0, 1], [1.0, 1.0], [0, 0], [0.0, 0.0])]
    entropies = reports.unigram_entropies(np.array([1, 1]), dataset)
    assert entropies == {"mlm": pytest.approx(np.log(2)), "sbo": 0.0}


# === Files ===


def test_json_is_written_whole(tmp_path):
    path = tmp_path / "metrics.json"
    reports.write_json(path, {"steps": 3, "name": "größe"})
    assert json.loads(path.read_text(encoding="utf-8")) == {"steps": 3, "name": "größe"}
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.json"]


def test_csv_leaves_what_a_row_lacks_empty(tmp_path):
    path = tmp_path / "history.csv"
    reports.write_csv(path, [{"step": 1, "loss": 2.5}, {"step": 2}])
    with open(path, newline="") as file:
        assert list(csv.DictReader(file)) == [
            {"step": "1", "loss": "2.5"},
            {"step": "2", "loss": ""},
        ]


@pytest.mark.parametrize(
    "write",
    [
        lambda path: reports.write_json(path, {"fits": 1, "does not": object()}),
        lambda path: reports.write_csv(path, [{"step": 1}, {"other": 2}]),
    ],
    ids=["json", "csv"],
)
def test_failed_writing_leaves_the_old_file_alone(tmp_path, write):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises((TypeError, ValueError)):
        write(path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


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
    report = reports.TrainingReport(tmp_path / "history.csv", total_steps=6, tokens_per_step=10)

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
    assert len(lines) == 2
    assert lines[1].startswith("step 6/6  held-out MLM 1.000  SBO 3.000") and "0:00" in lines[1]


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
    report.on_epoch_end(0, {"val_mlm_cross_entropy": 2.0, "val_sbo_cross_entropy": 3.0})
    assert "  91 ms a step  0.0754 TFLOP/s  peak 1.3 GB  0:00 left" in capsys.readouterr().out
    with open(tmp_path / "history.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["tflops_per_second"] == "0.07543"


# === Plots ===


def history(steps):
    names = [f"{v}{h}_cross_entropy" for v in ["", "val_"] for h in ["mlm", "sbo"]]
    return [{"step": s, **dict.fromkeys(names, 5.0 / (i + 1))} for i, s in enumerate(steps)]


@pytest.mark.parametrize("steps", [[10], [10, 20, 30]])
def test_loss_plot_is_a_png_of_its_size(tmp_path, steps):
    path = tmp_path / "loss.png"
    reports.plot_losses(path, history(steps), {"mlm": 5.0, "sbo": 4.9})
    size, num_bytes = png_size(path)
    assert size == (960, 600) and 8_000 < num_bytes < 500_000
    assert [p.name for p in tmp_path.iterdir()] == ["loss.png"]


def test_span_length_plot_is_a_png_of_its_size(tmp_path):
    path = tmp_path / "span_lengths.png"
    lengths = [np.array([[1, 2, 3], [1, 1, 4]]), np.array([[2, 2, 1], [3, 1, 1]])]
    reports.plot_span_lengths(path, lengths, np.array([0.4, 0.3, 0.2, 0.1]))
    size, num_bytes = png_size(path)
    assert size == (960, 600) and 8_000 < num_bytes < 500_000
