"""Progress fits the terminal, and other lines stand by themselves."""

import fcntl
import os
import pty
import re
import struct
import sys
import termios
import threading

import keras
import numpy as np
import pytest
from train_script import in_process

import keras_spanbert as ks
from keras_spanbert.runs import progress, reports

pytestmark = pytest.mark.usefixtures("one_layer", "untraced")


class Terminal:
    """A real terminal of so many columns in place of stdout, and what it then shows."""

    def __init__(self, columns):
        self.columns = columns
        self._master, slave = pty.openpty()
        self.resize(columns)
        self.stdout = os.fdopen(slave, "w")
        self._received = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def resize(self, columns):
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def _read(self):
        while True:
            try:
                data = os.read(self._master, 4096)
            except OSError:  # Nobody writes any more.
                return
            if not data:
                return
            self._received += data

    def close(self):
        """Returns all that was drawn, piece by piece, and the lines that stand in the end."""
        self.stdout.close()
        self._reader.join()
        os.close(self._master)
        text = self._received.decode()
        lines = []
        for line in text.split("\n"):
            shown = ""
            for piece in line.split("\r"):
                shown = piece + shown[len(piece) :]  # Drawn over what was there.
            lines.append(shown.rstrip())
        return re.split("[\r\n]", text), lines


@pytest.fixture
def in_terminal(monkeypatch):
    """Runs a function in a terminal of so many columns, with a refresh at each step."""

    def run(columns, function):
        terminal = Terminal(columns)
        with monkeypatch.context() as patch:
            patch.setattr(progress, "TERMINAL_SECONDS", 0.0)
            patch.setattr(sys, "stdout", terminal.stdout)
            try:
                function(terminal)
            finally:
                found = terminal.close()
        return found

    return run


def pretrain(texts, tmp_path):
    in_process(
        f"--train_data={texts}", f"--output={tmp_path / 'run'}", "--vocabulary_size=200",
        "--sequence_length=16", "--batch_size=4", "--steps=7", "--eval_every=5", "--eval_steps=2",
    )  # fmt: skip


@pytest.mark.slow
def test_progress_of_a_run_fits_the_terminal(texts, tmp_path, in_terminal):
    drawn, lines = in_terminal(80, lambda _: pretrain(texts, tmp_path))
    check_progress(drawn, lines, 80, steps=7)
    assert re.match(r"7/7 .*0:00 left  loss .* tokens/s  MLM \d.*  SBO \d", of_steps(drawn)[-1])
    assert [piece for piece in drawn if re.match(r"5/7 \[.*\]  evaluating, batch \d", piece)]
    first, second = [i for i, line in enumerate(lines) if line.startswith("step ")]
    assert second == first + 2  # On two lines each, as they are wider.
    assert re.match(r"step 5/7  held-out MLM .* SBO .* tokens/s$", lines[first])
    assert re.match(r"  \d+ ms a step.* peak .* left$", lines[first + 1])


def of_steps(drawn):
    return [piece for piece in drawn if re.match(r"\d/\d ", piece) and "evaluating" not in piece]


def check_progress(drawn, lines, columns, steps):
    # The terminal's last column stays empty: what reaches it goes on in the next line.
    figures = [piece for piece in drawn if re.match(r"\d/\d |step |  \S.*left", piece)]
    assert len(figures) > steps and all(len(piece) < columns for piece in figures)
    assert len(of_steps(drawn)) == steps
    # Nothing of it is left behind lines that stay.
    assert not [line for line in lines if re.match(r"\d/\d", line) or "evaluating" in line]
    assert [line for line in lines if line.endswith("the first step")]


def test_progress_of_scores_and_of_a_run_that_stops_leaves_no_rest(in_terminal):
    def fit(terminal):
        report = reports.TrainingReport(
            None,
            4,
            10,
            describe=ks.SpanBertQuestionAnswerer.describe,
            evaluate=lambda: {"f1": 7.0},
            labels={name: name.upper() for name in ["mse", "mae"]},
        )
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=["mse", "mae"])
        x, y = np.ones((8, 3)), np.ones((8, 1))
        model.fit(x, y, batch_size=2, epochs=1, callbacks=[report], verbose=0)
        report.progress.show(5, 6, ["stopped"])
        report.close()
        print("The end", flush=True)

    drawn, lines = in_terminal(60, fit)
    check_progress(drawn, lines, 60, steps=5)
    last = of_steps(drawn)[3]
    assert "loss" in last and "tokens/s" in last and "MSE" in last and "MAE" not in last
    assert [piece for piece in drawn if re.match(r"4/4 \[=+\]  evaluating", piece)]
    assert re.fullmatch(r"step 4/4  loss \d+\.\d{3}  F1 7\.00( .*)?", lines[1])
    assert lines[2:] == ["The end", ""]


@pytest.mark.once
def test_line_follows_the_width_of_the_terminal(in_terminal):
    figures = ["0:12 left", "loss 1.234", "x" * 30, "short"]

    def draw(terminal):
        line = progress.ProgressLine()
        for columns in [100, 40, 0, 5]:
            terminal.resize(columns)
            line.show(500, 1000, figures)

    drawn, _ = in_terminal(80, draw)
    wide, narrow, unknown, tiny = (piece.rstrip() for piece in drawn if piece)
    assert wide == f"500/1,000 [{'=' * 12}{' ' * 13}]  0:12 left  loss 1.234  {'x' * 30}  short"
    assert narrow == "500/1,000  0:12 left  loss 1.234  short"  # What fits, of the others.
    assert unknown == f"500/1,000  0:12 left  loss 1.234  {'x' * 30}  short"
    assert tiny == "500/"


@pytest.mark.slow
@pytest.mark.once
def test_progress_without_a_terminal_is_lines_that_stay(texts, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "LOG_SECONDS", 0.0)
    pretrain(texts, tmp_path)
    out = capsys.readouterr().out
    assert "the first step\n1/7  loss" in out and "\nstep 5/7  held-out" in out
    assert len(re.findall(r"^\d/7  .*loss \d.*MLM \d.*SBO \d", out, re.MULTILINE)) == 7
    assert "\r" not in out


@pytest.mark.once
def test_lines_without_a_terminal_are_half_a_minute_apart(monkeypatch, capsys):
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
