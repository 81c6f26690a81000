"""Singular and plural in messages."""

import pytest

from keras_spanbert.recipes import columns
from keras_spanbert.wording import format_count

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    "arguments, text",
    [
        ((0, "text"), "0 texts"), ((1, "text"), "1 text"), ((2000, "text"), "2,000 texts"),
        ((1, "entity", "entities"), "1 entity"), ((2, "entity", "entities"), "2 entities"),
    ],
)  # fmt: skip
def test_singular_for_a_count_of_one(arguments, text):
    assert format_count(*arguments) == text


@pytest.mark.parametrize("names, line", [("a", "1 class: a\n"), ("ab", "2 classes: a, b\n")])
def test_labels_of_the_data_are_counted(names, line, capsys):
    columns.check_labels(list(names), "class", "classes", least=1)
    assert capsys.readouterr().out == line
