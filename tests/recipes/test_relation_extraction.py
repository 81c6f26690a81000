"""Runs of `train.py --task=relation_extraction`."""

import json

import pytest
from tiny_extractor import LENGTH, RELATIONS, VOCABULARY, build, columns, examples
from train_script import run_in_process, save_encoder

import keras_spanbert as ks
from keras_spanbert import files
from keras_spanbert.data import semeval2010, tacred

TASK = "--task=relation_extraction"
SIZES = ["--batch_size=16", f"--sequence_length={LENGTH}"]
# The columns written by `write_csv`.
COLUMNS = [
    "--text_column=sentence", "--label_column=what", "--id_column=key",
    "--subject_columns=s0,s1", "--object_columns=o0,o1",
]  # fmt: skip
TYPES = ["--subject_type_column=s_type", "--object_type_column=o_type"]


def write_tacred(path, count, seed):
    path.write_text(json.dumps(examples(count, seed)))
    return path


def write_csv(path, count, seed):
    x, y = columns(examples(count, seed))
    names = ["key", "sentence", "s0", "s1", "o0", "o1", "s_type", "o_type", "what"]
    rows = [
        dict(zip(names, [f"k{i}", text, *subject, *object, *types, relation]))
        for i, (text, subject, object, *types, relation) in enumerate(zip(*x.values(), y))
    ]
    files.write_csv(path, rows)
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
    return save_encoder(tmp_path_factory.mktemp("preset") / "preset", build().backbone, VOCABULARY)


def test_types_of_the_evaluation_set_come_first_like_in_the_released_script(preset, tmp_path):
    for name, count in [("train", 16), ("dev", 4)]:
        write_tacred(tmp_path / f"{name}.json", count, seed=count)
    run_in_process(
        TASK, "--dataset=tacred", f"--preset={preset}", f"--output={tmp_path / 'run'}",
        f"--train_data={tmp_path / 'train.json'}", f"--eval_data={tmp_path / 'dev.json'}",
        "--steps=1", *SIZES,
    )  # fmt: skip
    model = ks.SpanBertRelationExtractor.from_preset(str(tmp_path / "run"))
    wanted = ks.SpanBertRelationExtractorPreprocessor(model.preprocessor.tokenizer, LENGTH)
    for name in ["dev", "train"]:
        wanted.adapt(tacred.read(tmp_path / f"{name}.json"))
    assert model.preprocessor.symbols == wanted.symbols


def test_user_columns(preset, tmp_path, capsys):
    write_csv(tmp_path / "train.csv", 32, seed=1)
    run_in_process(
        TASK, f"--preset={preset}", "--feature_mode=ner_text",
        f"--train_data={tmp_path / 'train.csv'}", f"--predict_data={tmp_path / 'train.csv'}",
        f"--predictions={tmp_path / 'found.jsonl'}", f"--output={tmp_path / 'run'}",
        "--steps=1", *COLUMNS, *TYPES, *SIZES,
    )  # fmt: skip
    found = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    assert [row["id"] for row in found] == [f"k{i}" for i in range(32)]
    assert all(row["relation"] in RELATIONS and 0.0 < row["score"] < 1.0 for row in found)
    assert "Symbols for 4 types" in capsys.readouterr().out


def test_semeval_score_and_format(preset, tmp_path, capsys):
    train = write_semeval(tmp_path / "TRAIN_FILE.TXT", 32, seed=1)
    run_in_process(
        TASK, "--dataset=semeval2010", f"--preset={preset}",
        f"--train_data={train}", f"--eval_data={train}", f"--predict_data={train}",
        f"--predictions={tmp_path / 'answers.txt'}", f"--output={tmp_path / 'run'}",
        "--steps=2", *SIZES,
    )  # fmt: skip
    out = capsys.readouterr().out
    assert "19 relations: Other, " in out and "Label for no relation: Other" in out
    assert "official macro F1" in out
    answers = semeval2010.read_answers(tmp_path / "answers.txt")
    labels = [example["relation"] for example in semeval2010.read(train)]
    scores = ks.metrics.semeval2010_task8(labels, list(answers.values()))
    final = files.read_json(tmp_path / "run" / "metrics.json")
    assert final["macro_f1"] == pytest.approx(scores["macro_f1"])
    # `ner` modes need types.
    assert files.read_json(tmp_path / "run" / "run.json")["flags"]["feature_mode"] == "text"
