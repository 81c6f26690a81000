import collections
import gzip
import re

import pytest

from keras_spanbert import metrics
from keras_spanbert.data import conll


def write(folder, text, name="a.conll"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return path


@pytest.mark.parametrize(
    "name, sentences, words, entities",
    [
        ("wnut17train.conll", 3394, 62730, 1975),
        ("emerging.dev.conll", 1009, 15733, 836),
        ("emerging.test.annotated", 1287, 23394, 1079),
    ],
)
def test_published_numbers_of_wnut(shared_data, name, sentences, words, entities):
    examples = conll.read(shared_data / "data" / "wnut17" / name)
    tags = collections.Counter(tag for example in examples for tag in example["tags"])
    assert len(examples) == sentences and tags.total() == words
    assert sum(n for tag, n in tags.items() if tag.startswith("B-")) == entities
    types = ["corporation", "creative-work", "group", "location", "person", "product"]
    names = conll.tag_names(examples)
    assert names == ["O", *(f"{prefix}-{name}" for name in types for prefix in "BI")]
    assert {*tags} <= {*names}


def test_layers_of_litbank_are_columns(shared_data):
    counts = {column: 0 for column in [1, 2, 3, 4]}
    for path in (shared_data / "data" / "litbank" / "entities" / "tsv").iterdir():
        for column in counts:
            for example in conll.read(path, column=column):
                counts[column] += sum(tag.startswith("B-") for tag in example["tags"])
    assert counts == {1: 11989, 2: 1742, 3: 162, 4: 19}


CONLL_2003 = """-DOCSTART- -X- -X- O

U.N. NNP I-NP I-ORG
official NN I-NP O
Ekeus NNP I-NP I-PER
Smith NNP I-NP I-PER
Ann NNP I-NP B-PER

-DOCSTART- -X- O O
to TO I-PP O
"""


def test_conll_2003_of_spaces_with_its_own_tags(tmp_path):
    expected = [
        {
            "words": ["U.N.", "official", "Ekeus", "Smith", "Ann"],
            "tags": ["B-ORG", "O", "B-PER", "I-PER", "B-PER"],
        },
        {"words": ["to"], "tags": ["O"]},
    ]
    assert conll.read(write(tmp_path, CONLL_2003)) == expected
    windows = b"\xef\xbb\xbf" + CONLL_2003.replace("\n", "\r\n").encode()
    packed = write(tmp_path, gzip.compress(windows), "a.gz")
    assert conll.read([packed, packed]) == expected * 2
    raw = conll.read(write(tmp_path, CONLL_2003), convert=False)
    assert raw[0]["tags"] == ["I-ORG", "O", "I-PER", "I-PER", "B-PER"]
    chunks = conll.read(write(tmp_path, CONLL_2003), column=2)
    assert chunks[0]["tags"] == ["B-NP", *["I-NP"] * 4]
    without = conll.read(write(tmp_path, CONLL_2003), column=None)
    assert without == [{"words": e["words"], "tags": None} for e in expected]


def test_tabs_blanks_and_words_alone(tmp_path):
    path = write(tmp_path, "New York\tB-x\t\t\n\u00a0\tO\n\t\n  \n#1\tO\n")
    assert conll.read(path) == [
        {"words": ["New York", "\u00a0"], "tags": ["B-x", "O"]},
        {"words": ["#1"], "tags": ["O"]},
    ]
    path = write(tmp_path, "a\nb\n\nc\tO\n")
    assert conll.read(path, needs_labels=False) == [
        {"words": ["a", "b"], "tags": None},
        {"words": ["c"], "tags": ["O"]},
    ]
    with pytest.raises(ValueError, match="must all have tags. Received: one of None"):
        conll.tag_names(conll.read(path, needs_labels=False))


@pytest.mark.parametrize(
    "tags, expected",
    [
        ("I-x I-x I-y B-y", "B-x I-x B-y B-y"),
        ("B-x E-x S-y O E-x", "B-x I-x B-y O B-x"),
        ("S-x S-x I-x", "B-x B-x B-x"),
    ],
)
def test_tags_become_iob2(tags, expected):
    tags, expected = tags.split(), expected.split()
    assert conll.to_iob2(tags) == expected
    assert metrics.entities([tags], [expected])["f1"] == 100.0


@pytest.mark.parametrize(
    "text, message",
    [
        ("a\tO\nb\n", "line 2: the lines of a sentence must have one number of columns, 2 here"),
        ("a\nb\n", "line 1: a line must be a word and its tag.*needs_labels=False"),
        ("a\tO\n\tO\n", "line 2: a word must not be empty"),
        ("a\tperson\n", "line 1: a tag must be O, or B-, I-, E- or S- and.*'person'"),
        ("a\tO\nb\tB-x,B-y\n", "line 2: a tag must be .* without commas. Received: 'B-x,B-y'"),
        ("a\tB-\n", "Received: 'B-'"),
        ("a\tB-y\n", "line 1: the type of an entity must be one of x, z. Received: 'B-y'"),
        ("-DOCSTART- O\n\n", "must hold sentences. Received: none"),
        (b"a\tO\n\xff\tO\n", "line 2: text must be UTF-8"),
    ],
)
def test_error_names_the_line_and_the_rule(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=message) as error:
        conll.read(path, types=["x", "z"])
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    "text, types, expected",
    [
        ("Bob\tB-person\nran\tO\n", (), True),
        ("Bob\tB-person\tNNP\nran\n", (), True),  # `read` says what is wrong with it.
        (CONLL_2003, (), True),
        ("Bob\tNNP\nran\tVBD\n", (), False),
        ("Bob\tNNP\nran\tVBD\n", ["VBD"], True),
        ("Bob ran .\n", ["."], False),  # A text of which each word stands alone.
        ("Bob ran.\nHis type is O\n", (), False),
        ("His type is O\n", (), True),
        ("O\nB-x\n", (), False),
        ("\tBob ran.\n1\tShe saw O. and him\n", (), False),
        ("\n-DOCSTART-\n", (), False),
    ],
)
def test_texts_are_told_from_words_with_tags(tmp_path, text, types, expected):
    assert conll.has_tags(write(tmp_path, text), types) is expected


@pytest.mark.parametrize("column", [0, 2, -2])
def test_column_that_is_none_of_tags_is_named(tmp_path, column):
    path = write(tmp_path, "a\tO\n")
    message = f"{path}, line 1: `column` (--label_column) must be one of the columns after"
    with pytest.raises(ValueError, match=f"{re.escape(message)}.*column={column}"):
        conll.read(path, column=column)


def test_tags_of_no_entities_are_as_in_the_file(tmp_path):
    path = write(tmp_path, "a\tNN\nb\tI-x\n")
    expected = [{"words": ["a", "b"], "tags": ["NN", "I-x"]}]
    assert conll.read(path, entities=False) == expected
    with pytest.raises(ValueError, match="line 2: a tag must be one of NN, VB. Received: 'I-x'"):
        conll.read(path, entities=False, types=["NN", "VB"])
    conll.write_predictions(tmp_path / "b", expected, [["VB", "NN"]], entities=False)
    assert (tmp_path / "b").read_bytes() == b"a\tNN\tVB\nb\tI-x\tNN\n\n"
    with pytest.raises(ValueError, match="Words and tags must not be empty"):
        conll.write_predictions(tmp_path / "c", expected, [["VB", ""]], entities=False)


# === Predictions ===


def test_predictions_stand_beside_gold_tags(tmp_path):
    examples = [{"words": ["a", "b"], "tags": ["B-x", "O"]}, {"words": ["c"], "tags": None}]
    predictions = [["O", "B-y"], ["B-x"]]
    path = tmp_path / "a.txt"
    conll.write_predictions(path, examples, predictions)
    assert path.read_bytes() == b"a\tB-x\tO\nb\tO\tB-y\n\nc\tB-x\n\n"
    assert [example["tags"] for example in conll.read(path)] == predictions
    conll.write_predictions(path, examples[:1], predictions[:1], delimiter=" ")
    assert path.read_bytes() == b"a B-x O\nb O B-y\n\n"


def test_real_sentences_are_read_as_written(shared_data, tmp_path):
    examples = conll.read(shared_data / "data" / "wnut17" / "emerging.dev.conll")
    conll.write_predictions(tmp_path / "a.txt", examples, [e["tags"] for e in examples])
    assert conll.read(tmp_path / "a.txt") == examples == conll.read(tmp_path / "a.txt", column=1)


@pytest.mark.parametrize(
    "word, predictions, message",
    [
        ("a", [], "one list for each sentence. Received: 0 for 1 sentences"),
        ("a", [["O", "O"]], r"a tag for each word. Received: 2 for 1 words in predictions\[0\]"),
        ("a", [["person"]], r"must be O or B-type, I-type. Received: 'person' in predictions\[0\]"),
        ("a\tb", [["O"]], r"Words and tags must not be empty, nor have '\\t' or line ends"),
        (" ", [["O"]], "Words and tags must not be empty"),
    ],
)
def test_predictions_of_another_form_are_not_written(tmp_path, word, predictions, message):
    with pytest.raises(ValueError, match=message):
        conll.write_predictions(tmp_path / "a", [{"words": [word], "tags": None}], predictions)
    assert not list(tmp_path.iterdir())
