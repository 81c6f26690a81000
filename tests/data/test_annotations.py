"""Exports of annotation tools: entities and relations."""

import pytest
from data_files import write, write_lines

from keras_spanbert.data import columns

TEXT = "Ann Lee runs Acme in Oslo."
ANN, ACME, OSLO = [(0, 7, "PER"), (13, 17, "ORG"), (21, 25, "LOC")]
SPANS = [ANN, ACME, OSLO]
# Subject, object, relation and types.
LINKS = [("Ann Lee", "Acme", "runs", "PER", "ORG"), ("Acme", "Oslo", "in", "ORG", "LOC")]


def region(number, span, **value):
    value = {"start": span[0], "end": span[1], "labels": [span[2]], **value}
    return {"id": f"r{number}", "type": "labels", "from_name": "l", "to_name": "t", "value": value}


def link(start, end, label, **more):
    link = {"from_id": f"r{start}", "to_id": f"r{end}", "type": "relation", "direction": "right"}
    return {**link, "labels": [label], **more}


REGIONS = [region(i, span) for i, span in enumerate(SPANS)]
RESULT = [link(0, 1, "runs"), *REGIONS, link(2, 1, "in", direction="left")]


def task(*results, data=None, **annotation):
    """Returns a task of Label Studio with an annotation for each of the results."""
    annotations = [{"id": 1, "was_cancelled": False, "result": r, **annotation} for r in results]
    return {"id": 7, "data": data or {"text": TEXT}, "annotations": annotations, "predictions": [1]}


OFFSETS = [
    {"start_offset": start, "end_offset": end, "label": label, "id": i}
    for i, (start, end, label) in enumerate(SPANS)
]
FROM_TO = [
    {"id": 9, "from_id": 0, "to_id": 1, "type": "runs"},
    {"from_id": 1, "to_id": 2, "type": "in"},
]
WORDS = [(0, 3), (4, 7), (8, 12), (13, 17), (18, 20), (21, 25)]
TOKENS = [{"start": i, "end": j, "id": n, "text": TEXT[i:j]} for n, (i, j) in enumerate(WORDS)]
PRODIGY = {
    "text": TEXT, "_input_hash": 3, "tokens": TOKENS, "answer": "accept",
    "spans": [
        {"start": i, "end": j, "label": label, "token_start": first, "token_end": last}
        for (i, j, label), (first, last) in zip(SPANS, [(0, 1), (3, 3), (5, 5)])
    ],
}  # fmt: skip
HEADS = [{"head": 1, "child": 3, "label": "runs"}, {"head": 3, "child": 5, "label": "in"}]
WITH_SPANS = [{**HEADS[0], "head_span": PRODIGY["spans"][0]}, HEADS[1]]
# Each row has the three spans, and the second of a pair the two links.
ROWS = [
    ({"id": 1, "text": TEXT, "label": SPANS}, None),
    ({"id": 1, "data": TEXT, "label": SPANS}, None),
    ({"id": 1, "text": TEXT, "labels": SPANS}, None),
    ({"text": TEXT, "entities": SPANS}, None),
    ([TEXT, {"entities": SPANS}], None),
    ({"text": TEXT, "entities": OFFSETS}, {"relations": FROM_TO}),
    (task(REGIONS), task(RESULT)),
    (task(REGIONS, data={"body": TEXT, "n": 3}), task(RESULT, data={"body": TEXT})),
    ({"text": TEXT, "label": [r["value"] for r in REGIONS], "annotation_id": 3}, None),
    (PRODIGY, {"relations": HEADS}),
    (PRODIGY, {"relations": WITH_SPANS}),
]


@pytest.mark.parametrize("row, linked", ROWS)
def test_entities_and_relations(tmp_path, row, linked):
    path = write_lines(tmp_path / "a.jsonl", [row, row])
    first, second = columns.read_entities(path)
    assert (first["id"], second["id"], first["text"]) == ("0", "1", TEXT)
    assert [(e["start"], e["end"], e["label"]) for e in first["entities"]] == SPANS
    if linked:
        examples = columns.read_relations(write_lines(path, [row | linked]), id=None)
        found = [
            (" ".join(e["token"][e["subj_start"] : e["subj_end"] + 1]),
             " ".join(e["token"][e["obj_start"] : e["obj_end"] + 1]),
             e["relation"], e["subj_type"], e["obj_type"])
            for e in examples
        ]  # fmt: skip
        assert found == LINKS


def test_files_of_label_studio_and_spacy(tmp_path):
    ner_annotator = {"classes": ["PER"], "annotations": [[TEXT, {"entities": SPANS}], None]}
    (example,) = columns.read_entities(write(tmp_path / "b.json", ner_annotator))
    assert [(e["start"], e["end"], e["label"]) for e in example["entities"]] == SPANS
    path = write(tmp_path / "a.json", [task(RESULT)])
    (example,) = columns.read_entities(path, id="id")
    assert example["id"] == "7" and len(example["entities"]) == 3
    assert [e["id"] for e in columns.read_relations(path, id="id")] == ["7-0", "7-1"]
    spacy = pytest.importorskip("spacy", reason="spaCy is not installed (extra [spacy])")
    nlp = spacy.blank("en")
    docs = [nlp(TEXT), nlp("Bob"), nlp("Bob")]
    docs[0].ents = [docs[0].char_span(*span) for span in SPANS]
    docs[2].ents = []
    spacy.tokens.DocBin(docs=docs).to_disk(tmp_path / "a.spacy")
    example, other = columns.read_entities(tmp_path / "a.spacy")
    assert other["entities"] == []
    assert [tuple(span.values()) for span in example["entities"]] == SPANS
    assert example["place"].endswith("a.spacy, document 0")


def test_rejected_texts_are_left_out(tmp_path, caplog):
    nothing = task([], was_cancelled=True) | {"id": 8}
    rows = [
        PRODIGY | {"answer": "reject"}, PRODIGY | {"answer": "ignore"}, nothing, task(), PRODIGY,
    ]  # fmt: skip
    assert len(columns.read_entities(write_lines(tmp_path / "a.jsonl", rows))) == 1
    assert "Left out 4 texts without an accepted annotation" in caplog.text
    assert "The first is" in caplog.text and "a.jsonl, line 1" in caplog.text
    # Texts in which nothing was marked are kept.
    none = {name: PRODIGY[name] for name in ["text", "_input_hash", "tokens", "answer"]}
    rows = [none, {"text": TEXT, "annotation_id": 4}, {"text": TEXT, "label": []}, task([])]
    examples = columns.read_entities(write_lines(tmp_path / "a.jsonl", rows))
    assert [example["entities"] for example in examples] == [[]] * 4
    # One annotation of several may be the right one.
    both = task(REGIONS, [])
    both["annotations"][0]["ground_truth"] = True
    (example,) = columns.read_entities(write_lines(tmp_path / "a.jsonl", [both]))
    assert len(example["entities"]) == 3


def test_both_directions_of_a_relation(tmp_path):
    row = task([*REGIONS, link(0, 1, "x", direction="bi")])
    examples = columns.read_relations(write_lines(tmp_path / "a.jsonl", [row]))
    assert [e["subj_type"] for e in examples] == ["PER", "ORG"]


EMOJI = "\U0001f600 Ann left"


@pytest.mark.parametrize(
    "row, start",
    [
        (task([region(0, (3, 6, "x"), text="Ann")], data={"text": EMOJI}), 2),
        (task([region(0, (2, 5, "x"), text="Ann")], data={"text": EMOJI}), 2),
        ({"text": EMOJI, "entities": [[2, 5, "x"]]}, 2),
        ({"text": "Ann \U0001f600", "label": [[0, 3, "x"]]}, 0),
        ({"text": EMOJI, "label": [[3, 6, "x"]]}, "after an emoji are not certain.*: .3, 6"),
        (task([region(0, (3, 6, "x"))], data={"text": EMOJI}), "after an emoji are not certain"),
        (task([region(0, (0, 3, "x"), text="Bob")]), "the text at 0 to 3 must be 'Bob'. .*'Ann'"),
    ],
)
def test_positions_that_count_an_emoji_as_two(tmp_path, row, start):
    path = write_lines(tmp_path / "a.jsonl", [row])
    if isinstance(start, str):
        with pytest.raises(ValueError, match=f"{path}, line 1: .*{start}"):
            columns.read_entities(path)
    else:
        (example,) = columns.read_entities(path)
        assert example["entities"][0]["start"] == start


@pytest.mark.parametrize(
    "read, row, message",
    [
        (columns.read_entities, task(REGIONS, []), "one annotation .*ground truth.*2 annot"),
        (columns.read_entities, task([region(0, ANN, labels=["A", "B"])]), "with one label"),
        (columns.read_entities, task([region(0, ANN) | {"type": "hypertextlabels"}]), "plain text"),
        (columns.read_entities, task([], data={"a": "b", "c": "d"}), "`data` must have `text`, or"),
        (columns.read_entities, {"text": TEXT, "label": ["PER"]}, "must be {start, end, label}"),
        (columns.read_entities, {"text": TEXT, "label": "PER"}, "the columns must include"),
        (columns.read_relations, task([*REGIONS, link(0, 5, "x")]), "must link two spans"),
        (columns.read_relations, task([*REGIONS, link(0, 1, "x", labels=["a", "b"])]), "one label"),
        (columns.read_relations, task([*REGIONS, link(0, 1, "x", labels=[])]), "not be empty"),
        (columns.read_relations, task(REGIONS), "must contain examples"),
        (columns.read_relations, PRODIGY | {"relations": [{"head": 9}]}, "must link two spans"),
    ],
)
def test_uncertain_annotations_are_refused(tmp_path, read, row, message):
    path = write_lines(tmp_path / "a.jsonl", [row])
    with pytest.raises(ValueError, match=f"{path}.*{message}"):
        read(path)
