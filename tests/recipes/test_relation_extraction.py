"""`train.py --task=relation_extraction` as its users run it."""

import csv
import json

import pytest
import tensorflow as tf
from tiny_extractor import LENGTH, RELATIONS, build, columns, examples
from train_script import check_mistake, in_process, printed

import keras_spanbert as ks
from keras_spanbert.data import semeval2010, tacred

SIZES = ["--batch_size=16", f"--sequence_length={LENGTH}"]
# The columns of the files that `write_csv` writes.
COLUMNS = [
    "--text_column=sentence",
    "--label_column=what",
    "--id_column=key",
    "--subject_columns=s0,s1",
    "--object_columns=o0,o1",
]
TYPES = ["--subject_type_column=s_type", "--object_type_column=o_type"]


def write_tacred(path, count, seed):
    path.write_text(json.dumps(examples(count, seed)))
    return path


def write_csv(path, count, seed):
    x, y = columns(examples(count, seed))
    names = ["key", "sentence", "s0", "s1", "o0", "o1", "s_type", "o_type", "what"]
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for i, (text, subject, object, *types, relation) in enumerate(zip(*x.values(), y)):
            writer.writerow([f"k{i}", text, *subject, *object, *types, relation])
    return path


def write_semeval(path, count, seed):
    labels = {"no_relation": "Other", "head": "Cause-Effect(e1,e2)"}
    blocks = []
    for i, example in enumerate(examples(count, seed)):
        words = list(example["token"])
        for kind, tag in [("subj", "e1"), ("obj", "e2")]:
            place = example[f"{kind}_start"]
            words[place] = f"<{tag}>{words[place]}</{tag}>"
        label = labels.get(example["relation"], "Cause-Effect(e2,e1)")
        blocks.append(f'{i + 1}\t"{" ".join(words)}"\n{label}\nComment:\n\n')
    path.write_text("".join(blocks))
    return path


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("preset") / "preset"
    model = build()
    ks.SpanBertPretrainer(
        model.backbone, ks.SpanBertPretrainerPreprocessor(model.preprocessor.tokenizer, LENGTH)
    ).save_to_preset(folder)
    return folder


@pytest.fixture(scope="module")
def trained(preset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    for name, count in [("train", 160), ("dev", 40)]:
        write_tacred(folder / f"{name}.json", count, seed=count)
    out, err = printed(
        "--task=relation_extraction", "--benchmark=tacred", f"--preset={preset}",
        f"--train_data={folder / 'train.json'}", f"--eval_data={folder / 'dev.json'}",
        f"--predict_data={folder / 'dev.json'}", f"--predictions={folder / 'predictions.txt'}",
        f"--output={folder / 'run'}", "--epochs=12", "--learning_rate=5e-3", *SIZES,
    )  # fmt: skip
    return folder, out, err


@pytest.mark.once
def test_data_of_one_relation_is_told(preset, tmp_path, capsys):
    rows = [{**example, "relation": "no_relation"} for example in examples(4)]
    (tmp_path / "train.json").write_text(json.dumps(rows))
    with pytest.raises(SystemExit) as stop:
        in_process(
            "--task=relation_extraction", f"--preset={preset}", f"--output={tmp_path / 'run'}",
            f"--train_data={tmp_path / 'train.json'}", *SIZES,
        )  # fmt: skip
    values = ["two labels or more", "no_relation alone"]
    check_mistake(stop.value.code, capsys.readouterr().err, *values)


@pytest.mark.once
def test_run_learns_and_its_files_agree(trained):
    folder, out, err = trained
    assert "which starts fresh" in err
    assert "3 relations: no_relation, former_head, head\nNo relation is no_relation" in out
    dev = tacred.read(folder / "dev.json")
    lines = (folder / "predictions.txt").read_text().splitlines()
    ids, found = zip(*(line.split("\t") for line in lines))
    assert list(ids) == [example["id"] for example in dev]
    scores = ks.metrics.relation([example["relation"] for example in dev], list(found))
    final = json.loads((folder / "run" / "metrics.json").read_text())
    assert {name: final[name] for name in scores} == scores and scores["f1"] > 90.0
    assert f"F1 {scores['f1']:.2f}, on 40 examples" in out
    model = ks.SpanBertRelationExtractor.from_preset(str(folder / "run"))
    assert sorted(model.relations) == sorted(RELATIONS)
    # The types of the evaluation set come first, as in the released script.
    wanted = ks.SpanBertRelationExtractorPreprocessor(model.preprocessor.tokenizer, LENGTH)
    wanted.adapt(dev)
    wanted.adapt(tacred.read(folder / "train.json"))
    assert model.preprocessor.symbols == wanted.symbols


@pytest.mark.once("tensorflow")
def test_exported_model_gives_the_predictions(tmp_path):
    build("ner").save_to_preset(tmp_path / "preset")
    train = write_tacred(tmp_path / "train.json", 160, seed=160)
    in_process(
        "--task=relation_extraction", "--benchmark=tacred", f"--preset={tmp_path / 'preset'}",
        f"--train_data={train}", f"--eval_data={train}", f"--predict_data={train}",
        f"--predictions={tmp_path / 'predictions.txt'}", f"--export={tmp_path / 'served'}",
        f"--output={tmp_path / 'run'}", "--steps=60", "--learning_rate=5e-3", *SIZES,
    )  # fmt: skip
    lines = (tmp_path / "predictions.txt").read_text().splitlines()
    found = [line.split("\t")[1] for line in lines]
    served = tf.saved_model.load(str(tmp_path / "served" / "1")).signatures["serving_default"]
    x, _ = columns(tacred.read(train))
    spans = {
        f"{name}_{end}": tf.constant([span[i] for span in x[name]])
        for name in ["subject", "object"]
        for i, end in enumerate(["start", "end"])
    }
    texts = {name: tf.constant(x[name]) for name in ["text", "subject_type", "object_type"]}
    answers = served(**texts, **spans)["relation"].numpy()
    assert [answer.decode() for answer in answers] == found and len(set(found)) > 1


@pytest.mark.once
def test_trained_preset_scores_the_same_alone(trained, tmp_path, capsys):
    folder, *_ = trained
    in_process(
        "--task=relation_extraction", "--benchmark=tacred", f"--preset={folder / 'run'}",
        f"--eval_data={folder / 'dev.json'}", f"--output={tmp_path / 'again'}",
    )  # fmt: skip
    again = json.loads((tmp_path / "again" / "metrics.json").read_text())
    final = json.loads((folder / "run" / "metrics.json").read_text())
    assert {name: final[name] for name in again} == again
    flags = json.loads((tmp_path / "again" / "run.json").read_text())["flags"]
    assert flags["feature_mode"] == "ner" and flags["sequence_length"] == LENGTH


@pytest.mark.once
def test_columns_of_ones_own(preset, tmp_path, capsys):
    write_csv(tmp_path / "train.csv", 32, seed=1)
    in_process(
        "--task=relation_extraction", f"--preset={preset}", "--feature_mode=ner_text",
        f"--train_data={tmp_path / 'train.csv'}", f"--predict_data={tmp_path / 'train.csv'}",
        f"--predictions={tmp_path / 'found.jsonl'}", f"--output={tmp_path / 'run'}",
        "--steps=1", *COLUMNS, *TYPES, *SIZES,
    )  # fmt: skip
    found = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    assert [row["id"] for row in found] == [f"k{i}" for i in range(32)]
    assert all(row["relation"] in RELATIONS and 0.0 < row["score"] < 1.0 for row in found)
    assert "Symbols for 4 types" in capsys.readouterr().out


@pytest.mark.once
def test_semeval_has_its_official_score_and_form(preset, tmp_path, capsys):
    train = write_semeval(tmp_path / "TRAIN_FILE.TXT", 32, seed=1)
    in_process(
        "--task=relation_extraction", "--benchmark=semeval2010", f"--preset={preset}",
        f"--train_data={train}", f"--eval_data={train}", f"--predict_data={train}",
        f"--predictions={tmp_path / 'answers.txt'}", f"--output={tmp_path / 'run'}",
        "--steps=2", *SIZES,
    )  # fmt: skip
    out = capsys.readouterr().out
    for told in ["19 relations: Other, ", "No relation is Other", "official macro F1"]:
        assert told in out
    answers = semeval2010.read_answers(tmp_path / "answers.txt")
    labels = [example["relation"] for example in semeval2010.read(train)]
    scores = ks.metrics.semeval2010_task8(labels, list(answers.values()))
    final = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert final["macro_f1"] == pytest.approx(scores["macro_f1"])
    # Without types there is nothing that a type could stand for.
    assert (
        json.loads((tmp_path / "run" / "run.json").read_text())["flags"]["feature_mode"] == "text"
    )


@pytest.mark.once
@pytest.mark.parametrize(
    "arguments, values",
    [
        (["--train_data=train.json", "--benchmark=cola"], ["--benchmark", "tacred, semeval2010"]),
        (["--train_data=train.csv", "--subject_columns=s0"], ["--subject_columns", "two columns"]),
        (["--train_data=train.csv", "--text_column=body"], ["train.csv, line 1", "no body"]),
        (["--train_data=train.json,train.csv"], ["--benchmark says which", "train.csv"]),
        (["--train_data=bad.json"], ["bad.json, example 0", "`subj_start` and `subj_end`"]),
        (
            ["--train_data=train.json", "--eval_data=train.c*", "--feature_mode=ner"],
            ["`--feature_mode` must be text without --subject_type_column and --object_type"],
        ),
        (
            ["--train_data=train.txt", "--feature_mode=text_ner"],
            ["`--feature_mode` must be text with SemEval-2010 Task 8"],
        ),
        (
            ["--train_data=part.json"],
            ["part.json, id 5-0: --feature_mode=ner takes", "=text takes none", "`obj_type` None"],
        ),
        (
            ["--train_data=train.json", "--eval_data=odd.json"],
            ["odd.json, example 0 (id '5-0')", "'boss'"],
        ),
        (
            ["--train_data=train.csv", "--no_relation=nothing"],
            [
                "`--no_relation` must be a relation of --train_data: former_head, head, "
                "no_relation. Received: --no_relation=nothing"
            ],
        ),
        (["--eval_data=train.json"], ["trained head", "--train_data trains one"]),
        (
            ["--train_data=train.json", "--predict_data=train.json", "--predictions=found.txt"],
            ["--predictions", ".csv, .tsv, .jsonl"],
        ),
    ],
)
def test_mistake_names_what_is_wrong(preset, tmp_path, capsys, monkeypatch, arguments, values):
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "train.csv", 16, seed=1)
    write_tacred(tmp_path / "train.json", 16, seed=1)
    first, *rest = examples(4, seed=5)
    (tmp_path / "bad.json").write_text(json.dumps([{**first, "subj_end": 99}]))
    (tmp_path / "odd.json").write_text(json.dumps([{**first, "relation": "boss"}]))
    part = [{**example, "obj_type": None} for example in [first, *rest]]
    (tmp_path / "part.json").write_text(json.dumps(part))
    write_semeval(tmp_path / "train.txt", 16, seed=1)
    own = [] if any("_column" in argument for argument in arguments) else COLUMNS
    with pytest.raises(SystemExit) as stop:
        in_process(
            "--task=relation_extraction", f"--preset={preset}", "--output=out", *SIZES, *own,
            *arguments,
        )  # fmt: skip
    check_mistake(stop.value.code, capsys.readouterr().err, *values)
    assert not (tmp_path / "out").exists()


@pytest.mark.once
def test_type_that_a_trained_model_does_not_know_is_told(trained, tmp_path, capsys):
    folder, *_ = trained
    data = [{**example, "obj_type": "DOG"} for example in examples(3)]
    (tmp_path / "dev.json").write_text(json.dumps(data))
    with pytest.raises(SystemExit) as stop:
        in_process(
            "--task=relation_extraction", f"--preset={folder / 'run'}",
            f"--eval_data={tmp_path / 'dev.json'}", f"--output={tmp_path / 'out'}",
        )  # fmt: skip
    values = ["dev.json, id 0-0", "--feature_mode=ner", "--object_type_column. ", "'DOG'"]
    check_mistake(stop.value.code, capsys.readouterr().err, *values)
