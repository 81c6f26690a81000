"""Flags that a run does not read are refused before it trains, scores or predicts."""

import functools
import json
import os
import shutil

import pytest
import task_files
from train_script import check_fails, run_in_process

from keras_spanbert.recipes import fit
from keras_spanbert.recipes.recipe import NAMES

pytestmark = pytest.mark.usefixtures("one_layer", "untraced")

SHORT = ["--steps=1", "--batch_size=2"]
SMALL = [*SHORT, "--eval_steps=1", "--sequence_length=16", "--min_block_tokens=4"]
TEXTS = "--train_data=texts/*.txt"
CELLS = ["--text_column=text", "--label_column=label", "--id_column=text"]
PEOPLE = [
    "--text_column=sentence", "--subject_columns=who_start,who_end",
    "--object_columns=what_start,what_end",
]  # fmt: skip
MENTIONS = ["--max_spans_in_memory=100", "--document_genre=nw", "--encoding_errors=replace"]
# Runs by task: the preset, and flags that have an effect.
RUNS = {
    "pretrain": [(None, [TEXTS, *SMALL, "--vocabulary_size=200", "--held_out=0.2", "--size=mini"]),
     (None, ["--train_data=lines.jsonl", *SMALL, "--vocabulary=vocab.txt", "--cross_documents"]),
     (None, [TEXTS, "--eval_data=held_out/*.txt", *SMALL, "--document_boundary=line"]),
     (None, ["--train_data=prepared", *SMALL, "--damaged_shards=skip", "--dropout=0.2"]),
     ("mine", ["--train_data=prepared", *SMALL, "--eval_data=more/*.txt", "--mask_rate=0.2"])],
    "prepare": [(None,
     [TEXTS, "--vocabulary_size=200", "--lowercase", "--held_out=0", "--shards=1"]),
     ("mine", ["--train_data=lines.jsonl", "--encoding_errors=replace", "--cross_documents"])],
    "question_answering": [("mine",
     ["--train_data=train-v1.1.json", *SHORT, "--doc_stride=20", "--strict_answers"]),
     ("mine", ["--train_data=dev-v1.1.json", "--eval_data=dev-v1.1.json", *SHORT]),
     ("answers", ["--eval_data=dev-v1.1.json", "--max_answer_length=5", "--batch_size=2"]),
     ("answers", ["--predict_data=dev-v1.1.json", "--predictions=a.json"]),
     ("answers", ["--predict_data=story.txt", "--question=who", "--encoding_errors=replace"]),
     ("answers", ["--export=served", "--max_answer_length=5"])],
    "classification": [("mine", ["--train_data=reviews.csv", *SHORT, *CELLS, "--seed=1"]),
     ("mine", ["--train_data=RTE/train.tsv", "--dataset=rte", *SHORT, "--eval_every=1"]),
     ("mine", ["--train_data=tags.csv", "--multi_label", "--label_separator=|", *SHORT]),
     ("mine", ["--train_data=tags_dev.jsonl", "--multi_label", *SHORT]),
     ("classifier", ["--eval_data=reviews_dev.csv", "--selection_metric=macro_f1"]),
     ("classifier", ["--predict_data=reviews.csv", "--predictions=a.csv", *CELLS]),
     ("classifier", ["--export=served"])],
    "relation_extraction": [("mine", ["--train_data=train.json", "--eval_data=dev.json", *SHORT]),
     ("mine", ["--train_data=train.json", "--dataset=tacred", "--feature_mode=text", *SHORT]),
     ("mine", ["--train_data=people.csv", "--negative_label=none", *PEOPLE, *SHORT]),
     ("relations", ["--eval_data=dev.json", "--dataset=tacred"]),
     ("relations", ["--predict_data=dev.json", "--predictions=a.csv"]),
     ("relations", ["--export=served"])],
    "multiple_choice": [("mine", ["--train_data=quiz_train.csv", "--id_column=question", *SHORT]),
     ("mine", ["--train_data=codah/train.tsv", "--dataset=codah", *SHORT]),
     ("choices", ["--eval_data=quiz_dev.csv", "--choice_columns=choice0,choice1,choice2"]),
     ("choices", ["--predict_data=quiz_dev.csv", "--predictions=a.csv"]),
     ("choices", ["--export=served"])],
    "token_classification": [("mine",
     ["--train_data=wnut17train.conll,words.jsonl", *SHORT, "--words_column=words"]),
     ("mine", ["--train_data=spans.jsonl", "--text_column=text", *SHORT, "--id_column=text"]),
     ("entities", ["--eval_data=words.jsonl", "--label_column=tags", "--batch_size=2"]),
     ("entities", ["--predict_data=spans.jsonl", "--predictions=a.jsonl", *CELLS[::2]]),
     ("entities", ["--predict_data=words.jsonl", "--predictions=a.conll"]),
     ("entities", ["--export=served"])],
    "coreference": [("mine",
     ["--train_data=train.conll", "--ffnn_size=8", "--steps=1", "--batch_size=1"]),
     ("resolver", ["--train_data=train.conll", "--eval_data=dev.conll", "--steps=1"]),
     ("resolver", ["--eval_data=dev.conll", "--max_spans_in_memory=100"]),
     ("resolver", ["--predict_data=dev.conll", "--predictions=a.jsonlines"]),
     ("resolver", ["--predict_data=story.txt", "--html=a.html", *MENTIONS]),
     ("resolver", ["--export=served"])],
}  # fmt: skip
CASES = [
    pytest.param(task, preset, given, id=f"{task}-{i}")
    for task, runs in RUNS.items()
    for i, (preset, given) in enumerate(runs)
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Small files of all formats."""
    root = tmp_path_factory.mktemp("files") / "files"
    task_files.write_all(root)
    text = "Ann read the letter in the house. Then Ann wrote a long letter to Bob."
    rows = {
        "lines": [{"text": text}] * 8,
        "words": [{"words": ["Ann", "left"], "tags": ["B-person", "O"]}] * 4,
        "spans": [{"text": f"Ann {i}", "entities": [{"start": 0, "end": 3, "label": "person"}]}
                  for i in range(4)],
    }  # fmt: skip
    for name, lines in rows.items():
        (root / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in lines))
    run_in_process(
        "--task=prepare", f"--train_data={root / 'texts'}/*.txt", f"--output={root / 'prepared'}",
        f"--vocabulary={root / 'vocab.txt'}", "--sequence_length=16", "--min_block_tokens=4",
    )  # fmt: skip
    return root


@pytest.fixture
def run(files, tmp_path, monkeypatch):
    shutil.copytree(files, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(fit, "export_saved_model", lambda *_, **__: None)

    def run(check, task, preset, given):
        preset = [f"--preset=saved_models/{preset}"] if preset else []
        return check([f"--task={task}", *preset, *given, "--output=out"])

    return run


def test_each_task_has_runs():
    assert set(RUNS) == set(NAMES)


@pytest.mark.long
@pytest.mark.once("torch")
@pytest.mark.parametrize(("task", "preset", "given"), CASES)
def test_flags_that_have_an_effect_are_accepted(run, task, preset, given):
    run(lambda flags: run_in_process(*flags), task, preset, given)


@pytest.mark.once("torch")
@pytest.mark.parametrize(
    ("task", "preset", "given", "unread"),
    [
        ("pretrain", None, [TEXTS, *SMALL], "--damaged_shards=skip"),
        ("pretrain", None, [TEXTS, *SMALL], "--predict_data=vocab.txt"),
        ("prepare", None, [TEXTS, "--vocabulary=vocab.txt"], "--vocabulary_size=200"),
        ("classification", "mine", ["--train_data=RTE/train.tsv", "--dataset=rte", *SHORT],
         "--label_column=gold"),
        ("question_answering", "answers", ["--eval_data=dev-v1.1.json"], "--question=who"),
        ("coreference", "resolver", ["--eval_data=dev.conll"], "--document_genre=nw"),
        ("token_classification", "entities", ["--eval_data=words.jsonl"], "--id_column=words"),
    ],
)  # fmt: skip
def test_a_flag_without_effect_is_refused_at_once(run, capsys, task, preset, given, unread):
    name = unread.partition("=")[0]
    check = functools.partial(check_fails, capsys)
    run(lambda flags: check(flags, name), task, preset, [*given, unread])
    assert not os.path.exists("out")
