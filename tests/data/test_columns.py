"""User data in CSV, TSV and JSON lines."""

import functools
import gzip

import data_files
import pytest

from keras_spanbert.data import columns

each_ending = pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])


def write(folder, rows, ending, name="a"):
    """Writes a file from dicts, text or bytes."""
    path = folder / f"{name}.{ending}"
    if isinstance(rows, (str, bytes)):
        return data_files.write(path, rows)
    if ending == "jsonl":
        return data_files.write_lines(path, rows)
    table = [rows[0], *(map(str, row.values()) for row in rows)]
    if ending == "csv":
        table = [['"' + cell.replace('"', '""') + '"' for cell in row] for row in table]
    separator = {"csv": ",", "tsv": "\t"}[ending]
    return data_files.write(path, "".join(separator.join(row) + "\n" for row in table))


RELATION = {
    "text": "Ann runs Acme.", "subject_start": 0, "subject_end": 3, "object_start": 9,
    "object_end": 13, "kind": "PERSON", "relation": "runs",
}  # fmt: skip


TEXTS = [
    {"body": 'He said "no", then', "title": "", "folder": "spam", "number": "7"},
    {"body": "caf\u00e9 \u2028 ", "title": "b", "folder": "1", "number": "8"},
]


@each_ending
def test_texts_from_named_columns(tmp_path, ending):
    rows = TEXTS if ending != "jsonl" else [TEXTS[0], {**TEXTS[1], "folder": 1, "number": 8}]
    path = write(tmp_path, rows, ending)
    examples = columns.read_texts(path, text="body", text_pair="title", label="folder", id="number")
    assert examples == [
        {"id": "7", "text": 'He said "no", then', "text_pair": "", "label": "spam"},
        {"id": "8", "text": "caf\u00e9 \u2028 ", "text_pair": "b", "label": "1"},
    ]
    # Empty lines are skipped, and rows are numbered over all files.
    packed = gzip.compress(path.read_bytes().replace(b"\n", b"\n\n"))
    packed = write(tmp_path, packed, f"{ending}.gz", "b")
    first, *_, last = columns.read_texts([path, packed], text="body", label="folder")
    assert first == {"id": "0", "text": 'He said "no", then', "text_pair": None, "label": "spam"}
    assert last == {"id": "3", "text": "caf\u00e9 \u2028 ", "text_pair": None, "label": "1"}


PANDAS = (
    'text\tlabel\tnote\nplain\ta\t"n"\n"He said ""hi"" to me."\ta\t\n\'tis 5"\tb\t\n'
    '"a\tb\r\nc"\t"b"\t\n'
)


def test_quoted_tsv(tmp_path, caplog):
    path = write(tmp_path, PANDAS, "tsv")
    texts = ["plain", 'He said "hi" to me.', "'tis 5\"", "a\tb\r\nc"]
    assert [example["text"] for example in columns.read_texts(path, quoted=True)] == texts
    assert not caplog.records
    # Without the argument, the first quoted cell of the columns is named once.
    rows = PANDAS.splitlines(keepends=True)[:4]
    path = write(tmp_path, "".join([*rows, rows[2]]), "TSV")
    found = [example["text"] for example in columns.read_texts([path, path])]
    assert found[1] == found[3] == '"He said ""hi"" to me."' and len(found) == 8
    (record,) = caplog.records
    assert f'{path}, line 3: the quotes of "He said' in record.getMessage()
    assert "quoted=True (--quoted_tsv)" in record.getMessage()
    caplog.clear()
    columns.read_texts(path, quoted=False)
    columns.read_texts(write(tmp_path, 'text\tlabel\n"no" or "yes"\ta\n"\tb\n', "tsv"))
    columns.read_texts(write(tmp_path, PANDAS.replace("\t", ","), "csv"))
    columns.read_texts(write(tmp_path, [{"text": '"a"', "label": '"b"'}], "jsonl"))
    assert not caplog.records
    # Errors that quotes can explain name the argument too.
    for table in [PANDAS, '"text"\t"label"\n"a"\t"b"\n']:
        with pytest.raises(ValueError, match=r"quoted its cells, use quoted=True \(--quoted_tsv"):
            columns.read_texts(write(tmp_path, table, "tsv"))


LONG = "word " * 40_000 + "end"


@pytest.mark.parametrize(
    "ending, content, quoted, text, label",
    [
        ("tsv", 'text\tlabel\n"a\tb"\tc\n', True, "a\tb", "c"),
        ("csv", 'text,label\n"a,b\n', False, '"a', "b"),
        # Line ends in quoted cells are kept, and blanks around names of columns removed.
        ("csv", 'text,label\r\n"a\r\nb\rc\nd\n",x\r\n', None, "a\r\nb\rc\nd\n", "x"),
        ("csv", "text, label\na,b\n", None, "a", "b"),
        ("csv", f"text,label\n{LONG},a\n", None, LONG, "a"),
    ],
    ids=str.split("tab delimiter line_ends names long"),
)
def test_cells(tmp_path, ending, content, quoted, text, label):
    (example,) = columns.read_texts(write(tmp_path, content, ending), quoted=quoted)
    assert (example["text"], example["label"]) == (text, label)


@each_ending
def test_labels_may_be_numbers_or_missing(tmp_path, ending):
    path = write(tmp_path, [{"text": "a", "label": "2.5"}, {"text": "b", "label": "-1"}], ending)
    labels = [example["label"] for example in columns.read_texts(path, is_regression=True)]
    assert labels == [2.5, -1.0]
    with pytest.raises(ValueError, match="`label` must be one of 2.5. Received: '-1'"):
        columns.read_texts(path, labels=["2.5"])
    for row, message in [
        ({"text": "a"}, "no label in"),
        ({"text": "a", "label": ""}, "`label` must not be empty, because training"),
    ]:
        path = write(tmp_path, [row], ending)
        (example,) = columns.read_texts(path, needs_labels=False)
        assert example["label"] is None
        with pytest.raises(ValueError, match=message):
            columns.read_texts(path)


SNLI = [
    {"text": "a", "label": "neutral"},
    {"text": "b", "label": " -"},
    {"text": "c", "label": "entailment"},
    {"text": "d", "label": "-"},
]


@each_ending
def test_rows_with_a_label_to_skip_are_left_out(tmp_path, caplog, ending):
    path, labels = write(tmp_path, SNLI, ending), ["neutral", "entailment"]
    with pytest.raises(ValueError, match="one of neutral, entailment .*--skip_label=-.*: '-'"):
        columns.read_texts(path, labels=labels)
    # A minus is a label of other data.
    assert [row["label"] for row in columns.read_texts(path)][1::2] == ["-", "-"]
    examples = columns.read_texts([path, path], labels=labels, skip_label="-")
    assert [example["text"] for example in examples] == ["a", "c"] * 2
    assert [example["id"] for example in examples] == ["0", "2", "4", "6"]
    line = 2 if ending == "jsonl" else 3
    assert f"Left out 4 rows with the label -. The first is {path}, line {line}" in caplog.text
    # Texts to predict are kept.
    examples = columns.read_texts(path, needs_labels=False, skip_label="-")
    assert [example["label"] for example in examples] == ["neutral", None, "entailment", None]


def test_other_labels_to_skip(tmp_path):
    path = write(tmp_path, [{"text": "a", "label": -1}, {"text": "b", "label": 2}], "jsonl")
    for is_regression, label in [(False, "2"), (True, 2.0)]:
        (example,) = columns.read_texts(path, skip_label="-1", is_regression=is_regression)
        assert example["label"] == label
    with pytest.raises(ValueError, match="must contain examples"):
        columns.read_texts(write(tmp_path, [SNLI[1]], "csv"), skip_label="-")


@each_ending
def test_rows_with_several_labels(tmp_path, ending):
    labels = [["b", "a"], [], ["1"]]
    cells = [["b", "a"], [], [1]] if ending == "jsonl" else ["b|a", "", "1"]
    path = write(tmp_path, [{"text": "x", "label": cell} for cell in cells], ending)
    examples = columns.read_texts(path, label_separator="|")
    assert [example["label"] for example in examples] == labels
    with pytest.raises(ValueError, match="line [12]: `label` must be one of b, 1. Received: 'a'"):
        columns.read_texts(path, label_separator="|", labels=["b", "1"])
    without = write(tmp_path, [{"text": "x"}], ending, "b")
    (example,) = columns.read_texts(without, label_separator="|", needs_labels=False)
    assert example["label"] is None


@each_ending
def test_character_spans_become_word_spans(tmp_path, ending):
    path = write(tmp_path, [RELATION], ending)
    expected = {
        "id": "0", "token": ["Ann", "runs", "Acme", "."], "subj_start": 0, "subj_end": 0,
        "obj_start": 2, "obj_end": 2, "subj_type": "PERSON", "obj_type": None, "relation": "runs",
    }  # fmt: skip
    assert columns.read_relations(path, subject_type="kind") == [expected]
    (turned,) = columns.read_relations(
        path, subject=("object_start", "object_end"), object=("subject_start", "subject_end"),
        needs_labels=False, relation="none",
    )  # fmt: skip
    assert (turned["subj_start"], turned["obj_start"], turned["relation"]) == (2, 0, None)


# Lists, tuples, sets and arrays as Python prints them, and lists as JSON and R write them.
PRINTED = [
    "['NOUN', 'VERB']", '["NOUN", "VERB"]', "['NOUN' 'VERB']", "['NOUN'\n 'VERB']",
    "('NOUN', 'VERB')", "('NOUN',)", "{'NOUN', 'VERB'}", "[]", "()",
    "[np.str_('NOUN'), np.str_('VERB')]",
    "['NOUN', None]", 'c("NOUN", "VERB")', "[['NOUN'], ['VERB']]",
    '["it\'s", \'a "b"\']',
]  # fmt: skip


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
@pytest.mark.parametrize("cell", PRINTED)
def test_lists_printed_as_text_are_refused(tmp_path, ending, cell):
    advice = "must not be a list printed as text. Lists need a .jsonl file.*Received: "
    for kind, name in [
        ("words", "words"), ("words", "tags"), ("tags", "tags"), ("texts", "label"),
        ("several", "label"), ("relations", "relation"), ("choices", "choices"),
    ]:  # fmt: skip
        row, read = READERS[kind]
        path = write(tmp_path, [{**row, "words": "Ann left", "tags": "O O", name: cell}], ending)
        with pytest.raises(ValueError, match=f"{path}, line [12]: `{name}` {advice}"):
            read(path)


@pytest.mark.parametrize("cell", ["[NOUN, VERB]", "[0, 7]", "[0 7]", "[ 0 12]", "[3]", "[a,b]"])
def test_lists_of_numbers_and_names_are_no_tags(tmp_path, cell):
    path = write(tmp_path, [{"words": "Ann left", "tags": cell}], "csv")
    with pytest.raises(ValueError, match="`tags` must not be a list printed as text"):
        columns.read_words(path, entities=False)
    path = write(tmp_path, [{"text": "a", "label": cell}], "csv")
    with pytest.raises(ValueError, match="`label` must not be a list printed as text"):
        columns.read_texts(path, label_separator="|")
    assert columns.read_texts(path)[0]["label"] == cell  # One class, such as an interval.


@pytest.mark.parametrize(
    "cell",
    ["[ Applause ]", "[...]", '("Yes")', "( '' )", '[ " x " ]', "[ 'a' , 'b' ]", "[1]", "f(x)"],
)
def test_brackets_in_words_are_no_lists(tmp_path, cell):
    path = write(tmp_path, [{"words": cell, "label": cell, "text": "a"}], "csv")
    (example,) = columns.read_words(path, needs_labels=False)
    assert example["words"] == cell.split()
    assert columns.read_texts(path)[0]["label"] == cell


@each_ending
def test_choices_from_any_number_of_columns(tmp_path, ending):
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
    path = write(tmp_path, [rows[0], {**rows[1], "b": " ", "c": "z"}], ending)
    with pytest.raises(ValueError, match="line [23]: a choice must not be empty. .*'x', ' ', 'z'"):
        columns.read_choices(path, **arguments)


@each_ending
def test_words_and_tags_from_columns(tmp_path, ending):
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


def test_entities_in_texts(tmp_path):
    entity = {"start": 0, "end": 3, "label": "person", "score": 0.5}
    rows = [{"body": "Ann sang", "spans": [entity]}, {"body": "sang", "spans": []}]
    path = write(tmp_path, rows, "jsonl")
    assert columns.read_entities(path, text="body", entities="spans") == [
        {"id": "0", "text": "Ann sang", "entities": [entity], "place": f"{path}, line 1"},
        {"id": "1", "text": "sang", "entities": [], "place": f"{path}, line 2"},
    ]


TAGS = {"words": ["a", "b"], "tags": ["NN", "NN"]}
ENTITY = {"start": 0, "end": 3, "label": "x"}
QUESTION = {"question": "Who?", "choices": ["a", "b"], "label": 0}
partial = functools.partial
# A right row of each kind, and the function that reads it.
READERS = {
    "texts": ({"text": "a", "label": "x"}, columns.read_texts),
    "several": ({"text": "a", "label": "x"}, partial(columns.read_texts, label_separator=", ")),
    "relations": (RELATION,
     partial(columns.read_relations, subject_type="kind", relations=["runs"])),
    "choices": (QUESTION, partial(columns.read_choices, choices="choices")),
    "words": ({"words": ["a", "b"], "tags": ["O", "B-x"]},
     partial(columns.read_words, types=["x"])),
    "tags": (TAGS, partial(columns.read_words, types=["NN"], entities=False)),
    "entities": ({"text": "Ann sang", "entities": [ENTITY]},
     partial(columns.read_entities, types=["x"])),
}  # fmt: skip


@pytest.mark.parametrize(
    "kind, changes, expected",
    [
        ("texts", {"label": "\u00a0x "}, {"label": "x"}),
        ("several", {"label": "b , a"}, {"label": ["b", "a"]}),
        ("relations", {"kind": " P", "relation": "runs "}, {"subj_type": "P", "relation": "runs"}),
        ("choices", {"label": "B "}, {"label": 1}),
        ("words", {"tags": ["B-x", "I-x "]}, {"tags": ["B-x", "I-x"]}),
        ("tags", {"tags": ["NN", " NN "]}, {"tags": ["NN", "NN"]}),
        ("entities", {"entities": [{**ENTITY, "label": " x"}]}, {"entities": [ENTITY]}),
    ],
)
def test_blanks_around_labels_are_removed(tmp_path, kind, changes, expected):
    row, read = READERS[kind]
    (example,) = read(write(tmp_path, [{**row, **changes}], "jsonl"))
    assert {name: example[name] for name in expected} == expected


def changed(**values):
    return {"entities": [{**ENTITY, **values}]}


@pytest.mark.parametrize(
    "kind, changes, message",
    [
        ("texts", {"text": 3}, "`text` must be a non-empty text.*Received: 3"),
        ("texts", {"label": True}, "`label` must be a string or integer"),
        ("texts", {"label": ["a"]}, "several per row need `label_sep"),
        ("several", {"label": 3}, "`label` must be a list of labels, or labels with"),
        ("several", {"label": "a, , b"}, "`label` must be a list of labels, or .*'a, , b'"),
        ("relations", {"object_start": "x"}, r"`object_end` must be integers.* \['x', 13\]"),
        ("relations", {"relation": "owns"}, "`relation` must be one of runs. Received: 'owns'"),
        ("relations", {"relation": ""}, "`relation` must not be empty, because"),
        ("choices", {"choices": "a b"}, "must be a list of strings; for one column per choice"),
        ("choices", {"choices": 3}, "`choices` must be a list of strings. Received: 3"),
        ("choices", {"label": 2}, "number from 0, below 2, or letter, A to B. Received: 2"),
        ("words", {"tags": ["O"]}, r"must have a tag for each of the 2 words. Received: \['O'\]"),
        ("words", {"tags": ["O", "B-z"]}, "type of an entity must be one of x. Received: 'B-z'"),
        ("words", {"words": []}, "`words` must have words"),
        ("words", {"words": ["a", 3]}, "`words` must be a list of strings"),
        ("tags", {"tags": ["NN", "DT"]}, "a tag must be one of NN. Received: 'DT'"),
        ("entities", {"entities": str([ENTITY])}, "`entities` must be .*only .jsonl files can"),
        ("entities", changed(end=9), "an entity must be in the text, which has 8 characters"),
        ("entities", {"entities": [ENTITY, ENTITY]}, "an entity must not overlap another one. "),
        ("entities", changed(start=3, end=4), "an entity must not be blank. Received: "),
        ("entities", changed(label="y"), "the label of an entity must be one of x."),
    ],
)
def test_row_errors_name_the_line(tmp_path, kind, changes, message):
    row, read = READERS[kind]
    path = write(tmp_path, [row, {**row, **changes}], "jsonl")
    with pytest.raises(ValueError, match=f"{path}, line 2: .*{message}"):
        read(path)


REGRESSION = {"is_regression": True}


@pytest.mark.parametrize(
    "ending, content, arguments, message",
    [
        ("csv", "sentence,label\na,b\n", {}, "1: the columns must include text, label .*no text"),
        ("csv", "text,label,text\na,b,c\n", {}, "1: a column must not be repeated. .*: 'text'"),
        ("csv", "text;label\na;b\n", {}, "1: the columns .*';' seems to separate.*no text,"),
        ("csv", '"text";"label"\n"a";"b"\n', {}, "1: a row must be cells.*';' seems to separate"),
        ("csv", "sep=\t\ntext\tlabel\na\tb\n", {}, r"1: .*'.t' seems to separate the cells"),
        ("csv", "text,label\na,b,c\n", {}, "2: a row must have 2 cells .text, label."),
        ("csv", "text,label\n ,b\n", {}, "2: `text` must be a non-empty text. Received: ' '"),
        ("csv", 'text,label\n"a\nb",c\n"a,b\n', {}, "4: a row must be cells separated by ','"),
        ("csv", "text,label\na,nan\n", REGRESSION, "2: `label` must be a finite number. .*'nan'"),
        ("csv", "text,label\na,1_0\n", REGRESSION, "2: `label` must be a finite number. .*'1_0'"),
        ("jsonl", f'{{"text": "a", "label": 1{"0" * 400}}}', REGRESSION, "1: .*a finite number"),
        ("jsonl", f'{{"text": "a", "label": 1{"0" * 4300}}}', REGRESSION, "1: must be JSON"),
        ("jsonl", '["a", "b"]', {}, "1: a line must be a JSON object"),
        ("csv", "text,label\na,b\n", {"id": "text"}, "2: an id must not be repeated. .*: 'a'"),
    ],
)
def test_errors_name_the_line(tmp_path, ending, content, arguments, message):
    path = write(tmp_path, content, ending)
    with pytest.raises(ValueError, match=f"^{path}, line {message}"):
        columns.read_texts([path, path], **arguments)


@pytest.mark.parametrize(
    "ending, content, arguments, message",
    [
        ("csv", "text,label\n", {}, "a.csv must contain examples. Received: none"),
        ("csv", "", {}, "a.csv: a table must have a header. Received: an empty file"),
        ("txt", "text,label\na,b\n", {}, "A file must end in .csv, .tsv, .jsonl, .jsonlines"),
        # Before reading.
        ("csv", "", {"label_separator": ""}, "`label_separator` must be a nonempty text, and N"),
        ("csv", "", {"label_separator": "|", **REGRESSION}, "`label_separator` must be a nonempty"),
    ],
)
def test_files_and_arguments_are_checked(tmp_path, ending, content, arguments, message):
    with pytest.raises(ValueError, match=message):
        columns.read_texts(write(tmp_path, content, ending), **arguments)
