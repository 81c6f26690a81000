"""`train.py --task=multiple_choice` as its users run it."""

import csv
import importlib
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from tiny_chooser import build, examples
from train_script import check_alone, check_mistake, in_process

import keras_spanbert as ks
from keras_spanbert.data import codah, columns

TASK = "--task=multiple_choice"
COLORS = "--choice_columns=a,b,c,d"


def write_csv(path, rows, labelled=True):
    """A table of one's own, with a choice less here and there."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "question", "a", "b", "c", "d", *["label"] * labelled])
        for row in rows:
            texts = [*row["choices"], *[""] * (4 - len(row["choices"]))]
            name = f"q{row['id']}"
            writer.writerow([name, row["prompt"], *texts, *["ABCD"[row["label"]]] * labelled])
    return path


def write_codah(path, rows):
    with open(path, "w") as file:
        for row in rows:
            texts = [*row["choices"], *["it"] * (4 - len(row["choices"]))]
            file.write("\t".join(["o", row["prompt"], *texts, str(row["label"])]) + "\n")
    return path


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
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
    write_csv(folder / "train.csv", examples(320))
    write_csv(folder / "dev.csv", examples(40, seed=1))
    in_process(
        TASK, f"--preset={preset}", f"--output={folder / 'run'}", COLORS, "--id_column=name",
        f"--train_data={folder / 'train.csv'}", f"--eval_data={folder / 'dev.csv'}",
        f"--predict_data={folder / 'dev.csv'}", f"--predictions={folder / 'answers.csv'}",
        "--epochs=2", "--learning_rate=5e-3", "--batch_size=32",
    )  # fmt: skip
    return folder


def read_rows(path, **kwargs):
    with open(path, newline="") as file:
        return list(csv.DictReader(file, **kwargs))


@pytest.mark.once
def test_run_learns_and_its_files_agree(trained):
    final = json.loads((trained / "run" / "metrics.json").read_text())
    assert final["accuracy"] > 90.0 and final["total"] == 40
    rows, gold = read_rows(trained / "answers.csv"), examples(40, seed=1)
    assert [row["id"] for row in rows] == [f"q{i}" for i in range(40)]
    right = [int(row["choice"]) == example["label"] for row, example in zip(rows, gold)]
    assert 100.0 * np.mean(right) == pytest.approx(final["accuracy"])
    assert all(0.0 < float(row["score"]) <= 1.0 for row in rows)
    history = read_rows(trained / "run" / "history.csv")
    assert [row["step"] for row in history] == ["10", "20"]
    assert max(float(row["accuracy"]) for row in history) == pytest.approx(final["accuracy"])
    record = json.loads((trained / "run" / "run.json").read_text())
    assert record["flags"]["sequence_length"] == 16 and record["flags"]["batch_size"] == 32


@pytest.mark.once("tensorflow")
def test_exported_model_gives_the_predictions(tmp_path):
    build().save_to_preset(tmp_path / "preset")
    dev = write_csv(tmp_path / "dev.csv", examples(40, seed=1))
    in_process(
        TASK, f"--preset={tmp_path / 'preset'}", f"--output={tmp_path / 'run'}", COLORS,
        f"--predict_data={dev}", f"--predictions={tmp_path / 'answers.csv'}",
        f"--export={tmp_path / 'served'}",
    )  # fmt: skip
    served = tf.saved_model.load(str(tmp_path / "served" / "1")).signatures["serving_default"]
    rows = columns.read_choices(dev, choices=["a", "b", "c", "d"])
    choices = [[*row["choices"], *[""] * (4 - len(row["choices"]))] for row in rows]
    outputs = served(
        prompt=tf.constant([row["prompt"] for row in rows]), choices=tf.constant(choices)
    )
    answers = read_rows(tmp_path / "answers.csv")
    expected = [int(row["choice"]) for row in answers]
    assert outputs["choice"].numpy().tolist() == expected and len(set(expected)) > 2
    scores = [float(row["score"]) for row in answers]
    np.testing.assert_allclose(outputs["scores"].numpy().max(axis=1), scores, atol=1e-4)


@pytest.mark.once
def test_saved_preset_is_the_best_of_the_run(trained, tmp_path, capsys):
    dev = write_csv(tmp_path / "test.csv", examples(40, seed=1), labelled=False)
    in_process(
        TASK, f"--preset={trained / 'run'}", f"--output={tmp_path / 'again'}", COLORS,
        f"--eval_data={trained / 'dev.csv'}", "--id_column=name", f"--predict_data={dev}",
        f"--predictions={tmp_path / 'answers.jsonl'}",
    )  # fmt: skip
    again = json.loads((tmp_path / "again" / "metrics.json").read_text())
    final = json.loads((trained / "run" / "metrics.json").read_text())
    assert again["accuracy"] == final["accuracy"]
    assert f"accuracy {final['accuracy']:.2f}, on 40 examples" in capsys.readouterr().out
    rows = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    expected = read_rows(trained / "answers.csv")
    assert [row["choice"] for row in rows] == [int(row["choice"]) for row in expected]


@pytest.mark.once
def test_lists_in_json_lines_with_a_context(trained, tmp_path):
    with open(tmp_path / "test.jsonl", "w") as file:
        for row in examples(5, seed=2):
            line = {"q": row["prompt"], "answers": row["choices"], "story": "it and it"}
            file.write(json.dumps(line) + "\n")
    in_process(
        TASK, f"--preset={trained / 'run'}", f"--output={tmp_path / 'run'}",
        f"--predict_data={tmp_path / 'test.jsonl'}", f"--predictions={tmp_path / 'a.tsv'}",
        "--question_column=q", "--choice_columns=answers", "--context_column=story",
    )  # fmt: skip
    model = ks.SpanBertMultipleChoice.from_preset(str(trained / "run"))
    rows = examples(5, seed=2)
    prompts, choices = ([row[name] for row in rows] for name in ["prompt", "choices"])
    expected = model.choose(prompts, choices, ["it and it"] * 5)
    found = read_rows(tmp_path / "a.tsv", delimiter="\t")
    assert [int(row["choice"]) for row in found] == [answer["choice"] for answer in expected]
    assert [row["id"] for row in found] == ["0", "1", "2", "3", "4"]


@pytest.mark.once
@pytest.mark.parametrize("benchmark", ["swag", "codah", "cosmos_qa", "commonsense_qa", "race"])
def test_released_layouts_are_read_and_their_predictions_written(trained, tmp_path, benchmark):
    rows = examples(6, seed=3, choices=4)
    path = tmp_path / "data"
    if benchmark == "codah":
        write_codah(path, rows)
    elif benchmark in ("swag", "cosmos_qa"):
        names = {
            "swag": ["", "sent1", "sent2", *(f"ending{i}" for i in range(4)), "label"],
            "cosmos_qa": ["id", "context", "question", *(f"answer{i}" for i in range(4)), "label"],
        }
        with open(path, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(names[benchmark])
            for r in rows:
                writer.writerow([r["id"], "it", r["prompt"], *r["choices"], r["label"]])
    elif benchmark == "commonsense_qa":
        with open(path, "w") as file:
            for r in rows:
                choices = [{"label": a, "text": t} for a, t in zip("ABCD", r["choices"])]
                question = {"stem": r["prompt"], "choices": choices}
                line = {"id": r["id"], "question": question, "answerKey": "ABCD"[r["label"]]}
                file.write(json.dumps(line) + "\n")
    else:
        article = {
            "id": "high1.txt",
            "article": "it and it",
            "questions": [r["prompt"] for r in rows],
            "options": [r["choices"] for r in rows],
            "answers": ["ABCD"[r["label"]] for r in rows],
        }
        path.write_text(json.dumps(article))
    answers = tmp_path / "answers.csv"
    in_process(
        TASK, f"--preset={trained / 'run'}", f"--output={tmp_path / 'run'}",
        f"--benchmark={benchmark}", f"--eval_data={path}", f"--predict_data={path}",
        f"--predictions={answers}",
    )  # fmt: skip
    model = ks.SpanBertMultipleChoice.from_preset(str(trained / "run"))
    read = importlib.import_module(f"keras_spanbert.data.{benchmark}").read(path)
    found = model.logits_of(read).argmax(axis=1).tolist()
    scores = json.loads((tmp_path / "run" / "metrics.json").read_text())
    accuracy = np.mean([a == r["label"] for a, r in zip(found, read)])
    assert scores == {"accuracy": pytest.approx(100.0 * accuracy), "total": 6}
    written = {
        "swag": ",pred\n" + "".join(f"{i},{a}\n" for i, a in enumerate(found)),
        "cosmos_qa": "".join(f"{a}\n" for a in found),
        "commonsense_qa": "".join(f"{i},{'ABCD'[a]}\n" for i, a in enumerate(found)),
    }
    if benchmark in written:
        assert answers.read_text() == written[benchmark]
    else:
        assert [int(row["choice"]) for row in read_rows(answers)] == found
        assert [row["id"] for row in read_rows(answers)] == [example["id"] for example in read]


def test_run_on_codah_goes_on_where_it_was(preset, tmp_path, capsys):
    train = write_codah(tmp_path / "train.tsv", examples(40, choices=4))
    assert len(codah.read(train)) == 40
    arguments = [
        TASK, f"--preset={preset}", "--benchmark=codah", f"--train_data={train}",
        f"--eval_data={train}", "--batch_size=8", "--steps=6", "--eval_every=3",
        "--checkpoint_every=3",
    ]  # fmt: skip
    in_process(*arguments, f"--output={tmp_path / 'run'}")
    before = ks.SpanBertMultipleChoice.from_preset(str(tmp_path / "run")).get_weights()
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step-6")
    capsys.readouterr()
    in_process(f"--output={tmp_path / 'run'}", "--resume")
    assert "Going on from step 3" in capsys.readouterr().out
    after = ks.SpanBertMultipleChoice.from_preset(str(tmp_path / "run")).get_weights()
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.once
@pytest.mark.parametrize(
    "arguments, values",
    [
        (["--train_data=dev.csv"], ["--preset"]),
        (["--preset={preset}", "--eval_data=dev.csv", COLORS], ["trained head", "classifier"]),
        (["--preset={preset}", "--train_data=dev.csv"], ["dev.csv", "choice0"]),
        (
            ["--preset={preset}", "--train_data=dev.csv", "--choice_columns=a"],
            ["dev.csv, line 2", "list"],
        ),
        (
            ["--preset={preset}", "--train_data=dev.csv", COLORS, "--label_column=right"],
            ["dev.csv", "right"],
        ),
        (
            ["--preset={preset}", "--train_data=none.csv", COLORS],
            ["none.csv, line 2", "must have a label"],
        ),
        (
            ["--preset={preset}", "--train_data=other.csv", COLORS],
            ["other.csv, line 2", "A to B", "Received: 'D'"],
        ),
        (["--preset={preset}", "--train_data=one.csv", COLORS], ["one.csv, line 2", "two choices"]),
        (["--preset={preset}", "--train_data=bytes.csv", COLORS], ["bytes.csv", "UTF-8"]),
        (["--preset={preset}", "--train_data=dev.txt", COLORS], ["dev.txt", ".csv"]),
        (
            ["--preset={preset}", "--benchmark=codah", "--train_data=dev.csv"],
            ["dev.csv, line 1", "7 columns"],
        ),
    ],
)
def test_mistake_names_what_is_wrong(
    preset, tmp_path, capsys, caplog, monkeypatch, arguments, values
):
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "dev.csv", examples(40, choices=2))
    header = "question,a,b,c,d,label\n"
    (tmp_path / "none.csv").write_text(header + "it is,it,red,,,\n")
    (tmp_path / "other.csv").write_text(header + "it is,it,red,,,D\n")
    (tmp_path / "one.csv").write_text(header + "it is,it,,,,0\n")
    (tmp_path / "bytes.csv").write_bytes(header.encode() + b"it \xff,it,red,,,0\n")
    (tmp_path / "dev.txt").write_text("it is\n")
    arguments = [argument.format(preset=preset) for argument in arguments]
    with pytest.raises(SystemExit) as error:
        in_process(TASK, "--output=out", "--batch_size=8", *arguments)
    check_mistake(error.value.code, capsys.readouterr().err, *values)
    # What is wrong with data to train on is told before what the preset lacks.
    assert "fresh" not in caplog.text or not any("--train_data" in a for a in arguments)
    assert not (tmp_path / "out").exists()


@pytest.mark.once
@pytest.mark.parametrize(
    "arguments, rule",
    [
        (["--benchmark=rte"], "`--benchmark` must be of multiple_choice"),
        (["--benchmark=codah", "--question_column=q"], "`--question_column` must be without"),
        (["--benchmark=codah", "--choice_columns=a,b"], "`--choice_columns` must be without"),
        (["--text_column=q"], "`--text_column` must be left out: --question_column"),
        (["--choice_columns="], "`--choice_columns` must be a column or more"),
        (["--sequence_length=4"], "`--sequence_length` must be at least 5"),
        (["--predict_data={data}", "--predictions=a.txt"], "`--predictions` must be a file that"),
        (
            ["--predict_data={data}", "--predictions=a.txt", "--benchmark=codah"],
            "`--predictions` must be a file that ends in .csv, .tsv, .jsonl",
        ),
        (["--predict_data={data}"], "--predict_data and --predictions go together"),
    ],
)
def test_flags_that_do_not_go_together_are_named(preset, tmp_path, arguments, rule):
    data = write_csv(tmp_path / "dev.csv", examples(4))
    arguments = [argument.format(data=data) for argument in arguments]
    with pytest.raises(ValueError, match=rule):
        check_alone(TASK, f"--preset={preset}", f"--eval_data={data}", *arguments)
