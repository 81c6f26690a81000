"""LitBank's nested layers become one tag per word."""

import pathlib
import sys

import pytest

BENCHMARKS = pathlib.Path(__file__).parent.parent / "benchmarks"
# The first layer has the title alone. The second has the title with the name.
LINES = """\
Sir\tB-PER\tB-PER\tO\tO\t
Walter\tO\tI-PER\tO\tO\t
,\tO\tO\tO\tO\t
a\tB-PER\tO\tO\tO\t
man\tI-PER\tO\tO\tO\t
of\tI-PER\tO\tO\tO\t
Bath\tI-PER\tB-GPE\tO\tO\t

He\tO\tO\tO\tO\t
"""


@pytest.mark.once
def test_tags_are_of_the_longest_entities(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    import litbank

    path = tmp_path / "entities" / "tsv" / "story_brat.tsv"
    path.parent.mkdir(parents=True)
    path.write_text(LINES)
    found = [tag for word, tag in litbank.tags(tmp_path, "story") if word]
    assert found == ["B-PER", "I-PER", "O", "B-PER", "I-PER", "I-PER", "I-PER", "O"]
