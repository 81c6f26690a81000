"""Files of TACRED and SemEval-2010 Task 8."""

import collections
import gzip
import json
import re

import pytest

from keras_spanbert.data import semeval2010, tacred
from keras_spanbert.data.relation_examples import example_of_text

EXAMPLE = {
    "id": "1",
    "token": ["Ann", "runs", "Acme", "-LRB-", "x", "-RRB-"],
    "subj_start": 0,
    "subj_end": 0,
    "obj_start": 2,
    "obj_end": 5,
    "subj_type": "PERSON",
    "obj_type": "ORGANIZATION",
    "relation": "per:employee_of",
}


def write(path, *examples):
    if path.suffix == ".jsonl":
        text = "".join(json.dumps(example) + "\n" for example in examples)
    else:
        text = json.dumps(examples, indent=1)
    path.write_text(text, encoding="utf-8")
    return path


# === TACRED ===


@pytest.mark.parametrize("split, rows", [("train", 16), ("dev", 22), ("test", 10)])
def test_files_of_the_reference(shared_data, split, rows):
    path = shared_data / "reference" / "finetuning" / "relation" / f"{split}.json"
    examples = tacred.read(path)
    values = json.loads(path.read_text(encoding="utf-8"))
    assert len(examples) == rows
    for example, value in zip(examples, values):
        value.pop("docid")
        assert example == value


def test_labels_are_in_the_order_of_the_released_code(shared_data):
    folder = shared_data / "reference" / "finetuning" / "relation"
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    examples = tacred.read(folder / "train.json")
    assert tacred.relation_names(examples) == expected["labels"]
    with pytest.raises(ValueError, match="must all have a relation"):
        tacred.relation_names([*examples, {"relation": None}])


def test_lines_gzip_and_examples_without_labels(tmp_path):
    blank = {**EXAMPLE, "id": "2", "relation": None, "subj_type": None, "stanford_ner": ["O"] * 6}
    path = write(tmp_path / "a.jsonl", EXAMPLE, blank)
    packed = tmp_path / "a.json.gz"
    packed.write_bytes(gzip.compress(json.dumps([EXAMPLE, blank]).encode()))
    first, second = tacred.read(path, needs_labels=False)
    assert first == EXAMPLE and {*second} == {*EXAMPLE}
    assert (second["relation"], second["subj_type"]) == (None, None)
    assert tacred.read([packed], needs_labels=False) == [first, second]


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"subj_end": 6}, "last word of a span within the 6 words. Received: 0, 6"),
        ({"obj_start": 3, "obj_end": 2}, "`obj_start` and `obj_end` must be.*Received: 3, 2"),
        ({"subj_start": -1}, "Received: -1, 0"),
        ({"subj_start": "0"}, "`subj_start` must be a int. Received: '0'"),
        ({"obj_end": True}, "`obj_end` must be a int. Received: True"),
        ({"subj_start": None}, "`subj_start` must be a int. Received: None"),
        ({"token": []}, "`token` must be a list of strings"),
        ({"token": ["a", None] * 3}, "`token` must be a list of strings"),
        ({"token": ["a\ud800"] * 6}, "no lone surrogates.*of `token`"),
        ({"relation": None}, "or score on must have a `relation`"),
        ({"relation": 3}, "`relation` must be a str. Received: 3"),
        ({"relation": "per:ag"}, "must be one of no_relation, per:employee_of. Received: 'per:ag'"),
        ({"subj_type": 3}, "`subj_type` must be a str. Received: 3"),
        ({"id": None}, "`id` must be a str. Received: None"),
    ],
)
@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_error_names_the_example(tmp_path, wrong, message, name):
    path = write(tmp_path / name, EXAMPLE, {**EXAMPLE, "id": "2", **wrong})
    place = {".json": "example 1", ".jsonl": "line 2"}[path.suffix]
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}, {place}.*{message}"):
        tacred.read(path, relations=["no_relation", "per:employee_of"])


def test_error_for_a_file_of_another_form(tmp_path):
    path = tmp_path / "a.json"
    for text, message in [
        ('{"data": []}', "must hold a JSON list, or have a name in .jsonl. Received: {'data'"),
        ("[\n1,\n}", "line 3: must be JSON"),
        ("[3]", "example 0: `id` must be a str"),
        ("[]", "must hold examples. Received: none"),
    ]:
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            tacred.read(path)
    with pytest.raises(ValueError, match="an id may stand once. Received: '1' again"):
        tacred.read(write(path, EXAMPLE, EXAMPLE))


def test_predictions_are_lines_of_id_and_relation(tmp_path):
    path = tmp_path / "predictions.txt"
    examples = [EXAMPLE, {**EXAMPLE, "id": "2"}]
    tacred.write_predictions(path, examples, ["per:age", "no_relation"])
    assert path.read_bytes() == b"1\tper:age\n2\tno_relation\n"
    for predictions, message in [
        (["a"], "Received: 1 for 2 examples"),
        (["a", 3], "without tabs and line ends. Received: 3"),
        (["a", "b\n"], "Received: 'b"),
    ]:
        with pytest.raises(ValueError, match=message):
            tacred.write_predictions(path, examples, predictions)


# === Spans in characters ===


@pytest.mark.parametrize(
    "text, subject, object, words, spans",
    [
        ("Ann saw Bob.", "Ann", "Bob", ["Ann", "saw", "Bob", "."], (0, 0, 2, 2)),
        # A span inside a word cuts it; spans nest, and blanks at their ends are none.
        ("un-Greek Ann", "Greek", "Greek Ann", ["un-", "Greek", "Ann"], (1, 1, 1, 2)),
        ("a\u00a0 b  c d", " b ", "c d", ["a", "b", "c", "d"], (1, 1, 2, 3)),
    ],
)
def test_words_are_cut_where_spans_are(text, subject, object, words, spans):
    places = [(text.index(part), text.index(part) + len(part)) for part in [subject, object]]
    example = example_of_text("7", text, *places, relation="r")
    assert example["token"] == words
    assert tuple(
        example[f"{kind}_{end}"] for kind in ["subj", "obj"] for end in ["start", "end"]
    ) == (spans)
    assert (example["id"], example["subj_type"], example["relation"]) == ("7", None, "r")


@pytest.mark.parametrize("span", [(3, 8), (-1, 2), (2, 2), (3, 4), (4, 3)])
def test_span_outside_the_text_or_blank_is_refused(span):
    with pytest.raises(ValueError, match=r"place: the object must be .*from 0 to 7. Received: "):
        example_of_text("7", "Ann saw", (0, 3), span, place="place")


# === SemEval-2010 Task 8 ===

SENTENCE = '1\t"The <e1>child</e1> in the <e2>cradle</e2>."\n'


@pytest.mark.parametrize(
    "name, rows, others", [("TRAIN_FILE.TXT", 8000, 1410), ("TEST_FILE_FULL.TXT", 2717, 454)]
)
def test_published_numbers_of_examples(shared_data, name, rows, others):
    path = shared_data / "data" / "semeval2010_task8" / name
    examples = semeval2010.read(path)
    counts = collections.Counter(example["relation"] for example in examples)
    assert len(examples) == rows and counts["Other"] == others
    assert {*counts} == {*semeval2010.RELATIONS} and len(semeval2010.RELATIONS) == 19
    # The tags aside, the words are those of the file, and the nominals what is in the tags.
    text = path.read_text(encoding="utf-8")
    lines = [line.split("\t")[1][1:-1] for line in re.findall(r"^\d+\t.*", text, re.MULTILINE)]
    for example, line in zip(examples, lines, strict=True):
        words = example["token"]
        assert "".join(words) == "".join(re.sub("</?e[12]>", "", line).split())
        for kind, tag in [("subj", "e1"), ("obj", "e2")]:
            nominal = words[example[f"{kind}_start"] : example[f"{kind}_end"] + 1]
            assert nominal == re.search(f"<{tag}>(.*)</{tag}>", line)[1].split()


def test_key_agrees_with_the_examples(shared_data):
    folder = shared_data / "data" / "semeval2010_task8"
    examples = semeval2010.read(folder / "TEST_FILE_FULL.TXT")
    key = semeval2010.read_answers(folder / "TEST_FILE_KEY.TXT")
    assert key == {example["id"]: example["relation"] for example in examples}


def test_answers_are_written_as_the_key_is(shared_data, tmp_path):
    key = shared_data / "data" / "semeval2010_task8" / "TEST_FILE_KEY.TXT"
    answers = semeval2010.read_answers(key)
    examples = [{"id": name} for name in answers]
    semeval2010.write_predictions(tmp_path / "a.txt", examples, list(answers.values()))
    assert (tmp_path / "a.txt").read_bytes() == key.read_bytes()
    with pytest.raises(ValueError, match="`predictions` must be of Other, .*'Cause-Effect'"):
        semeval2010.write_predictions(tmp_path / "b.txt", examples[:1], ["Cause-Effect"])


def test_file_without_labels_and_line_ends_of_windows(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbf" + (SENTENCE + SENTENCE.replace("1\t", "2\t", 1)).encode())
    examples = semeval2010.read(path, needs_labels=False)
    assert [(example["id"], example["relation"]) for example in examples] == [
        ("1", None),
        ("2", None),
    ]
    text = SENTENCE + "Other\nComment: 2\n\n"
    path.write_bytes(text.replace("\n", "\r\n").encode())
    (example,) = semeval2010.read(path)
    assert example["token"] == ["The", "child", "in", "the", "cradle", "."]
    assert example["relation"] == "Other"


@pytest.mark.parametrize(
    "text, message",
    [
        (SENTENCE, "line 1: an example to train or score on must have a relation"),
        (SENTENCE + "Comment:\n", "line 1: an example to train or score on must have a relation"),
        (SENTENCE + "\nOther\n", "line 3: an example must begin with its id, a tab"),
        (
            SENTENCE + "Cause-Effect\n",
            "line 2: after a sentence must come its relation, one of Oth",
        ),
        (SENTENCE + "Other\nOther\n", "line 3: after a sentence must come"),
        (SENTENCE.replace("\t", " "), "line 1: an example must begin with its id, a tab"),
        (SENTENCE.replace('"The', "The"), 'line 1: a sentence must stand between `"`'),
        (SENTENCE.replace("</e2>", ""), "<e2> and </e2> once. Received: <e1>, </e1>, <e2>"),
        (SENTENCE.replace("e2", "e1"), "once. Received: <e1>, </e1>, <e1>, </e1>"),
        ('1\t"a <e1></e1> <e2>b</e2>"\nOther\n', "line 1: the subject must be.*Received: 2, 2"),
        ('1\t"<e1>b</e1> </e2>b<e2>"\nOther\n', "line 1: the object must be.*Received: 3, 2"),
        ((SENTENCE + "Other\n") * 2, "an id may stand once. Received: '1' again"),
        ("\n", "must hold examples. Received: none"),
    ],
)
def test_error_names_the_line(tmp_path, text, message):
    path = tmp_path / "a.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message) as error:
        semeval2010.read(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    "text, message",
    [
        ("1\tOther\n1\tOther\n", "line 2: an id may stand once. Received: '1' again"),
        ("1\tCause-Effect\n", "line 1: a line must be an id, a tab and one of Other, "),
        ("x\tOther\n", "line 1: a line must be an id"),
        ("", "must hold answers. Received: none"),
    ],
)
def test_answers_of_another_form_are_refused(tmp_path, text, message):
    path = tmp_path / "a.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        semeval2010.read_answers(path)
