"""Output of the commands: characters that a console lacks, and readers that leave."""

import io
import json
import os
import subprocess
import sys

import pytest
import small_runs
from train_script import run

import keras_spanbert as ks
import keras_spanbert_commands
from keras_spanbert import files, recipes
from keras_spanbert.console import protect_output


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_output_never_ends_a_program(encoding, monkeypatch):
    reading, writing = os.pipe()
    for name in ["stdout", "stderr"]:
        monkeypatch.setattr(sys, name, open(writing, "w", encoding=encoding, closefd=False))
    protect_output()
    text = "Ελένη – “é” \udce9"  # The last one is a byte of a file name that is not UTF-8.
    print(text, flush=True)
    print(text, file=sys.stderr, flush=True)
    expected = text.encode(encoding, "backslashreplace") + b"\n"
    assert os.read(reading, 1000) == 2 * expected
    os.close(reading)
    for stream in [sys.stdout, sys.stderr]:
        print("x" * 100_000, file=stream, flush=True)
        stream.close()
    os.close(writing)


def test_streams_without_a_file_are_kept(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    protect_output()
    assert sys.stdout is sys.stderr is stream


@pytest.mark.once
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_files_do_not_get_the_numbers_of_closed_streams(closed, tmp_path):
    """Otherwise the log of TensorFlow's C++ code would go to a file of the run."""
    code = f"""if True:
        import os, sys
        import keras_spanbert_commands as commands
        from keras_spanbert import recipes

        def main():
            with open({str(tmp_path / "found")!r}, "wb") as file:
                for number in [1, 2]:
                    os.write(number, b"line")
                print("line", file=sys.stdout)
                print("line", file=sys.stderr)
                file.write(b"%d" % (file.fileno() > 2))

        recipes.main = main
        commands.train()
    """
    subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", sys.executable, "-c", code], check=True)
    assert (tmp_path / "found").read_bytes() == b"1"


def test_commands_protect_their_output(monkeypatch):
    found = []
    with open(os.devnull, "w", encoding="ascii") as devnull:
        monkeypatch.setattr(sys, "stdout", devnull)
        monkeypatch.setattr(recipes, "main", lambda: found.append(sys.stdout.errors))
        keras_spanbert_commands.train()
        from keras_spanbert.checkpoints import __main__ as command

        monkeypatch.setattr(sys, "stdout", devnull)
        assert command.main(["no-such-file", "d"]) == 2
        assert [*found, sys.stdout.errors] == ["backslashreplace"] * 2


@pytest.mark.long
@pytest.mark.once("torch")
@pytest.mark.parametrize(
    "screen",
    ['PYTHONIOENCODING=ascii HOME=/dev/null "$@"', '"$@" | head -1', '"$@" >/dev/full 2>&-'],
)
def test_a_run_keeps_its_figures_without_a_screen(screen, tmp_path):
    def in_shell(command, **kwargs):
        shell = ["bash", "-c", f"set -o pipefail; {screen}", "bash"]
        return subprocess.Popen([*shell, *command], **kwargs)

    _, flags = small_runs.start("classification", tmp_path)
    output = tmp_path / "rün"
    code, out, err = run(*flags, "--steps=2", f"--output={output}", popen=in_shell)
    assert code == 0 and len(err.splitlines()) <= 1, err
    assert ("r\\xfcn" in out) == ("ascii" in screen)
    assert json.loads((output / "metrics.json").read_text())["steps"] == 2
    assert files.read_csv(output / "history.csv")[-1]["step"] == "2"
    assert ks.SpanBertTextClassifier.from_preset(str(output)).class_names == ["bad", "good"]
