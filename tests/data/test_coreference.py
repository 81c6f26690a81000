"""Coreference files of all formats: reading, writing, and messages."""

import json
import re

import numpy as np
import pytest
from data_files import to_sets, write, write_lines

from keras_spanbert.data import coreference

HEADER = "# global.Entity = eid-etype-head-other\n"


def conll(*words, name="(a); part 000", separator="\t", end=""):
    """Returns a document of `(word, coreference)`, where `None` ends a sentence."""
    rows = [w and ["a", "0", "0", w[0], *"_____-_", w[1]] for w in words]
    lines = [separator.join(row) + end if row else "" for row in rows]
    return "\n".join([f"#begin document {name}", *lines, "", "#end document", ""])


def conllu(*words, comments="# newdoc id = d1\n" + HEADER):
    """Returns CoNLL-U of `(number, word, Entity)`, where `None` ends a sentence."""

    def line(number, word, entity):
        misc = f"SpaceAfter=No|Entity={entity}|Bridge=e1<e2" if entity else "_"
        return "\t".join([number, word, *["_"] * 7, misc])

    return comments + "\n".join([*(line(*row) if row else "" for row in words), "", ""])


def read_again(documents, folder):
    coreference.write_conll(folder / "again.conll", documents)
    return coreference.read(folder / "again.conll")


# === CoNLL-2012 ===
def test_conll_with_spaces_and_tabs(tmp_path):
    words = [("Ann", "(7"), ("Lee", "7)|(2"), None, ("her", "2)|(7)"), ("son", "-")]
    expected = {
        "doc_key": "a_0", "part": "000", "sentences": [["Ann", "Lee"], ["her", "son"]],
        "speakers": [["-", "-"], ["-", "-"]], "clusters": [[[0, 1], [2, 2]], [[1, 2]]],
    }  # fmt: skip
    for name, separator in [("a.conll", "\t"), ("b.v4_gold_conll", "   ")]:
        for end in ["", "\t", "\t\t", " ", "  ", " \t ", "\t \t"]:
            path = write(tmp_path / name, conll(*words, separator=separator, end=end))
            assert coreference.read(path) == [expected]


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


@pytest.mark.parametrize("name", ["(news_12);", "(news_12); part 000", "(news); part 0"])
def test_begin_lines_are_written_as_they_were_read(tmp_path, name):
    documents = coreference.read(write(tmp_path / "a.conll", conll(("Ann", "-"), name=name)))
    assert read_again(documents, tmp_path) == documents
    assert (tmp_path / "again.conll").read_text().startswith(f"#begin document {name}\n")


def test_a_part_may_be_an_integer(tmp_path):
    document = {"doc_key": "a_0", "part": 0, "sentences": [["w"]], "clusters": []}
    (again,) = read_again([document], tmp_path)
    assert (again["doc_key"], again["part"]) == ("a_0", "0")


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


# === CorefUD ===
@pytest.mark.parametrize("name", ["a.conllu", "a.conll"])
def test_corefud(tmp_path, name):
    text = conllu(
        ("1", "Ida", "(e1-person-1-Ida"), ("2", "Berg", "e1)(e2-time"), ("3-4", "don't", None),
        ("3", "do", None), ("4", "not", "e2)"), ("5", "herself", "(e1)"), ("5.1", "_", None), None,
        ("1", "Her", "(e3-thing(e1-person)"), ("2", "book", "e3)"),
    )  # fmt: skip
    (document,) = coreference.read(write(tmp_path / name, text))
    assert document["doc_key"] == "d1"
    assert document["sentences"] == [["Ida", "Berg", "do", "not", "herself"], ["Her", "book"]]
    assert document["speakers"] == [["-"] * 5, ["-"] * 2]
    assert to_sets(document["clusters"]) == [[(0, 1), (4, 4), (5, 5)], [(1, 3)], [(5, 6)]]


def test_documents_and_attributes_of_corefud(tmp_path):
    one = conllu(("1", "Ida", "(person-e1)"), comments="# global.Entity = etype-eid\n# newdoc\n")
    two = conllu(("1", "Bo", "(person-e1-x)"), ("2", "Ed", "(e)"), comments="# newdoc id = b c\n")
    text = one + two.replace("(e)", "(person-e1)")
    first, second = coreference.read(write(tmp_path / "x.y.conllu", text))
    assert (first["doc_key"], first["clusters"]) == ("x_0", [[[0, 0]]])
    assert (second["doc_key"], second["clusters"]) == ("b c", [[[0, 0], [1, 1]]])
    gum = conllu(("1", "Ida", "(1-person)"), comments="# global.Entity = GRP-etype\n")
    (document,) = coreference.read(write(tmp_path / "a.conllu", gum))
    assert (document["doc_key"], document["clusters"]) == ("a", [[[0, 0]]])


def test_empty_nodes_and_parts_of_mentions_are_left_out_and_logged(tmp_path, caplog):
    text = conllu(
        ("0.1", "_", "(e1-person"), ("1", "Ida", "e1)"), ("1.1", "_", "(e1-person)"),
        ("2", "sang", "(e2[1/2]-x"), ("3", "and", "e2[1/2])"), ("4", "sang", "(e2[2/2]-x)"),
        ("5", "to", "(e3-x"), ("6", "her", "(e1-person)e3)"),
    )  # fmt: skip
    path = write(tmp_path / "a.conllu", text)
    (document,) = coreference.read(path)
    assert to_sets(document["clusters"]) == [[(0, 0), (5, 5)], [(4, 5)]]
    message = f"Left out 1 mention of empty nodes only. The first is at {path}, line 5"
    assert message in caplog.text
    assert f"Left out 1 mention in several parts. The first is at {path}, line 6" in caplog.text


# === JSON ===
WORDS = ["Ida", "Berg", "left", ".", "She", "sang"]
CLUSTERS = [[[0, 1], [4, 4]]]
PRECO = {
    "id": "dev_1", "sentences": [WORDS[:4], WORDS[4:]],
    "mention_clusters": [[[0, 0, 2], [1, 0, 1]], [[1, 1, 2]]],
}  # fmt: skip
WL_COREF = {
    "document_id": "nw/a", "part_id": 3, "cased_words": WORDS, "sent_id": [0, 0, 0, 0, 1, 1],
    "speaker": [*"aaaabb"], "head2span": [[1, 0, 2]], "word_clusters": [[1, 4]],
    "span_clusters": [[[0, 2], [4, 5]]],
}  # fmt: skip
FASTCOREF = {"text": "Ida left. She sang.", "clusters": [[[0, 3], [10, 13]]]}
SUBTOKENS = {
    "doc_key": "nw/a_0", "sentences": [["[CLS]", "An", "##n", "[SEP]"], ["[CLS]", "sang", "[SEP]"]],
    "speakers": [["[SPL]", "-", "-", "[SPL]"], ["[SPL]", "-", "[SPL]"]], "constituents": [],
    "clusters": [[[1, 2], [5, 5]]], "sentence_map": [0, 0, 0, 1, 1, 1, 2],
    "subtoken_map": [0, 0, 0, 0, 0, 1, 1],
}  # fmt: skip
WORD = {"doc_key": "nw", "sentences": [["w"]], "clusters": []}


def test_jsonlines_round_trip_with_predicted_clusters(tmp_path):
    # Keys of the user, or of other formats, are kept.
    rows = [SUBTOKENS, {"doc_key": "nw", "sentences": [["Hi"]], "own": {"a": [None]}}]
    rows.append({**WORD, "text": "w", "mention_clusters": 1})
    coreference.write_jsonlines(tmp_path / "b.jsonl", rows)
    assert coreference.read(tmp_path / "b.jsonl") == rows
    path = tmp_path / "a.jsonlines"
    predicted = [[(np.int64(1), np.int64(2)), (4, 5)]]
    coreference.write_jsonlines(path, [SUBTOKENS], [predicted])
    assert coreference.read(path) == [{**SUBTOKENS, "predicted_clusters": [[[1, 2], [4, 5]]]}]


def test_subtoken_clusters_become_word_clusters():
    assert coreference.clusters_in_words(SUBTOKENS) == [[[0, 0], [1, 1]]]
    assert coreference.clusters_in_words(SUBTOKENS, [[(2, 5), (1, 1)]]) == [[[0, 1], [0, 0]]]
    with pytest.raises(ValueError, match="`subtoken_map` must be a list. Received: None"):
        coreference.clusters_in_words(WORD)


def test_preco(tmp_path):
    (document,) = coreference.read(write_lines(tmp_path / "a.jsonl", [PRECO]))
    assert document == {
        "doc_key": "dev_1", "sentences": PRECO["sentences"], "speakers": [["-"] * 4, ["-"] * 2],
        "clusters": [[[0, 1], [4, 4]], [[5, 5]]],
    }  # fmt: skip


def test_wl_coref(tmp_path):
    without = {key: value for key, value in WL_COREF.items() if key != "span_clusters"}
    rows = [WL_COREF, {**without, "clusters": WL_COREF["span_clusters"]}, without]
    first, second, third = coreference.read(write_lines(tmp_path / "a.jsonlines", rows))
    assert first == second == {**third, "clusters": CLUSTERS}
    sentences, speakers = [WORDS[:4], WORDS[4:]], [[*"aaaa"], [*"bb"]]
    assert third == {"doc_key": "nw/a_3", "sentences": sentences, "speakers": speakers}
    (again,) = read_again([first], tmp_path)
    assert "(nw/a); part 003" in (tmp_path / "again.conll").read_text()
    assert again["doc_key"] == "nw/a_3" and again["clusters"] == CLUSTERS
    row = {name: WL_COREF[name] for name in ["document_id", "cased_words", "sent_id"]}
    (document,) = coreference.read(write_lines(tmp_path / "b.jsonlines", [row]))
    assert document["doc_key"] == "nw/a" and document["speakers"] == [["-"] * 4, ["-"] * 2]


def test_a_speaker_for_each_sentence(tmp_path):
    document = {"doc_key": "nw", "sentences": [["Hi", "!"], ["Ho"]], "speakers": ["a", "b"]}
    (found,) = coreference.read(write_lines(tmp_path / "a.jsonl", [document]))
    assert found == {**document, "speakers": [["a", "a"], ["b"]]}
    for wrong in [{"speakers": ["a"]}, {"sentence_map": [0, 0, 1]}]:
        with pytest.raises(ValueError, match="`speakers` must be lists of strings"):
            coreference.read(write_lines(tmp_path / "a.jsonl", [document | wrong]))


# === Messages ===
@pytest.mark.parametrize(
    "text, line, error",
    [
        (conll(("w", "(1"), ("w", "-")), 5, r"must close before.* '\(1', opened at .*line 2"),
        (conll(("w", "(2)"), ("w", "1)")), 3, r"must open before it closes. Received: '1\)'"),
        (conll(("w", "(1)|")), 2, r"or brackets such as `\(1`.* Received: '\(1\)\|'"),
        (conll(("w", "(e1)"), end="\t"), 2, r"the last column must be.* Received: '\(e1\)'"),
        (conll(("", "-")), 2, "a word must not be empty"),
        ("#begin document (a);\na 0 0 w -\n", 2, "at least 12, .* Received: 5, 'a 0 0 w -'"),
        ("a 0 0\n", 1, "words must be between"),
        (conll(("w", "-")).replace("#end document\n", ""), 3, "must end with `#end document`"),
        ("#begin document a\n", 1, "a line that starts with # must be `#begin"),
        ("#begin document (a);\n#begin document (b);\n", 2, "must be .* between documents"),
        (conllu(("1", "a", "(e1-x"), None, ("1", "b", "e1)")), 4, r"must close.* Received: '\(e1'"),
        (conllu(("1", "a", "e1)")), 3, r"must open before it closes. Received: 'e1\)'"),
        (conllu(("1", "a", "e1")), 3, "`Entity` must be brackets.* Received: 'e1'"),
        (conllu(("1", "a", "(e1)"), comments="# newdoc\n"), 2, "`# global.Entity` must name eid"),
        (conllu(("x", "a", None)), 3, "the 10 columns of CoNLL-U"),
        (HEADER + "1\ta\t_\n", 2, "the 10 columns of CoNLL-U"),
        (conllu(("1", "a", "(x)"), comments="# global.Entity = etype-eid\n"), 2, "its cluster"),
    ],
)
def test_invalid_lines_are_named(tmp_path, text, line, error):
    path = write(tmp_path / "a.conll", text)
    with pytest.raises(ValueError, match=f"^{path}, line {line}: .*{error}"):
        coreference.read(path)


@pytest.mark.parametrize(
    "row, error",
    [
        ({**SUBTOKENS, "doc_key": 3}, "`doc_key` must be a str. Received: 3"),
        ({**SUBTOKENS, "sentences": [["a"], "b"]}, r"be lists of strings. .*: sentences\[1\]='b'"),
        ({**SUBTOKENS, "speakers": [["-"] * 4]}, "as long as `sentences`.*1. of no list for 3"),
        ({**SUBTOKENS, "speakers": [["-"] * 4, ["-"]]}, r"Received: speakers\[1\] of 1 for 3"),
        ({**SUBTOKENS, "subtoken_map": ["0"] * 7}, "`subtoken_map` must be one integer per token"),
        ({**SUBTOKENS, "clusters": [[[1, 7]]]}, r"within the 7 .* clusters\[0\]\[0\]=\[1, 7\]"),
        ({**SUBTOKENS, "clusters": [[[1, 1], [3, 2]]]}, r"not end before.* clusters\[0\]\[1\]"),
        ({**SUBTOKENS, "clusters": [4]}, r"a list of mentions. Received: clusters\[0\]=4"),
        ([3], r"a document must be a dict with `sentences`. Received: \[3\]"),
        ({**PRECO, "id": 3}, r"PreCo.*`id` must be a str. Received: 3"),
        ({**PRECO, "mention_clusters": [[[0, 0, 0]]]}, r"PreCo.*end excluded.*\[0, 0, 0\]"),
        ({**PRECO, "mention_clusters": [[[0, 3, 5]]]}, r"inside the sentence.*\[0, 3, 5\]"),
        ({**PRECO, "mention_clusters": [[[2, 0, 1]]]}, r"inside the sentence.*\[2, 0, 1\]"),
        ({**PRECO, "mention_clusters": [3]}, "must be lists of mentions"),
        ({**PRECO, "sentences": ["Ida"]}, "must be lists of words"),
        ({**PRECO, "sentences": [[1], []], "mention_clusters": []}, "must be lists of strings"),
        ({**WL_COREF, "sent_id": [0, 0]}, r"wl-coref.*same length. Received: \[6, 2, 6\]"),
        ({**WL_COREF, "sent_id": [0, 1, 0, 1, 0, 1]}, "do not decrease"),
        ({**WL_COREF, "span_clusters": [[[4, 7]]]}, r"end excluded. Received: \[4, 7\]"),
        ({**WL_COREF, "part_id": [0] * 6}, "`part_id` must be a int"),
        (FASTCOREF, "Received: fastcoref's JSON"),
        ({**FASTCOREF, "doc_key": "a", "clusters_strings": []}, "Received: fastcoref's JSON"),
        ({"tokens": WORDS, "clusters": []}, "Received: fastcoref's JSON"),
    ],
)
def test_invalid_json_names_path_line_and_format(tmp_path, row, error):
    path = write_lines(tmp_path / "a.jsonl", [SUBTOKENS, row])
    with pytest.raises(ValueError, match=f"^{path}, line 2.*{error}"):
        coreference.read(path)


def test_files_without_coreference_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.jsonlines, .*Received: .*a\.txt"):
        coreference.read(write(tmp_path / "a.txt", "She sang."))
    text = conllu(("1", "Ida", None), comments="# sent_id = 1\n# text = Ida\n")
    for name in ["a.conllu", "a.conll"]:
        with pytest.raises(ValueError, match="CoNLL-U must be CorefUD's, 1.0 or later"):
            coreference.read(write(tmp_path / name, text))


def test_invalid_documents_are_not_written(tmp_path):
    path = tmp_path / "a.conll"
    wrong = [
        (SUBTOKENS, r"\[1\]: documents must be in words, with clusters from `clusters_in_words"),
        ({**WORD, "doc_key": "#a"}, "name must not start with `#`.* Received: '#a'"),
        ({**WORD, "part": "1234567890"}, "up to nine digits. Received: '1234567890'"),
    ]
    for text in ["a\tb", "", " a", "a ", "a\n"]:
        message = f"tabs or line ends.* Received: {re.escape(repr(text))}"
        wrong += [({**WORD, "doc_key": text}, message), ({**WORD, "sentences": [[text]]}, message)]
    for mentions, message in [
        ([[0, 2], [1, 3]], r"\[0, 2\] and \[1, 3\]"),
        ([[4, 4], [2, 4], [0, 2]], r"\[0, 2\] and \[2, 4\]"),
    ]:
        document = {"doc_key": "nw/{b}", "sentences": [["w"] * 5], "clusters": [[[0, 0]], mentions]}
        wrong.append((document, rf"documents\[1\], 'nw/{{b}}', cluster 1: .*{message}"))
    for document, message in wrong:
        with pytest.raises(ValueError, match=message):
            coreference.write_conll(path, [WORD, document])
    for writer in [coreference.write_conll, coreference.write_jsonlines]:
        with pytest.raises(ValueError, match="one list per document. Received: 2 for 1"):
            writer(path, [WORD], [[], []])
        with pytest.raises(ValueError, match=r"documents\[0\]: a mention must be two"):
            writer(path, [WORD], [[[[0, 1]]]])
    assert not path.exists()
