"""What a run draws."""

import struct

import numpy as np
import pytest

from keras_spanbert.runs import plots


def png_size(path):
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert b"IEND" in data[-12:]
    return struct.unpack(">II", data[16:24]), len(data)


def history(steps):
    names = [f"{v}{h}_cross_entropy" for v in ["", "val_"] for h in ["mlm", "sbo", "nsp"]]
    return [{"step": s, **dict.fromkeys(names, 5.0 / (i + 1))} for i, s in enumerate(steps)]


@pytest.mark.parametrize("steps", [[10], [10, 20, 30]])
@pytest.mark.parametrize("heads", [["mlm"], ["mlm", "sbo"], ["mlm", "nsp"], ["mlm", "sbo", "nsp"]])
def test_loss_plot_is_a_png_of_its_size(tmp_path, steps, heads):
    path = tmp_path / "loss.png"
    plots.plot_losses(path, history(steps), dict.fromkeys(heads, 4.9))
    size, num_bytes = png_size(path)
    assert size == (960, 600) and 8_000 < num_bytes < 500_000
    assert [p.name for p in tmp_path.iterdir()] == ["loss.png"]


def test_span_length_plot_is_a_png_of_its_size(tmp_path):
    path = tmp_path / "span_lengths.png"
    lengths = [np.array([[1, 2, 3], [1, 1, 4]]), np.array([[2, 2, 1], [3, 1, 1]])]
    plots.plot_span_lengths(path, lengths, np.array([0.4, 0.3, 0.2, 0.1]))
    size, num_bytes = png_size(path)
    assert size == (960, 600) and 8_000 < num_bytes < 500_000


def test_scores_plot_is_a_png_with_and_without_scores(tmp_path):
    rows = [{"step": 1, "loss": 2.0, "f1": 10.0}, {"step": 2, "loss": 1.0, "f1": 20.0}]
    for i, scores in enumerate([{}, {"f1": "F1"}]):
        plots.plot_scores(tmp_path / f"{i}.png", rows, "Question answering", scores)
    sizes = [png_size(tmp_path / f"{i}.png") for i in range(2)]
    assert sizes[0][0] == sizes[1][0] == (960, 600) and sizes[0][1] != sizes[1][1]


def test_plot_of_seeds_is_a_png_with_and_without_an_interval(tmp_path):
    curves = {str(seed): [(5, 10.0 + seed), (10, 20.0 - seed)] for seed in range(12)}
    for i, interval in enumerate([None, [18.0, 19.0]]):
        figures = {"mean": 18.5, "interval": interval}
        plots.plot_seeds(tmp_path / f"{i}.png", curves, figures, "Question answering", "f1")
    sizes = [png_size(tmp_path / f"{i}.png") for i in range(2)]
    assert sizes[0][0] == sizes[1][0] == (960, 600) and sizes[0][1] != sizes[1][1]


@pytest.mark.parametrize("count, height", [(2, 600), (30, 1200)])
def test_plot_of_a_grid_is_as_high_as_it_has_rows(tmp_path, count, height):
    figures = [
        {"mean": 60.0 - i, "interval": [59.0 - i, 61.0 - i], "values": {"0": 59.0, "1": 61.0}}
        for i in range(count)
    ]
    labels = [f"learning_rate {i}" for i in range(count)]
    plots.plot_grid(tmp_path / "grid.png", labels, figures, "Question answering", "f1")
    assert png_size(tmp_path / "grid.png")[0] == (960, height)
