"""One's own CSV, TSV and JSON lines."""

import csv
import gzip
import io
import json

import pytest

from keras_spanbert.data import columns

ENDINGS = ("csv", "tsv", "jsonl")


def write(folder, rows, ending, name="a"):
    """A file of dicts, or of text or bytes as they are."""
    path = folder / f"{name}.{ending}"
    if isinstance(rows, (str, bytes)):
        path.write_bytes(rows.encode() if isinstance(rows, str) else rows)
        return path
    if ending == "jsonl":
        lines = [json.dumps(row) for row in rows]
    elif ending == "tsv":
        lines = ["\t".join(rows[0]), *("\t".join(map(str, row.values())) for row in rows)]
    else:
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        lines = buffer.getvalue().rstrip("\n").split("\n")
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


# === Texts ===

TEXTS = [
    {"body": 'He said "no", then', "title": "", "folder": "spam", "number": "7"},
    {"body": "caf\u00e9 \u2028 ", "title": "b", "folder": "1", "number": "8"},
]


@pytest.mark.parametrize("ending", ENDINGS)
def test_texts_of_columns_that_arguments_name(tmp_path, ending):
    rows = TEXTS if ending != "jsonl" else [TEXTS[0], {**TEXTS[1], "folder": 1, "number": 8}]
    path = write(tmp_path, rows, ending)
    examples = columns.read_texts(path, text="body", text_pair="title", label="folder", id="number")
    assert examples == [
        {"id": "7", "text": 'He said "no", then', "text_pair": "", "label": "spam"},
        {"id": "8", "text": "caf\u00e9 \u2028 ", "text_pair": "b", "label": "1"},
    ]
    first, second = columns.read_texts(path, text="body", label="folder")
    assert first == {"id": "0", "text": 'He said "no", then', "text_pair": None, "label": "spam"}
    assert second["id"] == "1"


@pytest.mark.parametrize("ending", ENDINGS)
def test_gzip_byte_order_marks_line_ends_of_windows_and_empty_lines(tmp_path, ending):
    path = write(tmp_path, TEXTS, ending)
    plain = path.read_bytes()
    windows = b"\xef\xbb\xbf" + plain.replace(b"\n", b"\r\n\r\n")
    packed = write(tmp_path, gzip.compress(windows), f"{ending}.gz", "b")
    arguments = {"text": "body", "label": "folder"}
    assert columns.read_texts(packed, **arguments) == columns.read_texts(path, **arguments)
    assert len(columns.read_texts([path, packed], **arguments)) == 4


def test_quoting_is_that_of_the_ending_or_as_asked(tmp_path):
    text = 'text\tlabel\n"a\tb"\tc\n'
    with pytest.raises(ValueError, match="line 2: a row must have as many cells as the header, 2"):
        columns.read_texts(write(tmp_path, text, "tsv"))
    (example,) = columns.read_texts(write(tmp_path, text, "tsv"), quoted=True)
    assert example["text"] == "a\tb"
    (example,) = columns.read_texts(write(tmp_path, 'text,label\n"a,b\n', "csv"), quoted=False)
    assert (example["text"], example["label"]) == ('"a', "b")


@pytest.mark.parametrize("ending", ENDINGS)
def test_long_texts_are_read_whole(tmp_path, ending):
    text = "word " * 20_000 + "end"
    path = write(tmp_path, [{"text": text, "label": "a"}], ending)
    assert columns.read_texts(path)[0]["text"] == text


@pytest.mark.parametrize("ending", ENDINGS)
def test_labels_may_be_numbers_known_names_or_none(tmp_path, ending):
    path = write(tmp_path, [{"text": "a", "label": "2.5"}, {"text": "b", "label": "-1"}], ending)
    labels = [example["label"] for example in columns.read_texts(path, is_regression=True)]
    assert labels == [2.5, -1.0]
    with pytest.raises(ValueError, match="`label` must be one of 2.5. Received: '-1'"):
        columns.read_texts(path, labels=["2.5"])
    for rows in [[{"text": "a"}, {"text": "b"}], [{"text": "a", "label": ""}]]:
        path = write(tmp_path, rows, ending)
        examples = columns.read_texts(path, needs_labels=False)
        assert {example["label"] for example in examples} == {None}
        with pytest.raises(ValueError, match="no label in|or score on must have a `label`"):
            columns.read_texts(path)


@pytest.mark.parametrize(
    "ending, content, message",
    [
        (
            "csv",
            "sentence,label\na,b\n",
            "line 1: the columns must include text, label .*no text in",
        ),
        ("csv", "text,label,text\na,b,c\n", "line 1: a column may stand once. Received: 'text'"),
        ("csv", "text,label\na,b,c\n", "line 2: a row must have as many cells as the header, 2"),
        ("csv", "text,label\na\n", "line 2: a row must .*Received: 1"),
        ("csv", "text,label\n ,b\n", "line 2: `text` must be a text, not empty. Received: ' '"),
        ("csv", 'text,label\n"a\nb",c\n"a,b\n', "line 4: a row must be cells between ','"),
        ("csv", "text,label\n", "must hold examples. Received: none"),
        ("csv", "", "a table must have a header"),
        ("csv", b"text,label\na,b\ncaf\xe9,c\n", "line 3: text must be UTF-8. Received: "),
        ("csv", "text,label\na,b\n".encode("utf-16"), "line 1: .*`iconv -f UTF-16 -t UTF-8`"),
        ("csv.gz", gzip.compress(b"text,label\na,b\n")[:-9], "gzip file must be whole"),
        ("tsv", "text,label\na,b\n", "line 1: the columns must include text, label"),
        ("jsonl", '{"text": "a", "label": "b"}\n{"text": "a"}\n', "line 2: .*no label in"),
        ("jsonl", '{"text": 3, "label": "b"}\n', "line 1: `text` must be a text.*Received: 3"),
        ("jsonl", '{"text": "a", "label": [1]}\n', "line 1: `label` must be a string or integer"),
        ("jsonl", '{"text": "a", "label": true}\n', "line 1: `label` must be a string or integer"),
        ("jsonl", '{"text": "a\\ud800", "label": "b"}\n', "line 1: text must have no lone surrog"),
        ("jsonl", '["a", "b"]\n', "line 1: must be a JSON object"),
        ("jsonl", "{]\n", "line 1: must be JSON"),
        ("txt", "text,label\na,b\n", "A file must end in .csv, .tsv, .jsonl, .jsonlines"),
    ],
)
def test_error_names_the_line_and_the_rule(tmp_path, ending, content, message):
    path = write(tmp_path, content, ending)
    with pytest.raises(ValueError, match=message) as error:
        columns.read_texts(path)
    assert str(path) in str(error.value)


def test_numbers_and_ids_are_checked(tmp_path):
    path = write(tmp_path, "text,label\na,nan\n", "csv")
    with pytest.raises(
        ValueError, match="line 2: `label` must be a finite number. Received: 'nan'"
    ):
        columns.read_texts(path, is_regression=True)
    with pytest.raises(ValueError, match="an id may stand once. Received: 'a' again"):
        columns.read_texts([path, path], id="text")


# === Relations ===

RELATION = {
    "text": "Ann runs Acme.",
    "subject_start": 0,
    "subject_end": 3,
    "object_start": 9,
    "object_end": 13,
    "kind": "PERSON",
    "relation": "runs",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_spans_in_characters_become_spans_of_words(tmp_path, ending):
    path = write(tmp_path, [RELATION], ending)
    expected = {
        "id": "0",
        "token": ["Ann", "runs", "Acme", "."],
        "subj_start": 0,
        "subj_end": 0,
        "obj_start": 2,
        "obj_end": 2,
        "subj_type": "PERSON",
        "obj_type": None,
        "relation": "runs",
    }
    assert columns.read_relations(path, subject_type="kind") == [expected]
    turned = columns.read_relations(
        path,
        subject=("object_start", "object_end"),
        object=("subject_start", "subject_end"),
        needs_labels=False,
        relation="none",
    )
    assert (turned[0]["subj_start"], turned[0]["obj_start"]) == (2, 0)
    assert turned[0]["relation"] is None


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    "change, message",
    [
        ({"object_end": 15}, "the object must be characters of the text.*Received: 9, 15"),
        ({"subject_end": 0}, "the subject must be .*Received: 0, 0"),
        ({"subject_start": -1}, "subject_start` must be an integer|Received: -1, 3"),
        ({"object_start": "x"}, "`object_start` must be an integer.*Received: 'x'"),
        ({"text": ""}, "must be a text, not empty"),
        ({"relation": "owns"}, "`relation` must be one of runs. Received: 'owns'"),
        ({"relation": ""}, "or score on must have a `relation`"),
    ],
)
def test_error_in_a_relation_names_the_line(tmp_path, ending, change, message):
    path = write(tmp_path, [RELATION, {**RELATION, **change}], ending)
    with pytest.raises(ValueError, match=f"line {3 - (ending == 'jsonl')}: .*({message})"):
        columns.read_relations(path, relations=["runs"])


# === Choices ===


@pytest.mark.parametrize("ending", ENDINGS)
def test_choices_of_columns_may_be_of_any_number(tmp_path, ending):
    rows = [
        {"q": "Who?", "a": "Ann", "b": "Bob", "c": "Al", "right": "2", "about": "A tale."},
        {"q": "What?", "a": "x", "b": "y", "c": "", "right": "B", "about": "B tale."},
    ]
    path = write(tmp_path, rows, ending)
    arguments = {"question": "q", "choices": ["a", "b", "c"], "label": "right"}
    first, second = columns.read_choices(path, **arguments)
    choices = ["Ann", "Bob", "Al"]
    assert first == {"id": "0", "prompt": "Who?", "choices": choices, "label": 2}
    assert second == {"id": "1", "prompt": "What?", "choices": ["x", "y"], "label": 1}
    first, _ = columns.read_choices(path, context="about", **arguments)
    assert first["prompt"] == ("A tale.", "Who?")


def test_choices_of_a_list(tmp_path):
    rows = [{"question": "Who?", "options": ["a", "b"], "label": 1}]
    (example,) = columns.read_choices(write(tmp_path, rows, "jsonl"), choices="options")
    assert example["choices"] == ["a", "b"] and example["label"] == 1


@pytest.mark.parametrize(
    "change, message",
    [
        ({"choices": ["a"]}, "must be two choices or more. Received: 1"),
        ({"choices": ["a", ""]}, "a choice must not be empty"),
        ({"choices": "a b"}, "`choices` must be a list of strings, or one column of several"),
        ({"choices": 3}, "`choices` must be a list of strings. Received: 3"),
        ({"label": 2}, "number from 0, below 2. Received: 2"),
        ({"label": "Z"}, "a label must be a choice's letter, A to B. Received: 'Z'"),
        ({"label": "c"}, "must be a letter from A. Received: 'c'"),
        ({"label": 1.0}, "number from 0, or its letter from A. Received: 1.0"),
        ({"label": True}, "number from 0, or its letter from A. Received: True"),
        ({"label": None}, "or score on must have a label"),
        ({"question": " "}, "a question must not be empty"),
    ],
)
def test_error_in_choices_names_the_line(tmp_path, change, message):
    row = {"question": "Who?", "choices": ["a", "b"], "label": 0}
    path = write(tmp_path, [row, {**row, **change}], "jsonl")
    with pytest.raises(ValueError, match=f"line 2: .*{message}"):
        columns.read_choices(path, choices="choices")


# === Words ===


@pytest.mark.parametrize("ending", ENDINGS)
def test_words_and_tags_of_columns(tmp_path, ending):
    row = {"tokens": "Ann Lee sang", "ner": "I-x I-x O"}
    if ending == "jsonl":
        row = {name: value.split() for name, value in row.items()}
    path = write(tmp_path, [row], ending)
    expected = {"words": ["Ann", "Lee", "sang"], "tags": ["B-x", "I-x", "O"]}
    assert columns.read_words(path, words="tokens", tags="ner") == [expected]
    as_they_are = columns.read_words(path, words="tokens", tags="ner", entities=False)
    assert as_they_are[0]["tags"] == ["I-x", "I-x", "O"]
    without = columns.read_words(path, words="tokens", tags="none", needs_labels=False)
    assert without == [{**expected, "tags": None}]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"tags": ["O"]}, "must have a tag for each word. Received: 1 for 2 words"),
        ({"tags": ["O", "person"]}, "a tag must be O, or B-.*'person'"),
        ({"tags": ["O", "B-z"]}, "type of an entity must be one of x. Received: 'B-z'"),
        ({"tags": None}, "`tags` must be a list of strings. Received: None"),
        ({"words": []}, "`words` must have words"),
        ({"words": ["a", " "]}, "`words` must have words"),
        ({"words": ["a", 3]}, "`words` must be a list of strings"),
    ],
)
def test_error_in_words_names_the_line(tmp_path, change, message):
    row = {"words": ["a", "b"], "tags": ["O", "B-x"]}
    path = write(tmp_path, [row, {**row, **change}], "jsonl")
    with pytest.raises(ValueError, match=f"line 2: .*{message}"):
        columns.read_words(path, types=["x"])


# === Entities ===


def test_entities_of_texts(tmp_path):
    entity = {"start": 0, "end": 3, "label": "person", "score": 0.5}
    rows = [{"body": "Ann sang", "spans": [entity]}, {"body": "sang", "spans": []}]
    path = write(tmp_path, rows, "jsonl")
    assert columns.read_entities(path, text="body", entities="spans") == [
        {"id": "0", "text": "Ann sang", "entities": [entity], "place": f"{path}, line 1"},
        {"id": "1", "text": "sang", "entities": [], "place": f"{path}, line 2"},
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"entities": "person"},
        {"entities": [3]},
        {"entities": [{"start": 0, "end": 3}]},
        {"entities": [{"start": 0, "end": 9, "label": "x"}]},
        {"entities": [{"start": 3, "end": 3, "label": "x"}]},
        {"entities": [{"start": "0", "end": 3, "label": "x"}]},
    ],
)
def test_error_in_entities_names_the_line(tmp_path, change):
    row = {"text": "Ann sang", "entities": [{"start": 0, "end": 3, "label": "x"}]}
    path = write(tmp_path, [row, {**row, **change}], "jsonl")
    rule = "line 2: `entities` must be a list of {start, end, label}, in characters of the text"
    with pytest.raises(ValueError, match=f"{rule}, which has 8. Received: "):
        columns.read_entities(path)


@pytest.mark.parametrize(
    "start, end, label, rule",
    [
        (2, 5, "x", "not overlap another one"),
        (3, 4, "x", "not be blank"),
        (4, 8, "y", "have a label of x"),
    ],
)
def test_entities_that_do_not_go_together_are_told(tmp_path, start, end, label, rule):
    entities = [{"start": start, "end": end, "label": label}, {"start": 0, "end": 3, "label": "x"}]
    path = write(tmp_path, [{"text": "Ann sang", "entities": entities}], "jsonl")
    with pytest.raises(ValueError, match=f"line 1: an entity must {rule}. Received: "):
        columns.read_entities(path, types=["x"])
