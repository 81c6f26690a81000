"""The names of flags and the output of `--help`."""

import re

import pytest
import train_script  # noqa: F401  (Defines the flags.)
from absl.testing import flagsaver

from keras_spanbert.recipes.flags import FLAGS, FORMER_NAMES, own_flags
from keras_spanbert.recipes.run import parse_flags


@pytest.mark.parametrize(
    ("argument", "name", "value"),
    [
        ("--seeds=3", "num_seeds", 3),
        ("--noentities", "labels_are_entities", False),
        ("--strict", "strict_answers", True),
    ],
)
def test_former_name_sets_the_flag(argument, name, value):
    with flagsaver.flagsaver():
        FLAGS(["train.py", argument])
        assert FLAGS[name].value == value
        assert FLAGS[name].present


def test_former_names_are_hidden_and_help_texts_complete(get_help):
    assert not set(FORMER_NAMES) & {flag.name for flag in own_flags()}
    for flag in ["--help", "--helpshort", "--helpfull"]:
        mentioned = re.findall(r"--(?:\[no\])?(\w+)", get_help(flag))
        assert "masking_scheme" in mentioned and not set(FORMER_NAMES) & set(mentioned)
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


def test_help_lists_flags_in_order_of_definition(get_help):
    text = get_help("--help")
    names = re.findall(r"^  --(?:\[no\])?(\w+)", text, re.MULTILINE)
    assert names == [flag.name for flag in own_flags()]
    assert names[:4] == ["task", "seed", "num_seeds", "grid"]
    assert "--size (one of tiny, mini, small, base, large; default: tiny)" in text
    assert "--[no]resume (default: false)" in text
    assert "--checkpoint_every (a positive integer; default: 500)" in text
    assert "Coreference: only for --task=coreference" in text
    assert "semeval2010." in text  # A value of `--benchmark`, defined by a recipe.
    assert get_help("-h") == text
    assert max(map(len, text.splitlines())) <= 100
    short, full = get_help("--helpshort", program="bin/spanbert-train"), get_help("--helpfull")
    assert short.startswith("Trains SpanBERT: spanbert-train --task=TASK")
    assert "--mask_rate" in short and "Fraction of the tokens" not in short
    assert "Fraction of the tokens to mask." in full and "--verbosity" in full


@pytest.mark.parametrize("flag, value", [("--predictions", "-h"), ("-predictions", "--help")])
def test_help_as_a_flag_value(flag, value, capsys):
    with flagsaver.flagsaver():
        parse_flags(["train.py", flag, value, "--resume"])
        assert FLAGS.predictions == value and FLAGS.resume
    assert not capsys.readouterr().out


def test_help_after_values_and_switches(get_help):
    text = get_help("--help")
    for flags in [["--predictions", "-h", "-h"], ["--predictions=a", "-h"], ["--resume", "-h"]]:
        assert get_help(*flags) == text
