"""Runs of `train.py --task=relation_extraction`."""

import json
from types import SimpleNamespace

import pytest
from tiny_extractor import LENGTH, VOCABULARY, build, examples
from train_script import run_in_process, save_encoder

import keras_spanbert as ks
from keras_spanbert import files
from keras_spanbert.data import semeval2010, tacred
from keras_spanbert.recipes import relation_extraction

TASK = "--task=relation_extraction"
SIZES = ["--batch_size=16", f"--sequence_length={LENGTH}"]


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


def test_types_of_the_evaluation_set_come_first_like_in_the_released_script(preset, folder, capsys):
    for name, count in [("train", 16), ("dev", 4)]:
        files.write_json(f"{name}.json", examples(count, seed=count))
    data = ["--dataset=tacred", "--train_data=train.json", "--eval_data=dev.json"]
    run_in_process(TASK, f"--preset={preset}", *data, "--output=run", "--steps=1", *SIZES)
    assert "Symbols for 4 types" in capsys.readouterr().out
    model = ks.SpanBertRelationExtractor.from_preset("run")
    wanted = ks.SpanBertRelationExtractorPreprocessor(model.preprocessor.tokenizer, LENGTH)
    for name in ["dev", "train"]:
        wanted.adapt(tacred.read(f"{name}.json"))
    assert model.preprocessor.symbols == wanted.symbols


def test_predictions_for_user_columns(flags, folder):
    flags(predictions="a.jsonl")
    answers = [{"relation": "head", "score": 0.75}]
    model = SimpleNamespace(extract=lambda examples, batch_size: answers)
    relation_extraction.predict(model, [{"id": "k0"}])
    assert json.loads((folder / "a.jsonl").read_text()) == {"id": "k0", **answers[0]}


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
