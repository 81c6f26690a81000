"""Plots of a run."""

import struct

import numpy as np
import pytest
from matplotlib.figure import Figure

from keras_spanbert.runs import plots


def png_size(path):
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert b"IEND" in data[-12:] and 8_000 < len(data) < 500_000
    return struct.unpack(">II", data[16:24]), len(data)


@pytest.fixture
def drawn(monkeypatch):
    """A list of the saved figures."""
    figures, savefig = [], Figure.savefig

    def record(figure, *args, **kwargs):
        figures.append(figure)
        savefig(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", record)
    return figures


def axis_labels(figure):
    """Returns the x label of the lowest panel and the y labels of all panels."""
    return [figure.axes[-1].get_xlabel(), *(panel.get_ylabel() for panel in figure.axes)]


@pytest.mark.parametrize("heads", [["mlm"], ["mlm", "sbo"], ["mlm", "nsp"]])
def test_loss_plot_tells_training_from_held_out_data(tmp_path, drawn, heads):
    rows = [{"step": 0}, {"step": 4}]  # The first one is from before the training.
    for head in heads:
        rows[0][f"val_{head}_cross_entropy"] = 5.0
        rows[1] |= {f"{head}_cross_entropy": 3.0, f"val_{head}_cross_entropy": 4.0}
    plots.plot_losses(tmp_path / "loss.png", rows, dict.fromkeys(heads, 4.5))
    assert png_size(tmp_path / "loss.png")[0] == (960, 600)
    assert [p.name for p in tmp_path.iterdir()] == ["loss.png"]
    unit = "nats per token, per pair for NSP" if "nsp" in heads else "nats per token"
    assert axis_labels(drawn[0]) == ["steps", f"cross-entropy ({unit})"]
    lines = {line.get_label(): list(line.get_ydata()) for line in drawn[0].axes[0].lines}
    assert len(lines) == 3 * len(heads)
    for name in map(str.upper, heads):
        assert lines[f"{name}, training"][1:] == [3.0]
        assert lines[f"{name}, held out"] == [5.0, 4.0] and lines[f"{name}, unigram"] == [4.5, 4.5]


def test_scores_have_their_own_panel_with_units(tmp_path, drawn):
    rows = [{"step": i, "loss": 2.0 / i, "exact": 10.0 * i, "f1": 10.0 * i} for i in [1, 2]]
    labels = {"exact": "exact match", "f1": "F1", "pearson": "Pearson"}
    path = tmp_path / "loss.png"
    plots.plot_scores(path, rows, "Question answering", labels, "nats")
    assert png_size(path)[0] == (960, 600)
    loss, scores = drawn[0].axes
    assert axis_labels(drawn[0]) == [
        "steps", "training loss (nats)", "held-out scores (percent)",
    ]  # fmt: skip
    assert [list(line.get_ydata()) for line in loss.lines] == [[2.0, 1.0]]
    assert [line.get_label() for line in scores.lines] == ["exact match", "F1"]
    assert [list(line.get_ydata()) for line in scores.lines] == [[10.0, 20.0]] * 2
    below, above = (line.get_linewidth() for line in scores.lines)
    assert below > above  # Equal scores do not overlap.


def test_span_length_plot_has_shares_and_means(tmp_path, drawn):
    lengths, probabilities = np.array([1, 1, 1, 3]), np.array([0.5, 0.25, 0.25])
    plots.plot_span_lengths(tmp_path / "spans.png", lengths, probabilities)
    (axes,) = drawn[0].axes
    bars = {bar.get_x() + bar.get_width() / 2: bar.get_height() for bar in axes.patches}
    assert bars == pytest.approx({1.0: 0.75, 2.0: 0.0, 3.0: 0.25})
    assert axes.get_title() == "Span lengths, mean 1.50 drawn, 1.75 expected"
