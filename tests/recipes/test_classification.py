"""Runs of `train.py --task=classification`."""

import json

import keras
import numpy as np
import pytest
import train_script
from train_script import run_and_capture, run_in_process

import keras_spanbert as ks
from keras_spanbert import files

WORDS = "good fine dull long film hours and it".split()
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
TASK = "--task=classification"


def rows(count, seed):
    generator = np.random.default_rng(seed)
    for i in range(count):
        is_good = int(generator.integers(2))
        word = generator.choice(WORDS[:2] if is_good else WORDS[2:4])
        rest = generator.choice(WORDS[4:], int(generator.integers(1, 12)))
        yield i, " ".join([word, *rest]), is_good


def write_sst(path, count, seed, has_labels=True):
    header = "sentence\tlabel\n" if has_labels else "index\tsentence\n"
    lines = [f"{t}\t{y}\n" if has_labels else f"{i}\t{t}\n" for i, t, y in rows(count, seed)]
    path.write_text("".join([header, *lines]))
    return path


def save_preset(folder, hidden_dim, **kwargs):
    keras.utils.set_random_seed(3)
    sizes = {"dropout": 0.0, "max_sequence_length": 24, **kwargs}
    backbone = ks.SpanBertBackbone(len(VOCABULARY), 1, 2, hidden_dim, 2 * hidden_dim, **sizes)
    return train_script.save_encoder(folder, backbone, VOCABULARY)


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    return save_preset(tmp_path_factory.mktemp("preset") / "preset", 16)


def test_benchmark_layout_scores_and_submission(preset, tmp_path):
    write_sst(tmp_path / "train.tsv", 64, seed=1)
    write_sst(tmp_path / "dev.tsv", 16, seed=2)
    write_sst(tmp_path / "test.tsv", 5, seed=3, has_labels=False)
    run_in_process(
        TASK, "--dataset=sst-2", f"--preset={preset}", f"--output={tmp_path / 'run'}",
        f"--train_data={tmp_path / 'train.tsv'}", f"--eval_data={tmp_path / 'dev.tsv'}",
        f"--predict_data={tmp_path / 'test.tsv'}", f"--predictions={tmp_path / 'SST-2.tsv'}",
        "--steps=4", "--batch_size=16", "--sequence_length=16",
    )  # fmt: skip
    final = files.read_json(tmp_path / "run" / "metrics.json")
    assert final["score"] == final["accuracy"] and final["total"] == 16
    lines = (tmp_path / "SST-2.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction" and len(lines) == 6
    assert {line.split("\t")[1] for line in lines[1:]} <= {"0", "1"}


def write_tags(path, count, seed):
    """Writes texts with two of their words as labels, in a table or in JSON lines."""
    generator = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        labels = [name for name in ["dull", "fine"] if generator.integers(2)]
        words = generator.permutation([*labels, *generator.choice(WORDS[4:], 3)])
        rows.append({"id": f"t{i}", "text": " ".join(words), "label": labels})
    if path.suffix == ".jsonl":
        files.write_json_lines(path, rows)
    else:
        files.write_csv(path, [{**row, "label": "|".join(row["label"])} for row in rows])
    return path


@pytest.fixture(scope="module")
def tagged_words(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagged")
    preset = save_preset(folder / "preset", 32, initializer_range=0.2)
    out, _ = run_and_capture(
        TASK, "--multi_label", f"--preset={preset}", f"--output={folder / 'run'}",
        f"--train_data={write_tags(folder / 'train.csv', 160, 1)}",
        f"--eval_data={write_tags(folder / 'dev.jsonl', 40, 2)}",
        f"--predict_data={folder / 'dev.jsonl'}", f"--predictions={folder / 'labels.csv'}",
        "--id_column=id", "--epochs=20", "--learning_rate=2e-3", "--batch_size=16",
    )  # fmt: skip
    return folder, out


def test_multi_label_run(tagged_words):
    folder, out = tagged_words
    assert "2 classes: dull, fine" in out
    final = files.read_json(folder / "run" / "metrics.json")
    gold = [json.loads(line) for line in (folder / "dev.jsonl").read_text().splitlines()]
    predicted = files.read_csv(folder / "labels.csv")
    assert [row["id"] for row in predicted] == [row["id"] for row in gold]
    found = [row["labels"].split("|") if row["labels"] else [] for row in predicted]
    for row, labels in zip(predicted, found):
        scores = [float(score) for score in row["scores"].split("|") if score]
        assert len(scores) == len(labels) and all(score >= 0.5 for score in scores)
    right = sum(len(set(a) & set(b["label"])) for a, b in zip(found, gold))
    marked = sum(len(a) + len(b["label"]) for a, b in zip(found, gold))
    assert final["micro_f1"] == pytest.approx(200.0 * right / marked) and final["micro_f1"] > 80
    assert final["score"] == final["micro_f1"]
    assert f"micro F1 {final['micro_f1']:.2f}" in out


def test_multi_label_preset_is_recognized(tagged_words, tmp_path):
    folder, _ = tagged_words
    run_in_process(
        TASK, f"--preset={folder / 'run'}", f"--output={tmp_path / 'run'}",
        f"--eval_data={folder / 'dev.jsonl'}", "--selection_metric=macro_f1",
        f"--predict_data={folder / 'train.csv'}", f"--predictions={tmp_path / 'labels.jsonl'}",
    )  # fmt: skip
    final = files.read_json(tmp_path / "run" / "metrics.json")
    assert final["score"] == final["macro_f1"]
    rows = [json.loads(line) for line in (tmp_path / "labels.jsonl").read_text().splitlines()]
    assert len(rows) == 160 and {len(row["labels"]) for row in rows} == {0, 1, 2}
    assert all(len(row["labels"]) == len(row["scores"]) for row in rows)
