"""Coreference files of other systems: read if their content is certain, else refused by name."""

import pytest
from data_files import to_sets, write, write_lines

from keras_spanbert.data import coreference

WORDS = ["Ida", "Berg", "left", ".", "She", "sang"]
CLUSTERS = [[[0, 1], [4, 4]]]
CELLS = ["(0", "0)", "-", "-", "(0)", "-"]
HEADER = "# global.Entity = eid-etype-head-other\n"


def conll(*lines, name="(d1); part 000"):
    return "\n".join([f"#begin document {name}", *lines, "", "#end document", ""])


def wide(end="", separator="\t", cells=CELLS):
    """Returns lines with CoNLL-2012's 12 columns, each with `end` after its last cell."""
    rows = [["d1", "0", str(i), word, *"_____-*"] for i, word in enumerate(WORDS)]
    return [separator.join([*row, cell]) + end for row, cell in zip(rows, cells)]


def conllu(*words, comments="# newdoc id = d1\n" + HEADER):
    """Returns CoNLL-U of `(number, word, Entity)`, where `None` ends a sentence."""
    rows = []
    for row in [*words, None]:
        if row is None:
            rows.append("")
        else:
            number, word, entity = row
            misc = f"SpaceAfter=No|Entity={entity}|Bridge=e1<e2" if entity else "_"
            rows.append("\t".join([number, word, *["_"] * 7, misc]))
    return comments + "\n".join(rows) + "\n"


# === CoNLL-2012 ===
@pytest.mark.parametrize("end", ["\t", "\t\t", " ", "  ", " \t ", "\t \t"])
@pytest.mark.parametrize("separator", ["\t", "   "])
def test_blanks_at_line_ends_do_not_change_clusters(tmp_path, end, separator):
    expected = coreference.read(write(tmp_path / "a.conll", conll(*wide())))
    text = conll(*wide(end, separator))
    assert coreference.read(write(tmp_path / "b.conll", text)) == expected
    assert expected[0]["clusters"] == CLUSTERS


def test_a_malformed_cell_before_a_tab_is_not_lost(tmp_path):
    path = tmp_path / "a.conll"
    for cells in [["(1)|", *"-----"], ["(e1)", *"-----"], ["(1)", "x", *"----"]]:
        with pytest.raises(ValueError, match="line [23]: the last column must be"):
            coreference.read(write(path, conll(*wide("\t", cells=cells))))


def test_missing_columns_are_refused(tmp_path):
    path = tmp_path / "a.conll"
    for lines in [["d1 0 Ida (0)"], [line + "\t*" for line in wide()]]:
        write(path, conll(*lines))
        with pytest.raises(ValueError, match=f"{path}, line 2: (a line|the last column) must"):
            coreference.read(path)


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


@pytest.mark.parametrize(
    "text, line, error",
    [
        (conllu(("1", "a", "(e1-x"), None, ("1", "b", "e1)")), 4, r"must close.* Received: '\(e1'"),
        (conllu(("1", "a", "e1)")), 3, r"must open before it closes. Received: 'e1\)'"),
        (conllu(("1", "a", "e1")), 3, "`Entity` must be brackets.* Received: 'e1'"),
        (conllu(("1", "a", "(e1)"), comments="# newdoc\n"), 2, "`# global.Entity` must name eid"),
        (conllu(("x", "a", None)), 3, "the 10 columns of CoNLL-U"),
        (HEADER + "1\ta\t_\n", 2, "the 10 columns of CoNLL-U"),
        (conllu(("1", "a", "(x)"), comments="# global.Entity = etype-eid\n"), 2, "its cluster"),
    ],
)
def test_invalid_corefud_names_path_and_line(tmp_path, text, line, error):
    path = write(tmp_path / "a.conllu", text)
    with pytest.raises(ValueError, match=f"^{path}, line {line}: .*{error}"):
        coreference.read(path)


def test_conllu_without_coreference_is_refused(tmp_path):
    text = conllu(("1", "Ida", None), comments="# sent_id = 1\n# text = Ida\n")
    for name in ["a.conllu", "a.conll"]:
        with pytest.raises(ValueError, match="CoNLL-U must be CorefUD's, 1.0 or later"):
            coreference.read(write(tmp_path / name, text))


# === JSON ===
PRECO = {
    "id": "dev_1",
    "sentences": [WORDS[:4], WORDS[4:]],
    "mention_clusters": [[[0, 0, 2], [1, 0, 1]], [[1, 1, 2]]],
}
WL_COREF = {
    "document_id": "nw/a",
    "part_id": 3,
    "cased_words": WORDS,
    "sent_id": [0, 0, 0, 0, 1, 1],
    "speaker": [*"aaaabb"],
    "head2span": [[1, 0, 2]],
    "word_clusters": [[1, 4]],
    "span_clusters": [[[0, 2], [4, 5]]],
}
FASTCOREF = {"text": "Ida left. She sang.", "clusters": [[[0, 3], [10, 13]]]}


def test_preco(tmp_path):
    (document,) = coreference.read(write_lines(tmp_path / "a.jsonl", [PRECO]))
    assert document == {
        "doc_key": "dev_1",
        "sentences": PRECO["sentences"],
        "speakers": [["-"] * 4, ["-"] * 2],
        "clusters": [[[0, 1], [4, 4]], [[5, 5]]],
    }


def test_wl_coref(tmp_path):
    without = {key: value for key, value in WL_COREF.items() if key != "span_clusters"}
    rows = [WL_COREF, {**without, "clusters": WL_COREF["span_clusters"]}, without]
    first, second, third = coreference.read(write_lines(tmp_path / "a.jsonlines", rows))
    assert first == second == {**third, "clusters": CLUSTERS}
    assert third == {
        "doc_key": "nw/a_3",
        "sentences": [WORDS[:4], WORDS[4:]],
        "speakers": [[*"aaaa"], [*"bb"]],
    }
    coreference.write_conll(tmp_path / "a.conll", [first])
    assert "(nw/a); part 003" in (tmp_path / "a.conll").read_text()
    (again,) = coreference.read(tmp_path / "a.conll")
    assert again["doc_key"] == "nw/a_3" and again["clusters"] == CLUSTERS
    row = {name: WL_COREF[name] for name in ["document_id", "cased_words", "sent_id"]}
    (document,) = coreference.read(write_lines(tmp_path / "b.jsonlines", [row]))
    assert document["doc_key"] == "nw/a" and document["speakers"] == [["-"] * 4, ["-"] * 2]


@pytest.mark.parametrize(
    "row, error",
    [
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
    path = write_lines(tmp_path / "a.jsonl", [PRECO, row])
    with pytest.raises(ValueError, match=f"^{path}, line 2.*{error}"):
        coreference.read(path)


def test_a_speaker_for_each_sentence(tmp_path):
    document = {"doc_key": "nw", "sentences": [["Hi", "!"], ["Ho"]], "speakers": ["a", "b"]}
    (found,) = coreference.read(write_lines(tmp_path / "a.jsonl", [document]))
    assert found == {**document, "speakers": [["a", "a"], ["b"]]}
    for wrong in [{"speakers": ["a"]}, {"sentence_map": [0, 0, 1]}]:
        with pytest.raises(ValueError, match="`speakers` must be lists of strings"):
            coreference.read(write_lines(tmp_path / "a.jsonl", [document | wrong]))


def test_own_keys_of_documents_are_kept(tmp_path):
    document = {
        "doc_key": "nw", "sentences": [["Hi"]], "clusters": [], "text": "Hi", "mention_clusters": 1
    }  # fmt: skip
    assert coreference.read(write_lines(tmp_path / "a.jsonl", [document])) == [document]
