"""`train.py --task=classification` as its users run it."""

import csv
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from train_script import check_mistake, in_process, printed

import keras_spanbert as ks

WORDS = "good fine dull long film hours and it".split()
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]


def rows(count, seed):
    generator = np.random.default_rng(seed)
    for i in range(count):
        is_good = int(generator.integers(2))
        word = generator.choice(WORDS[:2] if is_good else WORDS[2:4])
        rest = generator.choice(WORDS[4:], int(generator.integers(1, 12)))
        yield i, " ".join([word, *rest]), is_good


def write_csv(path, count, seed):
    names = ["awful", "fine"]
    lines = [f'm{i},"{text}",{names[label]}\n' for i, text, label in rows(count, seed)]
    path.write_text("".join(["key,body,folder\n", *lines]))
    return path


def write_sst(path, count, seed, has_labels=True):
    header = "sentence\tlabel\n" if has_labels else "index\tsentence\n"
    lines = [f"{t}\t{y}\n" if has_labels else f"{i}\t{t}\n" for i, t, y in rows(count, seed)]
    path.write_text("".join([header, *lines]))
    return path


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("preset") / "preset"
    keras.utils.set_random_seed(3)
    backbone = ks.SpanBertBackbone(
        len(VOCABULARY), 1, 2, 16, 32, dropout=0.0, max_sequence_length=24
    )
    ks.SpanBertPretrainer(
        backbone,
        ks.SpanBertPretrainerPreprocessor(ks.SpanBertTokenizer(VOCABULARY), sequence_length=24),
    ).save_to_preset(folder)
    return folder


COLUMNS = ["--text_column=body", "--label_column=folder", "--id_column=key"]


@pytest.fixture(scope="module")
def trained(preset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    write_csv(folder / "train.csv", 160, seed=1)
    write_csv(folder / "dev.csv", 40, seed=2)
    out, err = printed(
        "--task=classification", f"--preset={preset}", f"--output={folder / 'run'}",
        f"--train_data={folder / 'train.csv'}", f"--eval_data={folder / 'dev.csv'}",
        f"--predict_data={folder / 'dev.csv'}", f"--predictions={folder / 'labels.csv'}",
        "--epochs=12", "--learning_rate=1e-2", "--batch_size=16", *COLUMNS,
    )  # fmt: skip
    return folder, out, err


@pytest.mark.once
def test_run_learns_and_its_files_agree(trained):
    folder, out, err = trained
    assert "classifier and pooler, which start fresh" in err or "starts fresh" in err
    assert "2 classes: awful, fine" in out
    final = json.loads((folder / "run" / "metrics.json").read_text())
    with open(folder / "labels.csv", newline="") as file:
        predicted = list(csv.DictReader(file))
    with open(folder / "dev.csv", newline="") as file:
        gold = list(csv.DictReader(file))
    assert [row["id"] for row in predicted] == [row["key"] for row in gold]
    right = sum(a["label"] == b["folder"] for a, b in zip(predicted, gold))
    assert final["accuracy"] == pytest.approx(100.0 * right / 40) and right > 35
    assert f"accuracy {final['accuracy']:.2f}" in out
    with open(folder / "run" / "history.csv", newline="") as file:
        assert max(float(row["accuracy"]) for row in csv.DictReader(file)) == final["accuracy"]


@pytest.mark.once("tensorflow")
def test_exported_model_gives_the_predictions(preset, tmp_path):
    train, labels = write_csv(tmp_path / "train.csv", 80, seed=1), tmp_path / "labels.csv"
    in_process(
        "--task=classification", f"--preset={preset}", f"--output={tmp_path / 'run'}",
        f"--train_data={train}", f"--predict_data={train}", f"--predictions={labels}",
        f"--export={tmp_path / 'served'}", "--steps=60", "--learning_rate=1e-2",
        "--batch_size=16", *COLUMNS,
    )  # fmt: skip
    with open(train, newline="") as file:
        texts = [row["body"] for row in csv.DictReader(file)]
    with open(labels, newline="") as file:
        predicted = [row["label"] for row in csv.DictReader(file)]
    served = tf.saved_model.load(str(tmp_path / "served" / "1")).signatures["serving_default"]
    found = served(text=tf.constant(texts))["label"].numpy()
    assert [label.decode() for label in found] == predicted and len(set(predicted)) == 2


@pytest.mark.once
def test_a_label_that_the_model_does_not_have_is_told(trained, tmp_path, capsys):
    folder, *_ = trained
    (tmp_path / "dev.csv").write_text("key,body,folder\n1,good film,odd\n")
    with pytest.raises(SystemExit) as stop:
        in_process(
            "--task=classification", f"--preset={folder / 'run'}", f"--output={tmp_path / 'run'}",
            f"--eval_data={tmp_path / 'dev.csv'}", *COLUMNS,
        )  # fmt: skip
    check_mistake(stop.value.code, capsys.readouterr().err, "dev.csv, line 2", "awful, fine", "odd")


@pytest.mark.once
@pytest.mark.parametrize("flag", ["eval_data", "predict_data"])
def test_a_benchmark_of_other_classes_is_told(trained, tmp_path, capsys, flag):
    folder, *_ = trained
    write_sst(tmp_path / "dev.tsv", 4, seed=1, has_labels=flag == "eval_data")
    predictions = [f"--predictions={tmp_path / 'x.tsv'}"] if flag == "predict_data" else []
    with pytest.raises(SystemExit) as stop:
        in_process(
            "--task=classification", f"--preset={folder / 'run'}", f"--output={tmp_path / 'run'}",
            "--benchmark=sst-2", f"--{flag}={tmp_path / 'dev.tsv'}", *predictions,
        )  # fmt: skip
    values = ["classes of sst-2, 0, 1", "awful, fine"]
    check_mistake(stop.value.code, capsys.readouterr().err, *values)
    assert not (tmp_path / "x.tsv").exists()


@pytest.mark.once
def test_a_preset_without_classes_takes_data_to_train_on(preset, tmp_path, capsys):
    write_csv(tmp_path / "dev.csv", 4, seed=1)
    with pytest.raises(SystemExit) as stop:
        in_process(
            "--task=classification", f"--preset={preset}", f"--output={tmp_path / 'run'}",
            f"--eval_data={tmp_path / 'dev.csv'}", *COLUMNS,
        )  # fmt: skip
    check_mistake(stop.value.code, capsys.readouterr().err, "--train_data trains one", str(preset))


@pytest.mark.once
@pytest.mark.parametrize(
    "text, flags, values",
    [
        ("key,body,folder\n1,good,a\n", [], ["line 1", "text, label", "body"]),
        ("text,label\ngood,a\nfine,a\n", [], ["two labels or more", "a alone"]),
        ("text,label\ngood,\n", [], ["line 2", "`label`"]),
        ("text,label\n,a\n", [], ["line 2", "not empty"]),
        ("text,label\ngood,a\n", ["--regression"], ["line 2", "finite number"]),
    ],
)
def test_mistakes_in_columns_are_told(preset, tmp_path, capsys, text, flags, values):
    (tmp_path / "train.csv").write_text(text)
    with pytest.raises(SystemExit) as stop:
        in_process(
            "--task=classification", f"--preset={preset}", f"--output={tmp_path / 'run'}",
            f"--train_data={tmp_path / 'train.csv'}", *flags,
        )  # fmt: skip
    check_mistake(stop.value.code, capsys.readouterr().err, *values)
    assert not (tmp_path / "run").exists()


@pytest.mark.once
@pytest.mark.parametrize(
    "flags, values",
    [
        (["--benchmark=swag"], ["--benchmark=swag", "sst-2"]),
        (["--benchmark=rte", "--regression"], ["--regression"]),
        (["--predict_data={train}", "--predictions={folder}/x.txt"], [".jsonl"]),
    ],
)
def test_mistakes_in_flags_are_told_before_anything_is_read(
    preset, tmp_path, capsys, flags, values
):
    (tmp_path / "train.csv").write_bytes(b"\xff")
    flags = [f.format(train=tmp_path / "train.csv", folder=tmp_path) for f in flags]
    with pytest.raises(SystemExit) as stop:
        in_process(
            "--task=classification", f"--preset={preset}", f"--train_data={tmp_path / 'train.csv'}",
            *flags,
        )  # fmt: skip
    check_mistake(stop.value.code, capsys.readouterr().err, *values)


def test_a_benchmark_has_its_layout_scores_and_submission(preset, tmp_path, capsys):
    write_sst(tmp_path / "train.tsv", 64, seed=1)
    write_sst(tmp_path / "dev.tsv", 16, seed=2)
    write_sst(tmp_path / "test.tsv", 5, seed=3, has_labels=False)
    in_process(
        "--task=classification", "--benchmark=sst-2", f"--preset={preset}",
        f"--output={tmp_path / 'run'}", f"--train_data={tmp_path / 'train.tsv'}",
        f"--eval_data={tmp_path / 'dev.tsv'}", f"--predict_data={tmp_path / 'test.tsv'}",
        f"--predictions={tmp_path / 'SST-2.tsv'}", "--steps=4", "--batch_size=16",
        "--sequence_length=16",
    )  # fmt: skip
    final = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert final["score"] == final["accuracy"] and final["total"] == 16
    lines = (tmp_path / "SST-2.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction" and len(lines) == 6
    assert {line.split("\t")[1] for line in lines[1:]} <= {"0", "1"}
