import pytest
from data_files import write

from keras_spanbert import metrics
from keras_spanbert.data import conll

CONLL_2003 = """-DOCSTART- -X- -X- O

U.N. NNP I-NP I-ORG
official NN I-NP O
Ekeus NNP I-NP I-PER
Smith NNP I-NP I-PER
Ann NNP I-NP B-PER

-DOCSTART- -X- O O
to TO I-PP O
"""


def test_conll_2003_with_spaces(tmp_path):
    expected = [
        {
            "words": ["U.N.", "official", "Ekeus", "Smith", "Ann"],
            "tags": ["B-ORG", "O", "B-PER", "I-PER", "B-PER"],
        },
        {"words": ["to"], "tags": ["O"]},
    ]
    assert conll.read(write(tmp_path / "a.conll", CONLL_2003)) == expected
    raw = conll.read(write(tmp_path / "a.conll", CONLL_2003), convert=False)
    assert raw[0]["tags"] == ["I-ORG", "O", "I-PER", "I-PER", "B-PER"]
    chunks = conll.read(write(tmp_path / "a.conll", CONLL_2003), column=2)
    assert chunks[0]["tags"] == ["B-NP", *["I-NP"] * 4]
    without = conll.read(write(tmp_path / "a.conll", CONLL_2003), column=None)
    assert without == [{"words": e["words"], "tags": None} for e in expected]


def test_docstart_is_a_word_inside_of_a_sentence(tmp_path):
    words = [["-DOCSTART-", "marks"], ["a", "-DOCSTART-", "b"]]
    examples = [{"words": sentence, "tags": ["O"] * len(sentence)} for sentence in words]
    path = tmp_path / "a.conll"
    conll.write_predictions(path, examples, [example["tags"] for example in examples])
    assert conll.read(path) == examples
    assert conll.has_tags(path, ["O"])
    marks = "-DOCSTART- O\n\na O\n-DOCSTART- -X- O\nb O\n"
    assert [x["words"] for x in conll.read(write(path, marks))] == [["a"], ["b"]]


def test_tabs_blanks_and_words_without_tags(tmp_path):
    path = write(tmp_path / "a.conll", "New York\tB-x\t\t\n\u00a0\tO\n\t\n  \n#1\tO\n")
    assert conll.read(path) == [
        {"words": ["New York", "\u00a0"], "tags": ["B-x", "O"]},
        {"words": ["#1"], "tags": ["O"]},
    ]
    path = write(tmp_path / "a.conll", "a\nb\n\nc\tO\n")
    assert conll.read(path, needs_labels=False) == [
        {"words": ["a", "b"], "tags": None},
        {"words": ["c"], "tags": ["O"]},
    ]
    with pytest.raises(ValueError, match="must all have tags. Received: one without"):
        conll.tag_names(conll.read(path, needs_labels=False))
    names = conll.tag_names([{"tags": ["B-creative-work", "O"]}])
    assert names == ["O", "B-creative-work", "I-creative-work"]


@pytest.mark.parametrize(
    "tags, expected",
    [
        ("I-x I-x I-y B-y", "B-x I-x B-y B-y"),
        ("B-x E-x S-y O E-x", "B-x I-x B-y O B-x"),
        ("B-x I-x L-x U-y O L-x I-x", "B-x I-x I-x B-y O B-x B-x"),
    ],
)
def test_tags_are_converted_to_iob2(tags, expected):
    tags, expected = tags.split(), expected.split()
    assert conll.to_iob2(tags) == expected
    assert metrics.entities([tags], [expected])["f1"] == 100.0


@pytest.mark.parametrize(
    "text, column, message",
    [
        ("a\tO\nb\n", -1, ", line 2: the lines of a sentence must have the same number of"),
        ("a\nb\n", -1, ", line 1: a line must be a word and its tag.*needs_labels=False"),
        ("a\tO\n\tO\n", -1, ", line 2: a word must not be empty"),
        ("a\tperson\n", -1, ", line 1: a tag must be O, or B-, I-, E- or S- and.*'person'"),
        ("a\tB-y\n", -1, ", line 1: the type of an entity must be one of x, z. Received: 'B-y'"),
        ("-DOCSTART- O\n\n", -1, " must contain sentences. Received: none"),
        ("a\tM-x\n", -1, r", line 1: a tag must be .* \(in BILOU L- or U-\). Received: 'M-x'"),
        ("a\tO\n", 0, r", line 1: `column` \(--label_column\) must be .* column=0"),
    ],
)
def test_errors_name_the_line(tmp_path, text, column, message):
    path = write(tmp_path / "a.conll", text)
    with pytest.raises(ValueError, match=f"{path}{message}"):
        conll.read(path, column=column, types=["x", "z"])


@pytest.mark.parametrize(
    "text, types, expected",
    [
        ("Bob\tB-person\nran\tO\n", (), True),
        ("Bob\tB-person\tNNP\nran\n", (), True),  # `read` reports the error.
        (CONLL_2003, (), True),
        ("Bob\tNNP\nran\tVBD\n", (), False),
        ("Bob\tNNP\nran\tVBD\n", ["VBD"], True),
        ("Bob ran .\n", ["."], False),  # A text with blanks around each word.
        ("His type is O\n", (), True),
        ("O\nB-x\n", (), False),
        ("Ida U-x\nran O\n", (), True),
        ("Ida\tU-x\nran\tO\n", (), True),
        ("Wir fahren U-Bahn\n", (), False),
        ("1\tU-Bahn\n", (), False),
        ("\tBob ran.\n1\tShe saw O. and him\n", (), False),
    ],
)
def test_texts_are_distinguished_from_tagged_words(tmp_path, text, types, expected):
    assert conll.has_tags(write(tmp_path / "a.conll", text), types) is expected


NUMBERED = "1\tIda\tNNP\tB-x\n2\tran\tVBD\tO\n\n1\t-DOCSTART-\t-\tO\n\n1\tSie\tPRP\tO\n"


@pytest.mark.parametrize("separator", ["\t", " "])
def test_column_of_words(tmp_path, separator):
    path = write(tmp_path / "a.conll", NUMBERED.replace("\t", separator))
    expected = [{"words": ["Ida", "ran"], "tags": ["B-x", "O"]}, {"words": ["Sie"], "tags": ["O"]}]
    for column in [1, -3]:
        assert conll.read(path, words_column=column)[:1] == expected[:1]
    assert conll.read(path, words_column=1) == expected
    tags = conll.read(path, column=0, words_column=1, entities=False)
    assert tags[0] == {"words": ["Ida", "ran"], "tags": ["1", "2"]}
    # The words may be in the last column, which has tags by default.
    path = write(tmp_path / "b.conll", f"1{separator}Ida\n2{separator}ran\n")
    untagged = [{"words": ["Ida", "ran"], "tags": None}]
    for column in [1, -1]:
        assert conll.read(path, needs_labels=False, words_column=column) == untagged
    message = (
        r"`column` \(--label_column\) must be .* not that of the words, 1. Received: column=-1"
    )
    with pytest.raises(ValueError, match=f"{path}, line 1: {message}"):
        conll.read(path, words_column=1)
    for column in [2, -3]:
        with pytest.raises(ValueError, match=f"line 1: `words_column` .*words_column={column}"):
            conll.read(path, words_column=column)
    with pytest.raises(ValueError, match="`words_column` must be an integer.*words_column='1'"):
        conll.read(path, words_column="1")


def test_words_that_only_count_are_warned_of(tmp_path, caplog):
    for start in [0, 1]:
        rows = [[f"{start + i} {word} O\n" for i, word in enumerate("abc"[:n])] for n in [3, 1, 2]]
        path = write(tmp_path / f"{start}.conll", "\n".join(map("".join, rows)))
        assert conll.read(path)[2]["words"] == [str(start), str(start + 1)]
        (record,) = caplog.records
        assert f"{path}: the column of words only counts" in record.getMessage()
        assert "--words_column=1" in record.getMessage()
        caplog.clear()
        conll.read(path, words_column=1)
    for text in ["1 O\n", "1 O\n2 O\n\n3 O\n", "1 O\n2 O\nmore O\n", "1 O\n2 O\n4 O\n"]:
        conll.read(write(tmp_path / "a.conll", text))
    assert not caplog.records


def test_other_tags_are_not_converted(tmp_path):
    path = write(tmp_path / "a.conll", "a\tNN\nb\tI-x\n")
    expected = [{"words": ["a", "b"], "tags": ["NN", "I-x"]}]
    assert conll.read(path, entities=False) == expected
    with pytest.raises(ValueError, match="line 2: a tag must be one of NN, VB. Received: 'I-x'"):
        conll.read(path, entities=False, types=["NN", "VB"])
