"""Runs of `train.py --task=multiple_choice`."""

import csv
import json

import numpy as np
import pytest
from tiny_chooser import VOCABULARY, build, examples
from train_script import run_in_process, save_encoder

import keras_spanbert as ks
from keras_spanbert import data, files

TASK = "--task=multiple_choice"
COLORS = "--choice_columns=a,b,c,d"


def write_csv(path, rows):
    """Writes a table of questions with different numbers of choices."""
    lines = []
    for row in rows:
        texts = [*row["choices"], *[""] * (4 - len(row["choices"]))]
        line = {"name": f"q{row['id']}", "question": row["prompt"], **dict(zip("abcd", texts))}
        lines.append({**line, "label": "ABCD"[row["label"]]})
    files.write_csv(path, lines)
    return path


def write_codah(path, rows):
    lines = [["o", row["prompt"], *row["choices"], str(row["label"])] for row in rows]
    path.write_text("".join("\t".join(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("preset") / "preset", build().backbone, VOCABULARY)


@pytest.fixture(scope="module")
def trained(preset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    write_csv(folder / "train.csv", examples(320))
    write_csv(folder / "dev.csv", examples(40, seed=1))
    run_in_process(
        TASK, f"--preset={preset}", f"--output={folder / 'run'}", COLORS, "--id_column=name",
        f"--train_data={folder / 'train.csv'}", f"--eval_data={folder / 'dev.csv'}",
        f"--predict_data={folder / 'dev.csv'}", f"--predictions={folder / 'answers.csv'}",
        "--epochs=2", "--learning_rate=5e-3", "--batch_size=32",
    )  # fmt: skip
    return folder


def test_run_learns_and_writes_consistent_files(trained):
    final = files.read_json(trained / "run" / "metrics.json")
    assert final["accuracy"] > 90.0 and final["total"] == 40
    rows, gold = files.read_csv(trained / "answers.csv"), examples(40, seed=1)
    assert [row["id"] for row in rows] == [f"q{i}" for i in range(40)]
    right = [int(row["choice"]) == example["label"] for row, example in zip(rows, gold)]
    assert 100.0 * np.mean(right) == pytest.approx(final["accuracy"])
    assert all(0.0 < float(row["score"]) <= 1.0 for row in rows)
    history = files.read_csv(trained / "run" / "history.csv")
    assert [row["step"] for row in history] == ["10", "20"]
    assert max(float(row["accuracy"]) for row in history) == pytest.approx(final["accuracy"])
    record = files.read_json(trained / "run" / "run.json")
    assert record["flags"]["sequence_length"] == 16 and record["flags"]["batch_size"] == 32


def test_json_lines_with_choice_lists_and_contexts(trained, tmp_path):
    rows = examples(5, seed=2)
    files.write_json_lines(
        tmp_path / "test.jsonl",
        [{"q": row["prompt"], "answers": row["choices"], "story": "it and it"} for row in rows],
    )
    run_in_process(
        TASK, f"--preset={trained / 'run'}", f"--predict_data={tmp_path / 'test.jsonl'}",
        f"--predictions={tmp_path / 'a.jsonl'}", "--question_column=q",
        "--choice_columns=answers", "--context_column=story",
    )  # fmt: skip
    model = ks.SpanBertMultipleChoice.from_preset(str(trained / "run"))
    prompts, choices = ([row[name] for row in rows] for name in ["prompt", "choices"])
    expected = model.choose(prompts, choices, ["it and it"] * 5)
    found = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [row["choice"] for row in found] == [answer["choice"] for answer in expected]
    assert [row["id"] for row in found] == ["0", "1", "2", "3", "4"]


# tests/data/test_choices.py tests the formats of all benchmarks.
def test_released_format_and_its_predictions(trained, tmp_path):
    path, answers = tmp_path / "data", tmp_path / "answers.csv"
    names = ["", "sent1", "sent2", *(f"ending{i}" for i in range(4)), "label"]
    with open(path, "w", newline="") as file:
        rows = examples(6, seed=3, choices=4)
        cells = [[r["id"], "it", r["prompt"], *r["choices"], r["label"]] for r in rows]
        csv.writer(file).writerows([names, *cells])
    run_in_process(
        TASK, f"--preset={trained / 'run'}", f"--output={tmp_path / 'run'}", "--dataset=swag",
        f"--eval_data={path}", f"--predict_data={path}", f"--predictions={answers}",
    )  # fmt: skip
    model = ks.SpanBertMultipleChoice.from_preset(str(trained / "run"))
    read = data.swag.read(path)
    found = model.logits_of(read).argmax(axis=1).tolist()
    scores = files.read_json(tmp_path / "run" / "metrics.json")
    accuracy = np.mean([a == r["label"] for a, r in zip(found, read)])
    assert scores == {"accuracy": pytest.approx(100.0 * accuracy), "total": 6}
    assert answers.read_text() == ",pred\n" + "".join(f"{i},{a}\n" for i, a in enumerate(found))


def test_predictions_of_codah_are_a_table(trained, tmp_path):
    path, answers = write_codah(tmp_path / "data.tsv", examples(6, seed=3, choices=4)), "a.csv"
    run_in_process(
        TASK, f"--preset={trained / 'run'}", "--dataset=codah", f"--predict_data={path}",
        f"--predictions={tmp_path / answers}",
    )  # fmt: skip
    read, rows = data.codah.read(path), files.read_csv(tmp_path / answers)
    model = ks.SpanBertMultipleChoice.from_preset(str(trained / "run"))
    assert [int(row["choice"]) for row in rows] == model.logits_of(read).argmax(axis=1).tolist()
    assert [row["id"] for row in rows] == [example["id"] for example in read]
