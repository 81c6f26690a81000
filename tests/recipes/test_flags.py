"""The names of flags and the output of `--help`."""

import re

import pytest
import train_script  # noqa: F401  (Defines the flags.)
from absl.testing import flagsaver

import keras_spanbert as ks
from keras_spanbert.recipes.flags import ADVICE, FLAGS, own_flags
from keras_spanbert.recipes.recipe import NAMES, groups
from keras_spanbert.recipes.run import parse_flags


@pytest.mark.parametrize(
    "typed, advice",
    [
        ("--grid=epochs=1,2", "Use benchmarks/compare.py (docs/fine_tuning.md) for several runs"),
        ("--num_seeds", "Use benchmarks/compare.py"),
        ("--lr=1e-4", "Use --learning_rate"),
        ("--max_seq_length=128", "Use --sequence_length"),
        ("--model_name_or_path", "Use --preset"),
        ("--no_relation=Other", "Use --negative_label"),
        ("--max_training_sentences=2", "Use --max_training_segments"),
        ("--benchmark=rte", "Use --dataset"),
        ("--replacement=token", "Use --mask_replacement"),
    ],
)
def test_error_about_a_flag_of_other_programs_says_what_to_use(typed, advice, capsys):
    with flagsaver.flagsaver(), pytest.raises(SystemExit) as end:
        parse_flags(["train.py", typed])
    error = capsys.readouterr().err
    assert end.value.code == 2 and error.count("\n") == 1
    assert f"no flag {typed.split('=')[0]}. " in error and advice in error


def test_advice_names_flags_that_exist():
    for other, advice in ADVICE.items():
        assert other not in FLAGS and (advice[:2] != "--" or advice[2:] in FLAGS), other


def test_version(get_help):
    assert get_help("--version") == f"keras_spanbert {ks.__version__}\n"


def test_help_texts_are_complete():
    for flag in own_flags():
        assert flag.help[-1] == "." and "ikewise" not in flag.help, flag.name
        states_default = "Default: " in flag.help or "With --preset, " in flag.help
        assert states_default or flag.default not in (None, []), flag.name


@pytest.fixture
def get_help(capsys):
    def shown(*flags, program="train.py"):
        with pytest.raises(SystemExit) as end:
            parse_flags([program, "--task=prepare", *flags])
        assert end.value.code == 0
        return capsys.readouterr().out

    return shown


def names_in(text):
    return re.findall(r"^  --(?:\[no\])?(\w+)", text, re.MULTILINE)


def test_full_help_lists_all_flags_in_order_of_definition(get_help):
    text = get_help("--helpfull")
    names = [flag.name for flag in own_flags()]
    assert names_in(text)[: len(names)] == names
    assert names[:4] == ["task", "seed", "output", "export"]
    assert "--size (one of tiny, mini, small, base, large; default: tiny)" in text
    assert "--[no]resume (default: false)" in text
    assert "--checkpoint_every (a positive integer; default: 500)" in text
    assert "Coreference: only for --task=coreference" in text
    assert "semeval2010." in text  # A value of `--dataset`, defined by a recipe.
    assert "Fraction of the tokens to mask." in text and "--verbosity" in text


@pytest.mark.parametrize("task", NAMES)
def test_help_explains_common_flags_of_a_task_and_names_the_others(task, get_help):
    text = get_help("--help", f"--task={task}")
    explained, others = text.split("\nMore flags:\n")
    names = names_in(explained)
    assert 5 <= len(names) <= 18 and text.count("\n") <= 100  # Two screens.
    names += re.findall(r"--(?:\[no\])?(\w+)", others)
    assert get_help("-h", f"--task={task}") == text and len(set(names)) == len(names)
    assert max(map(len, text.splitlines())) <= 100
    assert names[0] == "task" and "train_data" in names[:3] and f"flags of --task={task}." in text
    assert ("mask_rate" in names) == (task == "pretrain")
    assert ("predict_data" in names) == (task not in ("pretrain", "prepare"))
    unlabelled = ("pretrain", "prepare", "question_answering", "coreference")
    assert ("label_column" in names) == (task not in unlabelled)
    assert ("size" in names) == (task in ("pretrain", "prepare"))
    assert "beta_2" not in names_in(explained)
    others = groups("coreference" if task != "coreference" else "question_answering")[2]
    assert not {flag.name for flag in own_flags(others)} & set(names)
    short = get_help("--helpshort", f"--task={task}", program="bin/spanbert-train")
    assert short.startswith("Trains SpanBERT: spanbert-train --task=TASK")
    assert all(f"{name} " in f"{short} ".replace("\n", " ") for name in names)
    assert "--beta_2" in short and "Fraction of" not in short


def test_help_without_a_task_and_with_a_wrong_one(capsys):
    with flagsaver.flagsaver(), pytest.raises(SystemExit):
        parse_flags(["train.py", "--help"])
    assert "flags of --task=pretrain." in capsys.readouterr().out
    with flagsaver.flagsaver(), pytest.raises(SystemExit) as end:
        parse_flags(["train.py", "--task", "guess", "--help"])
    assert end.value.code == 2 and "Received: --task=guess" in capsys.readouterr().err


def test_help_as_a_flag_value(capsys):
    with flagsaver.flagsaver():
        for flag, value in [("--predictions", "-h"), ("-predictions", "--help")]:
            parse_flags(["train.py", flag, value, "--resume"])
            assert FLAGS.predictions == value and FLAGS.resume
    assert not capsys.readouterr().out


def test_help_after_values_and_switches(get_help):
    text = get_help("--help")
    for flags in [["--predictions", "-h", "-h"], ["--predictions=a", "-h"], ["--resume", "-h"]]:
        assert get_help(*flags) == text
