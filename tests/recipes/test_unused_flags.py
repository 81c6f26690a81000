"""Flags that a run does not read are refused before it trains, scores or predicts."""

import json
import os

import pytest
import small_runs
import tiny_classifier
import tiny_resolver
from tiny_tasks import TASKS
from train_script import StoppedError, check_fails, run_in_process, stop

from keras_spanbert.recipes import checks
from keras_spanbert.recipes.recipe import NAMES

pytestmark = [pytest.mark.once("torch"), pytest.mark.usefixtures("one_layer", "untraced")]

MODELS = {
    "question_answering": TASKS["questions"].build,
    "classification": TASKS["texts"].build,
    "relation_extraction": TASKS["relations"].build,
    "multiple_choice": TASKS["choices"].build,
    "token_classification": TASKS["words"].build,
    "coreference": tiny_resolver.build,
}
SIZES = ["--sequence_length=16", "--min_block_tokens=4"]
SMALL = ["--steps=1", "--batch_size=2", "--eval_steps=1", *SIZES]
TEXTS, PREPARED = "--train_data=texts/*.txt", "--train_data=prepared"
CELLS = ["--text_column=text", "--label_column=label", "--id_column=text"]
# Runs with flags that have an effect: "train" starts with an encoder, "score", "predict"
# and "export" with the preset of the task.
RUNS = [
    ("pretrain", "new", [TEXTS, *SMALL, "--vocabulary_size=200", "--held_out=0.2", "--size=mini"]),
    ("pretrain", "new",
     ["--train_data=lines.jsonl", *SMALL, "--vocabulary=vocab", "--cross_documents"]),
    ("pretrain", "new", [TEXTS, "--eval_data=texts/0*.txt", *SMALL, "--document_boundary=line"]),
    ("pretrain", "new", [PREPARED, *SMALL, "--damaged_shards=skip", "--dropout=0.2"]),
    ("pretrain", "train",
     [PREPARED, *SMALL, "--eval_data=texts/*.txt", "--mask_rate=0.2", "--dropout=0.2"]),
    ("prepare", "new",
     [TEXTS, "--vocabulary_size=200", "--lowercase", "--held_out=0", "--shards=1"]),
    ("prepare", "train", ["--train_data=lines.jsonl", *SIZES, "--encoding_errors=replace"]),
    ("question_answering", "train", ["--strict_answers", "--attention_dropout=0.2"]),
    ("question_answering", "score", ["--max_answer_length=5", "--batch_size=2"]),
    ("question_answering", "predict", ["--predictions=a.json"]),
    ("question_answering", "export", ["--max_answer_length=5"]),
    ("classification", "train", [*CELLS, "--seed=1", "--eval_every=1"]),
    ("classification", "train", ["--multi_label", "--label_separator=|", "--group_by_length"]),
    ("classification", "score", ["--selection_metric=macro_f1"]),
    ("classification", "predict", ["--predictions=a.csv", *CELLS]),
    ("relation_extraction", "train", ["--feature_mode=text", "--negative_label=no_relation"]),
    ("relation_extraction", "score", []),
    ("multiple_choice", "train", ["--question_column=question"]),
    ("multiple_choice", "predict", ["--predictions=a.csv"]),
    ("token_classification", "train", ["--words_column=words"]),
    ("token_classification", "score", ["--batch_size=2"]),
    ("coreference", "train", ["--ffnn_size=8", "--batch_size=1", "--dropout=0.2"]),
    ("coreference", "score", ["--max_spans_in_memory=100"]),
    ("coreference", "predict",
     ["--predict_data=lines.txt", "--html=a.html", "--max_spans_in_memory=100",
      "--document_genre=nw", "--encoding_errors=replace"]),
    ("coreference", "export", []),
]  # fmt: skip


@pytest.fixture(scope="module")
def flags_of(texts, tmp_path_factory):
    """A function that returns the flags of a run of a task, in a folder with its files."""
    root, of_training = tmp_path_factory.mktemp("runs"), {}
    (root / "texts").symlink_to(os.path.dirname(texts))
    row = {"text": "Ann read the letter in the house. Then Ann wrote a long letter to Bob."}
    for name in ["lines.jsonl", "lines.txt"]:
        (root / name).write_text(f"{json.dumps(row)}\n" * 8)
    (root / "vocab").write_text("".join(f"{token}\n" for token in tiny_classifier.VOCABULARY))
    for task, build in MODELS.items():
        (root / task).mkdir()
        _, of_training[task] = small_runs.start(task, root / task)
        build().save_to_preset(root / task / "trained")
    run_in_process(
        "--task=prepare", f"--train_data={texts}", f"--output={root / 'prepared'}",
        f"--vocabulary={root / 'vocab'}", *SIZES,
    )  # fmt: skip

    def flags_of(task, kind):
        if task not in MODELS:
            encoder = f"--preset={root / 'classification' / 'preset'}"
            return [f"--task={task}", *([encoder] if kind == "train" else [])]
        task, _, train, *sizes, evaluate, batch_size = of_training[task]
        if kind == "train":
            return [*of_training[task.removeprefix("--task=")], "--steps=1"]
        data = train.partition("=")[2]
        flags = {"score": [f"--eval_data={data}"], "predict": [f"--predict_data={data}"]}
        preset = root / task.removeprefix("--task=") / "trained"
        columns = [flag for flag in sizes if "column" in flag or "dataset" in flag]
        exported = ["--export=served"]
        return [task, f"--preset={preset}", *(flags[kind] + columns if kind in flags else exported)]

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        yield flags_of


def test_each_task_has_runs():
    assert {task for task, *_ in RUNS} == set(NAMES)


@pytest.mark.parametrize(("task", "kind", "given"), RUNS)
def test_flags_that_have_an_effect_are_accepted(flags_of, monkeypatch, tmp_path, task, kind, given):
    refuse_unread = checks.refuse_unread
    monkeypatch.setattr(checks, "refuse_unread", lambda *later: stop(refuse_unread(*later)))
    with pytest.raises(StoppedError):
        run_in_process(*flags_of(task, kind), *given, f"--output={tmp_path / 'out'}")


@pytest.mark.parametrize(
    ("task", "kind", "given", "unread"),
    [
        ("pretrain", "new", [TEXTS, *SMALL], "--damaged_shards=skip"),
        ("pretrain", "new", [TEXTS, *SMALL], "--predict_data=vocab"),
        ("pretrain", "new", [PREPARED, *SMALL], "--held_out=0.4"),
        ("pretrain", "new", [PREPARED, *SMALL, "--masking_scheme=random_span"], "--geometric_p=1"),
        ("prepare", "new", [TEXTS, "--vocabulary=vocab"], "--vocabulary_size=200"),
        ("prepare", "new", [TEXTS, "--vocabulary=vocab"], "--beam_options=--x=1"),
        ("relation_extraction", "train", [], "--label_column=gold"),
        ("question_answering", "score", [], "--question=who"),
        ("question_answering", "score", [], "--attention_dropout=0.2"),
        ("question_answering", "train", [], "--group_by_length"),
        ("coreference", "score", [], "--dropout=0.2"),
        ("coreference", "score", [], "--document_genre=nw"),
        ("coreference", "score", [], "--batch_size=2"),
        ("token_classification", "score", [], "--id_column=words"),
    ],
)
def test_a_flag_without_effect_is_refused_at_once(
    flags_of, capsys, tmp_path, task, kind, given, unread
):
    flags = [*flags_of(task, kind), *given, unread, f"--output={tmp_path / 'out'}"]
    check_fails(capsys, flags, unread.partition("=")[0])
    assert not os.listdir(tmp_path)
