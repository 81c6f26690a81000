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


def write_csv(path, count, seed):
    x, y = columns(examples(count, seed))
    names = ["key", "sentence", "s0", "s1", "o0", "o1", "s_type", "o_type", "what"]
    rows = [
        dict(zip(names, [f"k{i}", text, *subject, *object, *types, relation]))
        for i, (text, subject, object, *types, relation) in enumerate(zip(*x.values(), y))
    ]
    files.write_csv(path, rows)


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


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("preset") / "preset", build().backbone, VOCABULARY)


def test_types_of_the_evaluation_set_come_first_like_in_the_released_script(preset, folder):
    for name, count in [("train", 16), ("dev", 4)]:
        files.write_json(f"{name}.json", examples(count, seed=count))
    data = ["--dataset=tacred", "--train_data=train.json", "--eval_data=dev.json"]
    run_in_process(TASK, f"--preset={preset}", *data, "--output=run", "--steps=1", *SIZES)
    model = ks.SpanBertRelationExtractor.from_preset("run")
    wanted = ks.SpanBertRelationExtractorPreprocessor(model.preprocessor.tokenizer, LENGTH)
    for name in ["dev", "train"]:
        wanted.adapt(tacred.read(f"{name}.json"))
    assert model.preprocessor.symbols == wanted.symbols


def test_user_columns(preset, folder, capsys):
    write_csv("a.csv", 32, seed=1)
    data = ["--train_data=a.csv", "--predict_data=a.csv", "--predictions=a.jsonl", *COLUMNS, *TYPES]
    flags = ["--feature_mode=ner_text", "--output=run", "--steps=1", *SIZES]
    run_in_process(TASK, f"--preset={preset}", *data, *flags)
    found = [json.loads(line) for line in (folder / "a.jsonl").read_text().splitlines()]
    assert [row["id"] for row in found] == [f"k{i}" for i in range(32)]
    assert all(row["relation"] in RELATIONS and 0.0 < row["score"] < 1.0 for row in found)
    assert "Symbols for 4 types" in capsys.readouterr().out


def test_semeval_score_and_format(preset, folder, capsys):
    write_semeval(folder / "TRAIN_FILE.TXT", 32, seed=1)
    data = [f"--{name}_data=TRAIN_FILE.TXT" for name in ["train", "eval", "predict"]]
    flags = ["--dataset=semeval2010", "--predictions=answers.txt", "--output=run", "--steps=2"]
    run_in_process(TASK, f"--preset={preset}", *data, *flags, *SIZES)
    out = capsys.readouterr().out
    assert "19 relations: Other, " in out and "Label for no relation: Other" in out
    assert "official macro F1" in out
    answers = semeval2010.read_answers("answers.txt")
    labels = [example["relation"] for example in semeval2010.read("TRAIN_FILE.TXT")]
    scores = ks.metrics.semeval2010_task8(labels, list(answers.values()))
    final = files.read_json("run/metrics.json")
    assert final["macro_f1"] == pytest.approx(scores["macro_f1"])
    # `ner` modes need types.
    assert files.read_json("run/run.json")["flags"]["feature_mode"] == "text"
