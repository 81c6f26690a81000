"""`train.py --task=token_classification` as its users run it."""

import csv
import json

import pytest
import tensorflow as tf
from tiny_tagger import LABELS, build, examples
from train_script import check_mistake, in_process, printed

import keras_spanbert as ks
from keras_spanbert.data import conll

SIZES = ["--batch_size=16", "--sequence_length=16"]


def write_conll(path, count, seed):
    """Sentences in columns: word, its number, tag."""
    lines = []
    for example in examples(count, seed):
        rows = zip(example["words"], example["tags"])
        lines += [f"{word} {i} {tag}\n" for i, (word, tag) in enumerate(rows)]
        lines.append("\n")
    path.write_text("".join(lines))
    return path


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    """An encoder with a vocabulary, and no head."""
    folder = tmp_path_factory.mktemp("preset") / "preset"
    model = build()
    ks.SpanBertPretrainer(
        model.backbone,
        ks.SpanBertPretrainerPreprocessor(model.preprocessor.tokenizer, sequence_length=16),
    ).save_to_preset(folder)
    return folder


@pytest.fixture(scope="module")
def trained(preset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    write_conll(folder / "train.conll", 200, seed=1)
    write_conll(folder / "dev.conll", 40, seed=2)
    out, err = printed(
        "--task=token_classification", f"--preset={preset}", f"--output={folder / 'run'}",
        f"--train_data={folder / 'train.conll'}", f"--eval_data={folder / 'dev.conll'}",
        f"--predict_data={folder / 'dev.conll'}", f"--predictions={folder / 'tags.conll'}",
        "--epochs=6", "--learning_rate=2e-2", *SIZES,
    )  # fmt: skip
    return folder, out, err


def again(folder, output, *flags):
    """What the preset that was trained gives."""
    in_process(
        "--task=token_classification", f"--preset={folder / 'run'}", f"--output={output}", *flags
    )


@pytest.mark.once
def test_run_learns_and_its_files_agree(trained):
    folder, out, err = trained
    assert "no weights for the head of SpanBertTokenClassifier, which starts fresh" in err
    assert "5 labels: O, B-person, I-person, B-place, I-place" in out
    final = json.loads((folder / "run" / "metrics.json").read_text())
    gold = [example["tags"] for example in conll.read(folder / "dev.conll")]
    predicted = [example["tags"] for example in conll.read(folder / "tags.conll", convert=False)]
    scores = ks.metrics.entities(gold, predicted, strict=True)
    assert scores["f1"] > 90.0 and scores["f1"] == final["f1"]
    assert scores["by_type"]["person"]["recall"] == final["person_recall"]
    assert f"F1 {final['f1']:.2f}, accuracy {final['accuracy']:.2f}, on 40 examples" in out
    with open(folder / "run" / "history.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert max(float(row["f1"]) for row in rows) == pytest.approx(final["f1"])
    model = ks.SpanBertTokenClassifier.from_preset(folder / "run")
    assert model.labels == LABELS and model.preprocessor.sequence_length == 16


@pytest.mark.once
def test_texts_have_entities_on_their_lines(trained, tmp_path, capsys):
    folder, *_ = trained
    (tmp_path / "a.txt").write_text("annie met bob.\n\nold rome, new york\n")
    again(
        folder, tmp_path / "run", f"--predict_data={tmp_path / 'a.txt'}",
        f"--predictions={tmp_path / 'found.jsonl'}",
    )  # fmt: skip
    assert "Wrote 4 entities of 2 texts" in capsys.readouterr().out
    rows = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    assert [(row["line"], row["text"]) for row in rows] == [
        (1, "annie met bob."),
        (3, "old rome, new york"),
    ]
    assert [entity["text"] for entity in rows[1]["entities"]] == ["rome", "new york"]


@pytest.mark.once("tensorflow")
def test_exported_model_gives_the_entities(preset, tmp_path):
    train = write_conll(tmp_path / "train.conll", 200, seed=1)
    (tmp_path / "a.txt").write_text("annie met bob.\n\nold rome, new york\n")
    in_process(
        "--task=token_classification", f"--preset={preset}", f"--output={tmp_path / 'run'}",
        f"--train_data={train}", f"--predict_data={tmp_path / 'a.txt'}",
        f"--predictions={tmp_path / 'found.jsonl'}", f"--export={tmp_path / 'served'}",
        "--steps=40", "--learning_rate=2e-2", *SIZES,
    )  # fmt: skip
    rows = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    assert all(row["entities"] for row in rows)
    served = tf.saved_model.load(str(tmp_path / "served" / "1")).signatures["serving_default"]
    found = served(text=tf.constant([row["text"] for row in rows]))
    for name in ["start", "end"]:
        expected = [[entity[name] for entity in row["entities"]] for row in rows]
        assert found[name].numpy().tolist() == expected


@pytest.mark.once
def test_words_with_tags_in_a_txt_are_no_texts(trained, tmp_path, capsys):
    folder, *_ = trained
    (tmp_path / "a.txt").write_text("annie\tB-person\nmet\tO\nbob\tO\n\nrome\tO\n")
    predict = [f"--predict_data={tmp_path / '*.txt'}", f"--predictions={tmp_path / 'b.jsonl'}"]
    again(folder, tmp_path / "run", *predict)
    assert "Wrote the tags of 2 sentences" in capsys.readouterr().out
    rows = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert rows == [
        {"words": ["annie", "met", "bob"], "tags": ["B-person", "O", "B-person"]},
        {"words": ["rome"], "tags": ["B-place"]},
    ]
    (tmp_path / "b.jsonl").unlink()
    (tmp_path / "c.txt").write_text("annie met bob.\nold rome\n")
    with pytest.raises(SystemExit) as stop:
        again(folder, tmp_path / "mixed", *predict)
    mistake = [f"{tmp_path / 'c.txt'}, line 1", "in .txt with --predictions in .jsonl"]
    check_mistake(stop.value.code, capsys.readouterr().err, *mistake)


@pytest.mark.once
def test_words_and_texts_in_tables(trained, tmp_path, capsys):
    folder, *_ = trained
    rows = [{"tokens": x["words"], "ner": x["tags"], "key": "k"} for x in examples(4, seed=5)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = ["--words_column=tokens", "--label_column=ner"]
    again(
        folder, tmp_path / "run", f"--eval_data={tmp_path / 'a.jsonl'}", *columns,
        f"--predict_data={tmp_path / 'a.jsonl'}", f"--predictions={tmp_path / 'b.csv'}",
    )  # fmt: skip
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["total"] == 4
    with open(tmp_path / "b.csv", newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["words"].split() for row in found] == [row["tokens"] for row in rows]
    assert all(len(row["tags"].split()) == len(row["words"].split()) for row in found)
    (tmp_path / "texts.csv").write_text('mail,body\nm1,"annie, met"\nm2,rome\n')
    again(
        folder, tmp_path / "texts", f"--predict_data={tmp_path / 'texts.csv'}",
        f"--predictions={tmp_path / 'c.jsonl'}", "--text_column=body", "--id_column=mail",
    )  # fmt: skip
    found = [json.loads(line) for line in (tmp_path / "c.jsonl").read_text().splitlines()]
    assert [row["id"] for row in found] == ["m1", "m2"]
    assert [row["entities"][0]["text"] for row in found] == ["annie", "rome"]


@pytest.mark.once
def test_entities_that_were_found_are_data_to_train_on(trained, preset, tmp_path, capsys):
    folder, *_ = trained
    (tmp_path / "a.txt").write_text("annie met bob in new york.\nold rome\n" * 8)
    found, column = tmp_path / "found.jsonl", "--text_column=text"
    again(
        folder, tmp_path / "run", f"--predict_data={tmp_path / 'a.txt'}", f"--predictions={found}"
    )
    in_process(
        "--task=token_classification", f"--preset={preset}", f"--output={tmp_path / 'more'}",
        f"--train_data={found}", f"--eval_data={found}", column, "--steps=2", *SIZES,
    )  # fmt: skip
    assert "5 labels: O, B-person, I-person, B-place, I-place" in capsys.readouterr().out
    again(folder, tmp_path / "scores", f"--eval_data={found}", column)
    assert json.loads((tmp_path / "scores" / "metrics.json").read_text())["f1"] == 100.0
    found.write_text(found.read_text().replace("person", "group"))
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        again(folder, tmp_path / "other", f"--eval_data={found}", column)
    values = ["found.jsonl, line 1", "have a label of person, place", "'group'"]
    check_mistake(stop.value.code, capsys.readouterr().err, *values)


@pytest.mark.once
def test_labels_of_no_entities(preset, tmp_path, capsys):
    rows = ["bob\tNN\nmet\tVB\n\n", "ann\tNN\nlives\tVB\nin\tIN\n\n"] * 8
    (tmp_path / "a.txt").write_text("".join(rows))
    in_process(
        "--task=token_classification", f"--preset={preset}", f"--output={tmp_path / 'run'}",
        f"--train_data={tmp_path / 'a.txt'}", f"--eval_data={tmp_path / 'a.txt'}",
        f"--predict_data={tmp_path / 'a.txt'}", f"--predictions={tmp_path / 'tags.txt'}",
        "--noentities", "--steps=2", *SIZES,
    )  # fmt: skip
    assert "3 labels: IN, NN, VB" in capsys.readouterr().out
    final = json.loads((tmp_path / "run" / "metrics.json").read_text())
    found = [line.split("\t") for line in (tmp_path / "tags.txt").read_text().split("\n") if line]
    right = sum(gold == tag for _, gold, tag in found)
    assert final["accuracy"] == pytest.approx(100.0 * right / len(found)) and "f1" not in final


@pytest.mark.once
@pytest.mark.parametrize(
    "text, flags, values",
    [
        ("bob\tB-group\n", [], ["a.conll, line 1", "one of person, place", "B-group"]),
        ("bob\tgroup\n", [], ["a.conll, line 1", "must be O, or B-", "group"]),
        ("bob\n", [], ["a.conll, line 1", "word and its tag"]),
        ("bob\tO\n", ["--label_column=7"], ["a.conll, line 1", "(--label_column)", "=7"]),
        ("\n", [], ["a.conll", "must hold sentences"]),
        ("annie met bob.\n", [], ["a.conll, line 1", ".jsonl files with --text_column"]),
    ],
)
def test_mistakes_in_files_are_told(trained, tmp_path, capsys, text, flags, values):
    folder, *_ = trained
    (tmp_path / "a.conll").write_text(text)
    with pytest.raises(SystemExit) as stop:
        again(folder, tmp_path / "run", f"--eval_data={tmp_path / 'a.conll'}", *flags)
    check_mistake(stop.value.code, capsys.readouterr().err, *values)
    assert not (tmp_path / "run").exists()


@pytest.mark.once
@pytest.mark.parametrize(
    "flags, values",
    [
        (["--train_data={file}", "--benchmark=swag"], ["none with --task=token_classification"]),
        (["--train_data={file}", "--label_column=tag"], ["--label_column", "a number", "tag"]),
        (["--predict_data={file}", "--predictions={folder}/b.json"], [".conll, .txt", ".jsonl"]),
        (["--predict_data={file}"], ["--predict_data and --predictions go together"]),
    ],
)
def test_mistakes_in_flags_are_told_before_anything_is_read(
    preset, tmp_path, capsys, flags, values
):
    (tmp_path / "a.conll").write_bytes(b"\xff")
    flags = [flag.format(file=tmp_path / "a.conll", folder=tmp_path) for flag in flags]
    with pytest.raises(SystemExit) as stop:
        again(preset.parent, tmp_path / "run", f"--preset={preset}", *flags)
    check_mistake(stop.value.code, capsys.readouterr().err, *values)


@pytest.mark.once
def test_tags_of_one_kind_alone_are_told(preset, tmp_path, capsys):
    (tmp_path / "a.conll").write_text("bob\tO\n")
    with pytest.raises(SystemExit) as stop:
        again(
            preset.parent, tmp_path / "run", f"--preset={preset}",
            f"--train_data={tmp_path / 'a.conll'}",
        )  # fmt: skip
    check_mistake(stop.value.code, capsys.readouterr().err, "two labels or more", "O alone")
