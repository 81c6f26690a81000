import json
import re

import numpy as np
import pytest

from keras_spanbert.data import coreference, gap


def conll(*words, name="(a); part 000"):
    """A document of `(word, coreference)`, of which `None` ends a sentence."""
    lines = ["" if w is None else "\t".join(["a", "0", "0", w[0], *"_____-_", w[1]]) for w in words]
    return "\n".join([f"#begin document {name}", *lines, "", "#end document", ""])


def write(folder, text, name="a.conll"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return path


def as_sets(clusters):
    return sorted(sorted(map(tuple, cluster)) for cluster in clusters)


WORDS = [("Ann", "(7"), ("Lee", "7)|(2"), None, ("her", "2)|(7)"), ("son", "-")]


def test_conll_of_spaces_and_tabs(tmp_path):
    tabs = conll(*WORDS)
    spaces = tabs.replace("\t", "   ")
    expected = {
        "doc_key": "a_0",
        "part": "000",
        "sentences": [["Ann", "Lee"], ["her", "son"]],
        "speakers": [["-", "-"], ["-", "-"]],
        "clusters": [[[0, 1], [2, 2]], [[1, 2]]],
    }
    assert coreference.read(write(tmp_path, tabs)) == [expected]
    windows = b"\xef\xbb\xbf" + spaces.replace("\n", "\r\n").encode()
    paths = [write(tmp_path, spaces, "b.v4_gold_conll"), write(tmp_path, windows, "c.conll")]
    assert coreference.read(paths) == [expected, expected]


def test_empty_cells_and_parts_as_in_litbank(tmp_path):
    text = conll(("Ann", "(0)"), ("sang", ""), ("low", "_"), name="(1_a_brat); part 0")
    (document,) = coreference.read(write(tmp_path, text))
    assert document["clusters"] == [[[0, 0]]]
    assert document["doc_key"] == "1_a_brat_0" and document["part"] == "0"
    coreference.write_conll(tmp_path / "b.conll", [document])
    assert coreference.read(tmp_path / "b.conll") == [document]
    # The official scorer matches documents by these lines.
    first = (tmp_path / "b.conll").read_text().splitlines()[0]
    assert first == "#begin document (1_a_brat); part 0"


def test_speakers_and_predicates_have_their_columns(tmp_path):
    text = (
        "#begin document (bc/x); part 012\n"
        "bc/x 12 0 Hi UH (TOP* - - - Mr._Hu * (ARG0*) * (3)\n\n"
        "bc/x 12 0 Bye UH (TOP* - - - - * -\n\n#end document\n"
    )
    (document,) = coreference.read(write(tmp_path, text))
    assert document["doc_key"] == "bc/x_12"
    assert document["speakers"] == [["Mr._Hu"], ["-"]]
    assert document["clusters"] == [[[0, 0]]]


def test_nested_mentions_of_a_cluster_close_inside_out(tmp_path):
    cells = ["(1|(1", "(1)", "1)|(1", "1)|1)", "(1|(2|(1|(3)", "1)|2)|1)"]
    (document,) = coreference.read(write(tmp_path, conll(*[("w", cell) for cell in cells])))
    # In the order in which the official scorer meets them: (3) before what begins with it.
    assert document["clusters"] == [
        [[0, 2], [0, 3], [1, 1], [2, 3], [4, 5], [4, 5]],
        [[4, 4]],
        [[4, 5]],
    ]
    coreference.write_conll(tmp_path / "b.conll", [document])
    assert coreference.read(tmp_path / "b.conll") == [document]


def test_random_nested_clusters_are_read_as_written(tmp_path):
    generator = np.random.default_rng(0)
    documents = []
    for d in range(20):
        clusters = []
        for _ in range(5):
            mentions = []
            for start, length in generator.integers(0, [31, 7], size=[6, 2]):
                mention = [int(start), int(min(start + length, 30))]
                if not any(cross(mention, other) or cross(other, mention) for other in mentions):
                    mentions.append(mention)
            clusters.append(mentions)
        sentences = [[f"w{i}" for i in range(13)], [f"w{i}" for i in range(18)]]
        documents.append({"doc_key": f"nw/{d}", "sentences": sentences, "clusters": clusters})
    coreference.write_conll(tmp_path / "a.conll", documents)
    again = coreference.read(tmp_path / "a.conll")
    for document, other in zip(documents, again, strict=True):
        assert other["doc_key"] == document["doc_key"]
        assert other["sentences"] == document["sentences"]
        assert as_sets(other["clusters"]) == as_sets(document["clusters"])


def cross(one, other):
    return one[0] < other[0] < one[1] < other[1]


def test_crossing_mentions_of_a_cluster_are_refused(tmp_path):
    document = {"doc_key": "a", "sentences": [["w"] * 5], "clusters": [[[0, 2], [1, 3]]]}
    with pytest.raises(ValueError, match=r"documents\[0\], cluster 0.*must not cross.*\[1, 3\]"):
        coreference.write_conll(tmp_path / "a.conll", [document])
    assert not (tmp_path / "a.conll").exists()
    # In two clusters they may, and one may begin at the word where another ends.
    document["clusters"] = [[[0, 2], [2, 4]], [[1, 3]]]
    coreference.write_conll(tmp_path / "a.conll", [document])
    assert coreference.read(tmp_path / "a.conll")[0]["clusters"] == document["clusters"]


@pytest.mark.parametrize(
    "text, line, error",
    [
        (conll(("w", "(1"), ("w", "-")), 5, "must close before.* '(1' of "),
        (conll(("w", "(2)"), ("w", "1)")), 3, "must open before it closes. Received: '1)'"),
        (conll(("w", "(1)|")), 2, "must be `-` or of `(1`, `1)` and `(1)`.* Received: '(1)|'"),
        (conll(("w", "(e1-x)")), 2, "must be `-` or of"),
        (conll(("", "-")), 2, "a word must not be empty"),
        ("#begin document (a);\na 0 0 w -\n", 2, "12 columns or more.* Received: 5, 'a 0 0 w -'"),
        (conll(("w", "-"), ("w\tx", "-")), 3, "one number of columns, 12 here. Received: 13"),
        ("a 0 0\n", 1, "words must stand between"),
        (conll(("w", "-")).replace("#end document\n", ""), 3, "must close with `#end document`"),
        ("#begin document a\n", 1, "a line of # must be `#begin"),
        ("#begin document (a);\n#begin document (b);\n", 2, "once the last document has ended"),
        ("#end document\n", 1, "a line of # must be"),
        (conll(("w", "-")).encode() + b"\xff", 5, "must be UTF-8. Received: invalid start byte"),
    ],
)
def test_malformed_conll_names_path_line_and_rule(tmp_path, text, line, error):
    path = write(tmp_path, text)
    with pytest.raises(ValueError) as caught:
        coreference.read(path)
    message = str(caught.value)
    assert message.startswith(f"{path}, line {line}: ")
    assert re.search(re.escape(error).replace(r"\.\*", ".*"), message), message


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


def test_jsonlines_stay_as_they_are(tmp_path):
    rows = [subtokens(), {"doc_key": "nw", "sentences": [["Hi"]], "own": {"a": [None]}}]
    path = write(tmp_path, "\n".join(map(json.dumps, rows)) + "\n\n", "a.jsonlines")
    assert coreference.read(str(path)) == rows
    coreference.write_jsonlines(tmp_path / "b.jsonl", rows)
    assert coreference.read(tmp_path / "b.jsonl") == rows


def test_predicted_clusters_are_written_beside_the_gold_ones(tmp_path):
    path = tmp_path / "a.jsonlines"
    predicted = [[(np.int64(1), np.int64(2)), (4, 5)]]
    coreference.write_jsonlines(path, [subtokens()], [predicted])
    (document,) = coreference.read(path)
    assert document == subtokens(predicted_clusters=[[[1, 2], [4, 5]]])


def test_clusters_of_subtokens_become_words():
    assert coreference.clusters_in_words(subtokens()) == [[[0, 0], [1, 1]]]
    assert coreference.clusters_in_words(subtokens(), [[(2, 5), (1, 1)]]) == [[[0, 1], [0, 0]]]
    with pytest.raises(ValueError, match="`subtoken_map` must be a list. Received: None"):
        coreference.clusters_in_words({"doc_key": "a", "sentences": [["w"]], "clusters": []})


@pytest.mark.parametrize(
    "changes, error",
    [
        ({"doc_key": 3}, "`doc_key` must be a str. Received: 3"),
        ({"sentences": [["a"], "b"]}, "must be lists of strings. Received: sentences[1]='b'"),
        ({"speakers": [["-"] * 4]}, "as long as `sentences`.* Received: 1 lists for 2"),
        ({"speakers": [["-"] * 4, ["-"]]}, "Received: speakers[1] of 1 for 3"),
        ({"sentence_map": [0, 1]}, "`sentence_map` must be one integer a token, 7 in all"),
        ({"subtoken_map": ["0"] * 7}, "`subtoken_map` must be one integer a token"),
        ({"clusters": [[[1, 7]]]}, "within the 7 tokens.* Received: clusters[0][0]=[1, 7]"),
        ({"clusters": [[[1, 1], [3, 2]]]}, "end where it starts.* clusters[0][1]=[3, 2]"),
        ({"clusters": [[[1, True]]]}, "must be two integers"),
        ({"clusters": [[4, 5]]}, "must be two integers. Received: clusters[0][0]=4"),
        ({"clusters": [4]}, "must be a list of mentions. Received: clusters[0]=4"),
        ({"predicted_clusters": [[[-1, 0]]]}, "Received: predicted_clusters[0][0]=[-1, 0]"),
        ({"sentences": [["[CLS]", "\ud800", "x", "x"], ["x"] * 3]}, "no lone surrogates"),
    ],
)
def test_malformed_jsonlines_name_path_line_and_rule(tmp_path, changes, error):
    lines = [json.dumps(subtokens()), "", json.dumps(subtokens(**changes))]
    path = write(tmp_path, "\n".join(lines), "a.jsonlines")
    with pytest.raises(ValueError) as caught:
        coreference.read(path)
    message = str(caught.value)
    assert message.startswith(f"{path}, line 3: ")
    assert re.search(re.escape(error).replace(r"\.\*", ".*"), message), message
    message.encode()


@pytest.mark.parametrize(
    "text, error",
    [
        ('{"doc_key": }', "line 1: must be JSON. Received: Expecting value, column 13"),
        ("[" * 100_000, "line 1: must be JSON. Received: lists in lists too deep"),
        ("[3]", "line 1: a document must be a dict with `sentences`. Received: [3]"),
        ("", "must hold documents. Received: none"),
    ],
)
def test_what_is_no_document_is_named(tmp_path, text, error):
    path = write(tmp_path, text, "a.jsonlines")
    with pytest.raises(ValueError, match=re.escape(error)) as caught:
        coreference.read(path)
    assert str(path) in str(caught.value)


def test_unknown_kind_of_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.jsonlines, .*Received: .*a\.txt"):
        coreference.read(write(tmp_path, "She sang.", "a.txt"))


def test_mistakes_in_what_is_to_be_written(tmp_path):
    path = tmp_path / "a.conll"
    with pytest.raises(ValueError, match="must be in words, with clusters from `clusters_in_w"):
        coreference.write_conll(path, [subtokens()])
    for text in ["a\tb", "", " a", "a ", "a\n"]:
        for document in [
            {"doc_key": "a", "sentences": [[text]]},
            {"doc_key": text, "sentences": [["a"]]},
        ]:
            with pytest.raises(ValueError, match=f"no tabs.* Received: {re.escape(repr(text))}"):
                coreference.write_conll(path, [document])
    document = {"doc_key": "a", "sentences": [["a b"]]}
    for writer in [coreference.write_conll, coreference.write_jsonlines]:
        with pytest.raises(ValueError, match="one list for each document. Received: 2 for 1"):
            writer(path, [document], [[], []])
        with pytest.raises(ValueError, match=r"documents\[0\]: a mention must end"):
            writer(path, [document], [[[[0, 1]]]])
    assert not path.exists()


def test_document_without_words_is_read_as_written(tmp_path):
    document = {"doc_key": "a_3", "part": "003", "sentences": [], "speakers": [], "clusters": []}
    coreference.write_conll(tmp_path / "a.conll", [document])
    assert coreference.read(tmp_path / "a.conll") == [document]


def test_the_whole_of_litbank_is_read_and_written(shared_data, tmp_path):
    paths = sorted((shared_data / "data" / "litbank" / "coref" / "conll").glob("*.conll"))
    documents = coreference.read(paths)
    assert len(documents) == 100
    sizes = [coreference.check_document(document) for document in documents]
    assert sum(sizes) == 210_532 and max(sizes) == 3_419
    assert sum(len(document["sentences"]) for document in documents) == 8_562
    clusters = [cluster for document in documents for cluster in document["clusters"]]
    assert len(clusters) == 7_927
    assert sum(map(len, clusters)) == 29_103
    assert sum(len(cluster) == 1 for cluster in clusters) == 5_763
    coreference.write_conll(tmp_path / "all.conll", documents)
    again = coreference.read(tmp_path / "all.conll")
    for document in [*documents, *again]:  # Of clusters that begin at one word any may be first.
        document["clusters"] = as_sets(document["clusters"])
    assert again == documents


def test_documents_of_the_reference_agree_with_each_other(shared_data):
    folder = shared_data / "reference" / "coref"
    words = coreference.read(folder / "gold.conll")
    for name in ["documents.jsonlines", "documents_overlap.jsonlines"]:
        documents = coreference.read(folder / name)
        lines = (folder / name).read_text(encoding="utf-8").splitlines()
        assert documents == list(map(json.loads, lines))
        for document, of_words in zip(documents, words, strict=True):
            assert document["doc_key"] == of_words["doc_key"]
            found = coreference.clusters_in_words(document)
            assert as_sets(found) == as_sets(of_words["clusters"])


@pytest.mark.parametrize("variant", ["independent", "overlap"])
def test_predictions_are_written_as_by_the_released_code(shared_data, tmp_path, variant):
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
        # All but the part of speech, which documents do not have.
        return [[*row[:4], row[9], row[-1]] for row in rows]

    assert columns(path) == columns(released)
    theirs = coreference.read(released)
    assert theirs == coreference.read(path)
    for document, predicted in zip(theirs, clusters, strict=True):
        assert as_sets(document["clusters"]) == as_sets(predicted)


def gap_row(**changes):
    row = {
        "ID": "x-1",
        "Text": 'Ann met "Bo" and she sang.',
        "Pronoun": "she",
        "Pronoun-offset": "17",
        "A": "Ann",
        "A-offset": "0",
        "A-coref": "TRUE",
        "B": "Bo",
        "B-offset": "9",
        "B-coref": "FALSE",
        "URL": "http://x",
        **changes,
    }
    return row


def write_gap(folder, *rows):
    lines = ["\t".join(gap_row()), *("\t".join(row.values()) for row in rows)]
    return write(folder, "\n".join(lines) + "\n", "a.tsv")


def test_gap_is_read_without_quoting(tmp_path):
    (example,) = gap.read(write_gap(tmp_path, gap_row()))
    assert example["text"] == 'Ann met "Bo" and she sang.'
    assert (example["pronoun_offset"], example["a_offset"], example["b_offset"]) == (17, 0, 9)
    assert example["a_coref"] is True and example["b_coref"] is False
    assert list(example)[-1] == "url"


@pytest.mark.parametrize(
    "row, error",
    [
        (gap_row(**{"A-offset": "1"}), "`a` must stand in the text at its offset.* 'Ann' at '1'"),
        (gap_row(**{"B-offset": "-3"}), "`b` must stand in the text at its offset"),
        (gap_row(**{"B-coref": "no"}), "`b_coref` must be TRUE or FALSE. Received: 'no'"),
        ({"a": "b"}, "must have 11 columns, between tabs. Received: 1"),
        (gap_row(), "an id may stand once. Received: 'x-1' again"),
    ],
)
def test_malformed_gap_names_path_line_and_rule(tmp_path, row, error):
    path = write_gap(tmp_path, gap_row(), row)
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}, line 3: .*{error}"):
        gap.read(path)


def test_gap_without_its_header_is_refused(tmp_path):
    with pytest.raises(ValueError, match="line 1: the header must be ID, Text, "):
        gap.read(write(tmp_path, "\t".join(gap_row().values()), "a.tsv"))


def test_the_whole_of_gap_is_read(shared_data):
    for name, size, neither in [("development", 2000, 201), ("validation", 454, 62)]:
        examples = gap.read(shared_data / "data" / "gap" / f"gap-{name}.tsv")
        assert len(examples) == size
        labels = [(example["a_coref"], example["b_coref"]) for example in examples]
        assert labels.count((False, False)) == neither and (True, True) not in labels


def test_clusters_say_whom_a_pronoun_refers_to(tmp_path):
    (example,) = gap.read(write_gap(tmp_path, gap_row()))

    def refers_to(*clusters):
        return gap.refers_to(
            example, [[{"start": s, "end": e} for s, e in cluster] for cluster in clusters]
        )

    assert refers_to([(0, 3), (17, 20)]) == (True, False)
    assert refers_to([(8, 12), (17, 20)]) == (False, True)  # With the quotes, which contain it.
    assert refers_to([(9, 10), (17, 20)], [(0, 3), (8, 12)]) == (False, True)  # A part of it.
    assert refers_to([(2, 5), (17, 20)]) == (False, False)  # Neither contains the other.
    assert refers_to([(0, 3), (17, 25)]) == (False, False)  # The pronoun is no mention.
    assert refers_to() == (False, False)
