import json
import re

import numpy as np
import pytest
from data_files import to_sets, write, write_lines

from keras_spanbert.data import coreference


def conll(*words, name="(a); part 000"):
    """Returns a document of `(word, coreference)`, where `None` ends a sentence."""
    lines = ["" if w is None else "\t".join(["a", "0", "0", w[0], *"_____-_", w[1]]) for w in words]
    return "\n".join([f"#begin document {name}", *lines, "", "#end document", ""])


def read_again(documents, folder):
    coreference.write_conll(folder / "again.conll", documents)
    return coreference.read(folder / "again.conll")


def test_conll_with_spaces_and_tabs(tmp_path):
    tabs = conll(("Ann", "(7"), ("Lee", "7)|(2"), None, ("her", "2)|(7)"), ("son", "-"))
    expected = {
        "doc_key": "a_0", "part": "000", "sentences": [["Ann", "Lee"], ["her", "son"]],
        "speakers": [["-", "-"], ["-", "-"]], "clusters": [[[0, 1], [2, 2]], [[1, 2]]],
    }  # fmt: skip
    assert coreference.read(write(tmp_path / "a.conll", tabs)) == [expected]
    spaces = write(tmp_path / "b.v4_gold_conll", tabs.replace("\t", "   "))
    assert coreference.read(spaces) == [expected]


def test_speaker_and_predicate_columns(tmp_path):
    text = (
        "#begin document (bc/x); part 012\n"
        "bc/x 12 0 Hi UH (TOP* - - - Mr._Hu * (ARG0*) * (3)\n\n"
        "bc/x 12 0 Bye UH (TOP* - - - - * -\n\n#end document\n"
    )
    (document,) = coreference.read(write(tmp_path / "a.conll", text))
    assert document["doc_key"] == "bc/x_12"
    assert document["speakers"] == [["Mr._Hu"], ["-"]]
    assert document["clusters"] == [[[0, 0]]]


@pytest.mark.parametrize(
    "cells, mentions",
    [
        ("(1 (1)|1)", [[0, 1], [1, 1]]),
        ("(1|1) (1|(1|1)|1) 1)|(1", [[0, 0], [1, 1], [1, 1], [2, 2]]),
        ("(1|(1 (1) 1) 1) (1|(2|(1|(3) 1)|2)|1)", [[0, 2], [0, 3], [1, 1], [4, 5], [4, 5]]),
        # Opening brackets are read before closing ones, in any order within the cell.
        ("(1 (1|1) 1)", [[0, 2], [1, 1]]),
        ("(1|(1 1)|1)|(1 1)", [[0, 1], [0, 2], [1, 1]]),
    ],
)
def test_brackets_are_read_like_the_official_scorer(tmp_path, cells, mentions):
    text = conll(*[("w", cell) for cell in cells.split()])
    (document,) = coreference.read(write(tmp_path / "a.conll", text))
    assert document["clusters"][0] == mentions


def test_random_nested_clusters_round_trip(tmp_path):
    generator = np.random.default_rng(0)
    documents = []
    for d in range(20):
        spans = generator.integers(0, [31, 7], (5, 6, 2)).tolist()
        spans = [[[start, min(start + size, 30)] for start, size in one] for one in spans]
        clusters = coreference.nested_clusters(spans)
        sentences = [[f"w{i}" for i in range(13)], [f"w{i}" for i in range(18)]]
        # Twelve digits are too many for the number of a part.
        key = f"nw/{d}_202311121{d:03d}"
        documents.append({"doc_key": key, "sentences": sentences, "clusters": clusters})
    for document, again in zip(documents, read_again(documents, tmp_path), strict=True):
        assert again["doc_key"] == document["doc_key"]
        assert again["sentences"] == document["sentences"]
        assert to_sets(again["clusters"]) == to_sets(document["clusters"])


@pytest.mark.parametrize(
    "mentions, message",
    [
        ([[0, 2], [1, 3]], r"\[0, 2\] and \[1, 3\]"),
        ([[4, 4], [2, 4], [0, 2]], r"\[0, 2\] and \[2, 4\]"),
    ],
)
def test_crossing_mentions_of_a_cluster_are_refused(tmp_path, mentions, message):
    good = {"doc_key": "a", "sentences": [["w"]], "clusters": []}
    document = {"doc_key": "nw/{b}", "sentences": [["w"] * 5], "clusters": [[[0, 0]], mentions]}
    with pytest.raises(ValueError, match=rf"documents\[1\], 'nw/{{b}}', cluster 1: .*{message}"):
        coreference.write_conll(tmp_path / "a.conll", [good, document])
    assert not (tmp_path / "a.conll").exists()


@pytest.mark.parametrize(
    "text, line, error",
    [
        (conll(("w", "(1"), ("w", "-")), 5, r"must close before.* '\(1' at "),
        (conll(("w", "(2)"), ("w", "1)")), 3, r"must open before it closes. Received: '1\)'"),
        (conll(("w", "(1)|")), 2, r"or brackets such as `\(1`.* Received: '\(1\)\|'"),
        (conll(("", "-")), 2, "a word must not be empty"),
        ("#begin document (a);\na 0 0 w -\n", 2, "at least 12, .* Received: 5, 'a 0 0 w -'"),
        ("a 0 0\n", 1, "words must be between"),
        (conll(("w", "-")).replace("#end document\n", ""), 3, "must end with `#end document`"),
        ("#begin document a\n", 1, "a line that starts with # must be `#begin"),
        ("#begin document (a);\n#begin document (b);\n", 2, "must be .* between documents"),
    ],
)
def test_invalid_conll_names_path_and_line(tmp_path, text, line, error):
    path = write(tmp_path / "a.conll", text)
    with pytest.raises(ValueError, match=f"^{path}, line {line}: .*{error}"):
        coreference.read(path)


def subtokens(**changes):
    document = {
        "doc_key": "nw/a_0",
        "sentences": [["[CLS]", "An", "##n", "[SEP]"], ["[CLS]", "sang", "[SEP]"]],
        "speakers": [["[SPL]", "-", "-", "[SPL]"], ["[SPL]", "-", "[SPL]"]],
        "constituents": [],
        "clusters": [[[1, 2], [5, 5]]],
        "sentence_map": [0, 0, 0, 1, 1, 1, 2],
        "subtoken_map": [0, 0, 0, 0, 0, 1, 1],
    }
    return {**document, **changes}


def test_jsonlines_round_trip_with_predicted_clusters(tmp_path):
    rows = [subtokens(), {"doc_key": "nw", "sentences": [["Hi"]], "own": {"a": [None]}}]
    coreference.write_jsonlines(tmp_path / "b.jsonl", rows)
    assert coreference.read(tmp_path / "b.jsonl") == rows
    path = tmp_path / "a.jsonlines"
    predicted = [[(np.int64(1), np.int64(2)), (4, 5)]]
    coreference.write_jsonlines(path, [subtokens()], [predicted])
    (document,) = coreference.read(path)
    assert document == subtokens(predicted_clusters=[[[1, 2], [4, 5]]])


def test_subtoken_clusters_become_word_clusters():
    assert coreference.clusters_in_words(subtokens()) == [[[0, 0], [1, 1]]]
    assert coreference.clusters_in_words(subtokens(), [[(2, 5), (1, 1)]]) == [[[0, 1], [0, 0]]]
    with pytest.raises(ValueError, match="`subtoken_map` must be a list. Received: None"):
        coreference.clusters_in_words({"doc_key": "a", "sentences": [["w"]], "clusters": []})


@pytest.mark.parametrize(
    "changes, error",
    [
        ({"doc_key": 3}, "`doc_key` must be a str. Received: 3"),
        ({"sentences": [["a"], "b"]}, r"be lists of strings. Received: sentences\[1\]='b'"),
        ({"speakers": [["-"] * 4]}, "as long as `sentences`.* Received: .*1. of no list for 3"),
        ({"speakers": [["-"] * 4, ["-"]]}, r"Received: speakers\[1\] of 1 for 3"),
        ({"subtoken_map": ["0"] * 7}, "`subtoken_map` must be one integer per token"),
        ({"clusters": [[[1, 7]]]}, r"within the 7 tokens.* clusters\[0\]\[0\]=\[1, 7\]"),
        ({"clusters": [[[1, 1], [3, 2]]]}, r"not end before it starts.* clusters\[0\]\[1\]"),
        ({"clusters": [4]}, r"must be a list of mentions. Received: clusters\[0\]=4"),
        ([3], r"a document must be a dict with `sentences`. Received: \[3\]"),
    ],
)
def test_invalid_jsonlines_name_path_and_line(tmp_path, changes, error):
    document = subtokens(**changes) if isinstance(changes, dict) else changes
    path = write_lines(tmp_path / "a.jsonlines", [subtokens(), document])
    with pytest.raises(ValueError, match=f"^{path}, line 2: .*{error}") as caught:
        coreference.read(path)
    str(caught.value).encode()


def test_unknown_file_type_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.jsonlines, .*Received: .*a\.txt"):
        coreference.read(write(tmp_path / "a.txt", "She sang."))


def test_invalid_documents_are_not_written(tmp_path):
    path = tmp_path / "a.conll"
    with pytest.raises(ValueError, match="must be in words, with clusters from `clusters_in_w"):
        coreference.write_conll(path, [subtokens()])
    for text in ["a\tb", "", " a", "a ", "a\n"]:
        for key, word in [("a", text), (text, "a")]:
            message = f"tabs or line ends.* Received: {re.escape(repr(text))}"
            with pytest.raises(ValueError, match=message):
                coreference.write_conll(path, [{"doc_key": key, "sentences": [[word]]}])
    with pytest.raises(ValueError, match="name must not start with `#`.* Received: '#a'"):
        coreference.write_conll(path, [{"doc_key": "#a", "sentences": [["w"]]}])
    document = {"doc_key": "a", "sentences": [["a b"]]}
    for writer in [coreference.write_conll, coreference.write_jsonlines]:
        with pytest.raises(ValueError, match="one list per document. Received: 2 for 1"):
            writer(path, [document], [[], []])
        with pytest.raises(ValueError, match=r"documents\[0\]: a mention must be two"):
            writer(path, [document], [[[[0, 1]]]])
    assert not path.exists()


@pytest.mark.parametrize("name", ["(news_12);", "(news_12); part 000", "(news); part 0"])
def test_begin_lines_are_written_as_they_were_read(tmp_path, name):
    documents = coreference.read(write(tmp_path / "a.conll", conll(("Ann", "-"), name=name)))
    assert read_again(documents, tmp_path) == documents
    assert (tmp_path / "again.conll").read_text().startswith(f"#begin document {name}\n")


def test_a_part_may_be_an_integer(tmp_path):
    document = {"doc_key": "a_0", "part": 0, "sentences": [["w"]], "clusters": []}
    (again,) = read_again([document], tmp_path)
    assert (again["doc_key"], again["part"]) == ("a_0", "0")


def test_a_part_of_more_than_nine_digits_is_not_written(tmp_path):
    document = {"doc_key": "a", "part": "1234567890", "sentences": [["w"]], "clusters": []}
    with pytest.raises(ValueError, match="up to nine digits. Received: '1234567890'"):
        coreference.write_conll(tmp_path / "a.conll", [document])


def test_litbank_and_an_empty_document_round_trip(shared_data, tmp_path):
    paths = sorted((shared_data / "data" / "litbank" / "coref" / "conll").glob("*.conll"))
    documents = coreference.read(paths)
    assert len(documents) == 100
    sizes = [coreference.check_document(document) for document in documents]
    assert sum(sizes) == 210_532 and max(sizes) == 3_419
    assert sum(len(document["sentences"]) for document in documents) == 8_562
    clusters = [cluster for document in documents for cluster in document["clusters"]]
    assert len(clusters) == 7_927
    assert sum(map(len, clusters)) == 29_103
    empty = {"doc_key": "a_3", "part": "003", "sentences": [], "speakers": [], "clusters": []}
    documents.append(empty)
    again = read_again(documents, tmp_path)
    for document in [*documents, *again]:  # Clusters may be reordered.
        document["clusters"] = to_sets(document["clusters"])
    assert again == documents


@pytest.mark.parametrize("variant", ["independent", "overlap"])
def test_predictions_equal_the_released_format(shared_data, tmp_path, variant):
    folder = shared_data / "reference" / "coref"
    released = folder / "outputs" / f"{variant}_a.pred.conll"
    text = (folder / "outputs" / "predictions.json").read_text(encoding="utf-8")
    predictions = json.loads(text)
    clusters = [predictions[f"{variant}/a/doc{i}"]["clusters_words"] for i in range(4)]
    documents = coreference.read(folder / "gold.conll")
    path = tmp_path / "predicted.conll"
    coreference.write_conll(path, documents, clusters)

    def columns(path):
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = [re.split("\t| +", line) for line in lines if line and not line.startswith("#")]
        # Except the part of speech, which documents do not have.
        return [[*row[:4], row[9], row[-1]] for row in rows]

    assert columns(path) == columns(released)
    theirs = coreference.read(released)
    assert theirs == coreference.read(path)
    for document, predicted in zip(theirs, clusters, strict=True):
        assert to_sets(document["clusters"]) == to_sets(predicted)
