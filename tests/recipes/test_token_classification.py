"""Runs of `train.py --task=token_classification`."""

import json

import pytest
from tiny_tagger import VOCABULARY, build, train
from train_script import run_in_process, save_encoder

from keras_spanbert import files

TASK = "--task=token_classification"
SIZES = ["--batch_size=16", "--sequence_length=16"]


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("preset") / "preset", build().backbone, VOCABULARY)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The preset of a trained model."""
    folder = tmp_path_factory.mktemp("trained")
    train().save_to_preset(folder)
    return folder


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def again(trained, folder):
    """Runs the trained preset with flags."""
    return lambda *flags: run_in_process(TASK, f"--preset={trained}", *flags)


def test_tagged_words_in_txt_files_are_recognized(again, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("annie\tB-person\nmet\tO\nbob\tO\n\nrome\tO\n")
    again("--predict_data=*.txt", "--predictions=b.jsonl")
    assert "Wrote the tags of 2 sentences" in capsys.readouterr().out
    assert read_lines(tmp_path / "b.jsonl") == [
        {"words": ["annie", "met", "bob"], "tags": ["B-person", "O", "B-person"]},
        {"words": ["rome"], "tags": ["B-place"]},
    ]


def test_column_of_words(again, tmp_path, caplog):
    rows = "1 annie B-person\n2 met O\n3 bob U-person\n\n1 new B-place\n2 york L-place\n"
    (tmp_path / "a.CONLL").write_bytes(rows.replace("\n", "\r").encode())
    flags = ["--eval_data=a.CONLL", "--predict_data=a.CONLL", "--words_column=1"]
    again(*flags, "--output=run", "--predictions=b.CSV")
    scores = files.read_json("run/metrics.json")
    assert scores["f1"] == scores["accuracy"] == 100.0
    assert [row["words"] for row in files.read_csv("b.CSV")] == ["annie met bob", "new york"]
    assert not [record for record in caplog.records if "only counts" in record.getMessage()]
    again("--predict_data=a.CONLL", "--predictions=c.conll")
    assert "a.CONLL: the column of words only counts 1, 2, 3" in caplog.text


def test_predicted_entities_of_lines_can_be_trained_on(again, preset, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("annie met bob.\n\nold rome, new york\n" * 8)
    again("--predict_data=a.txt", "--predictions=found.jsonl")
    assert "Wrote 32 entities of 16 texts" in capsys.readouterr().out
    rows = read_lines(tmp_path / "found.jsonl")
    assert [row["line"] for row in rows[:3]] == [1, 3, 4]
    assert [entity["text"] for entity in rows[1]["entities"]] == ["rome", "new york"]
    found = ["--train_data=found.jsonl", "--eval_data=found.jsonl", "--text_column=text"]
    run_in_process(TASK, f"--preset={preset}", "--output=more", *found, "--steps=2", *SIZES)
    assert "5 labels: O, B-person, I-person, B-place, I-place" in capsys.readouterr().out
    again(*found[1:], "--output=scores")
    assert files.read_json("scores/metrics.json")["f1"] == 100.0


def test_other_labels(preset, folder, capsys):
    rows = ["bob\tNN\nmet\tVB\n\n", "ann\tNN\nlives\tVB\nin\tIN\n\n"] * 8
    (folder / "a.txt").write_text("".join(rows))
    data = ["--train_data=a.txt", "--eval_data=a.txt", "--predict_data=a.txt"]
    flags = ["--predictions=tags.txt", "--labels_are_entities=false", "--output=run", "--steps=2"]
    run_in_process(TASK, f"--preset={preset}", *data, *flags, *SIZES)
    assert "3 labels: IN, NN, VB" in capsys.readouterr().out
    final = files.read_json("run/metrics.json")
    found = [line.split("\t") for line in (folder / "tags.txt").read_text().split("\n") if line]
    right = sum(gold == tag for _, gold, tag in found)
    assert final["accuracy"] == pytest.approx(100.0 * right / len(found)) and "f1" not in final
