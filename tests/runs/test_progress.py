"""Progress fits the terminal and does not mix with other lines."""

import io
import os
import re
import sys

import keras
import numpy as np
import pytest
from tiny_models import answerer

from keras_spanbert.runs import progress, reports

pytestmark = pytest.mark.usefixtures("one_layer", "untraced")


class Terminal(io.StringIO):
    """Stands for a terminal with the given number of columns, which may change."""

    def __init__(self, columns):
        super().__init__()
        self.columns = columns

    def isatty(self):
        return True

    def fileno(self):
        return 1

    def visible_lines(self):
        """Returns the lines that are visible at the end."""
        lines = []
        for line in self.getvalue().split("\n"):
            shown = ""
            for piece in line.split("\r"):
                shown = piece + shown[len(piece) :]  # Overwrites the previous text.
            lines.append(shown.rstrip())
        return lines


@pytest.fixture
def in_terminal(monkeypatch):
    """Runs a function in a terminal with the given columns, with a refresh at each step.

    Returns all drawn pieces, and the lines that are visible at the end.
    """

    def run(columns, function):
        terminal = Terminal(columns)
        with monkeypatch.context() as patch:
            patch.setattr(progress, "TERMINAL_SECONDS", 0.0)
            patch.setattr(sys, "stdout", terminal)
            patch.delenv("COLUMNS", raising=False)
            patch.setattr(
                os, "get_terminal_size", lambda fd: os.terminal_size((terminal.columns, 24))
            )
            function(terminal)
        return re.split("[\r\n]", terminal.getvalue()), terminal.visible_lines()

    return run


def of_steps(drawn):
    return [piece for piece in drawn if re.match(r"\d/\d ", piece) and "evaluating" not in piece]


def test_progress_of_scores_and_stopped_run_leaves_nothing(in_terminal):
    def fit(terminal):
        task = answerer()
        task.progress_labels = {name: name.upper() for name in ["mse", "mae"]}
        report = reports.TrainingReport(None, 4, 10, task, evaluate=lambda: {"f1": 7.0})
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=["mse", "mae"])
        x, y = np.ones((8, 3)), np.ones((8, 1))
        model.fit(x, y, batch_size=2, epochs=1, callbacks=[report], verbose=0)
        report.progress.show(5, 6, ["stopped"])
        report.close()
        print("The end", flush=True)

    drawn, lines = in_terminal(60, fit)
    # The last column stays empty, since text that reaches it continues on the next line.
    figures = [piece for piece in drawn if re.match(r"\d/\d |step |  \S.*left", piece)]
    assert len(figures) > 5 and all(len(piece) < 60 for piece in figures)
    assert len(of_steps(drawn)) == 5
    # Progress leaves nothing at the end of permanent lines.
    assert not [line for line in lines if re.match(r"\d/\d", line) or "evaluating" in line]
    assert [line for line in lines if line.endswith("the first step")]
    last = of_steps(drawn)[3]
    assert "loss" in last and "tokens/s" in last and "MSE" in last and "MAE" not in last
    assert [piece for piece in drawn if re.match(r"4/4 \[=+\]  evaluating", piece)]
    assert re.fullmatch(r"step 4/4  loss \d+\.\d{3}  F1 7\.00( .*)?", lines[1])
    assert [line for line in lines[2:] if "left" not in line] == ["The end", ""]


@pytest.mark.once
def test_line_follows_the_width_of_the_terminal(in_terminal):
    figures = ["0:12 left", "loss 1.234", "x" * 30, "short"]

    def draw(terminal):
        line = progress.ProgressLine()
        for columns in [100, 40, 0, 5]:
            terminal.columns = columns
            line.show(500, 1000, figures)

    drawn, _ = in_terminal(80, draw)
    wide, narrow, unknown, tiny = (piece.rstrip() for piece in drawn if piece)
    assert wide == f"500/1,000 [{'=' * 12}{' ' * 13}]  0:12 left  loss 1.234  {'x' * 30}  short"
    assert narrow == "500/1,000  0:12 left  loss 1.234  short"  # Only figures that fit.
    assert unknown == f"500/1,000  0:12 left  loss 1.234  {'x' * 30}  short"
    assert tiny == "500/"


@pytest.mark.once
def test_lines_without_a_terminal_are_30_seconds_apart(monkeypatch, capsys):
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    line = progress.ProgressLine()
    shown = []
    for step in range(100):
        clock[0] += 1.0
        if line.is_due():
            line.show(step, 100, [])
            shown.append(step)
        if step == 69:
            line.log("step 69")
    assert shown == [29, 59, 99]
    assert capsys.readouterr().out.splitlines() == ["29/100", "59/100", "step 69", "99/100"]
