"""Output of the commands: characters that a console lacks, and readers that leave."""

import io
import os
import sys

import pytest

import keras_spanbert_commands
from keras_spanbert import recipes
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


@pytest.mark.parametrize("stream", [None, io.StringIO()])
def test_streams_without_a_file_are_kept(stream, monkeypatch):
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    protect_output()
    assert sys.stdout is sys.stderr is stream


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
