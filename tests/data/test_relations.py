"""Files of TACRED and SemEval-2010 Task 8."""

import json

import pytest
from data_files import write, write_lines

from keras_spanbert.data import semeval2010, tacred
from keras_spanbert.data.tacred import example_of_text

EXAMPLE = {
    "id": "1", "token": ["Ann", "runs", "Acme", "-LRB-", "x", "-RRB-"], "subj_start": 0,
    "subj_end": 0, "obj_start": 2, "obj_end": 5, "subj_type": "PERSON", "obj_type": "ORGANIZATION",
    "relation": "per:employee_of",
}  # fmt: skip


@pytest.mark.parametrize("split, rows", [("train", 16), ("dev", 22), ("test", 10)])
def test_reference_files(shared_data, split, rows):
    path = shared_data / "reference" / "finetuning" / "relation" / f"{split}.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    for value in values:
        del value["docid"]
    assert tacred.read(path) == values and len(values) == rows


def test_labels_have_the_order_of_the_released_code(shared_data):
    folder = shared_data / "reference" / "finetuning" / "relation"
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    examples = tacred.read(folder / "train.json")
    assert tacred.relation_names(examples) == expected["labels"]
    with pytest.raises(ValueError, match="must all have a relation"):
        tacred.relation_names([*examples, {"relation": None}])


def test_relation_and_types_may_be_missing_or_have_blanks(tmp_path):
    blank = {**EXAMPLE, "id": "2", "relation": None, "subj_type": None, "stanford_ner": ["O"] * 6}
    path = write_lines(tmp_path / "a.jsonl", [EXAMPLE, blank])
    first, second = tacred.read(path, needs_labels=False)
    assert first == EXAMPLE and {*second} == {*EXAMPLE}
    assert (second["relation"], second["subj_type"]) == (None, None)
    blanks = {**EXAMPLE, "subj_type": "PERSON ", "relation": " per:employee_of"}
    path = write(tmp_path / "a.json", [blanks])
    assert tacred.read(path, relations=[EXAMPLE["relation"]]) == [EXAMPLE]


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"subj_end": 6}, "last word of a span within the 6 words. Received: .0, 6"),
        ({"obj_start": 3, "obj_end": 2}, "`obj_start` and `obj_end` must be.*Received: .3, 2"),
        ({"subj_start": -1}, "Received: .-1, 0"),
        ({"obj_end": True}, "`obj_end` must be a int. Received: True"),
        ({"token": []}, "`token` must be a list of strings"),
        ({"token": ["a", None] * 3}, "`token` must be a list of strings"),
        ({"relation": " "}, "for training or scoring must have a `relation`"),
        ({"relation": "per:ag"}, "must be one of no_relation, per:employee_of. Received: 'per:ag'"),
        ({"subj_type": 3}, "`subj_type` must be a str. Received: 3"),
        ({"id": None}, "`id` must be a str. Received: None"),
    ],
)
@pytest.mark.parametrize("place", ["example 1", "line 2"])
def test_errors_name_the_example(tmp_path, wrong, message, place):
    values = [EXAMPLE, {**EXAMPLE, "id": "2", **wrong}]
    in_lines = place == "line 2"
    path = tmp_path / ("a.jsonl" if in_lines else "a.json")
    path = write_lines(path, values) if in_lines else write(path, values)
    with pytest.raises(ValueError, match=f"{path}, {place}.*{message}"):
        tacred.read(path, relations=["no_relation", "per:employee_of"])


@pytest.mark.parametrize(
    "text, subject, object, words, spans",
    [
        ("Ann saw Bob.", "Ann", "Bob", ["Ann", "saw", "Bob", "."], [0, 0, 2, 2]),
        # Spans split words and can be nested. Blanks at their ends are ignored.
        ("un-Greek Ann", "Greek", "Greek Ann", ["un-", "Greek", "Ann"], [1, 1, 1, 2]),
        ("a\u00a0 b  c d", " b ", "c d", ["a", "b", "c", "d"], [1, 1, 2, 3]),
    ],
)
def test_words_are_split_at_spans(text, subject, object, words, spans):
    places = [(text.index(part), text.index(part) + len(part)) for part in [subject, object]]
    example = example_of_text("7", text, *places, relation="r")
    assert example["token"] == words
    assert [example[name] for name in ["subj_start", "subj_end", "obj_start", "obj_end"]] == spans
    assert (example["id"], example["subj_type"], example["relation"]) == ("7", None, "r")


@pytest.mark.parametrize("span", [(3, 8), (-1, 2), (2, 2), (3, 4)])
def test_blank_or_outside_span_is_refused(span):
    with pytest.raises(ValueError, match=r"place: the object must be .*from 0 to 7. Received: "):
        example_of_text("7", "Ann saw", (0, 3), span, place="place")


SEMEVAL, ANSWERS = semeval2010.read, semeval2010.read_answers
SENTENCE = '1\t"The <e1>child</e1> in the <e2>cradle</e2>."\n'


def test_answers_have_the_format_of_the_key(shared_data, tmp_path):
    folder = shared_data / "data" / "semeval2010_task8"
    examples = semeval2010.read(folder / "TEST_FILE_FULL.TXT")
    key = semeval2010.read_answers(folder / "TEST_FILE_KEY.TXT")
    assert key == {example["id"]: example["relation"] for example in examples}
    semeval2010.write_predictions(tmp_path / "a.txt", examples, list(key.values()))
    assert (tmp_path / "a.txt").read_bytes() == (folder / "TEST_FILE_KEY.TXT").read_bytes()


def test_sentences_with_and_without_labels(tmp_path):
    turned = '2\t"The <e2>cradle</e2> holds a small <e1>child</e1>."\n'
    path = write(tmp_path / "a.txt", SENTENCE + "Other\nComment: 2\n\n" + turned)
    one, other = semeval2010.read(path, needs_labels=False)
    assert (one["id"], one["relation"]) == ("1", "Other")
    assert (other["id"], other["relation"]) == ("2", None)
    assert one["token"] == ["The", "child", "in", "the", "cradle", "."]
    assert [one["subj_start"], one["subj_end"], one["obj_start"], one["obj_end"]] == [1, 1, 4, 4]
    # e1 is the subject also if it comes second.
    assert (other["subj_start"], other["obj_start"]) == (5, 1)


@pytest.mark.parametrize(
    "read, content, message",
    [
        (tacred.read, {"data": []}, r": .* a JSON list, or end in .jsonl.*: \{'data'"),
        (tacred.read, [3], ", example 0: `id` must be a str"),
        (tacred.read, [], " must contain examples. Received: none"),
        (tacred.read, [{"id": 1, "annotations": []}], ": Label Studio's export must be in JSON l"),
        (tacred.read, [EXAMPLE] * 2, ", example 1 .*: an id must not be repeated. Received: '1'"),
        (SEMEVAL, SENTENCE + "Comment:\n", ", line 1: an example for training or scoring must"),
        (SEMEVAL, "Other\n" + SENTENCE, ", line 1: an example must begin with its id, a tab"),
        (SEMEVAL, SENTENCE + "\nOther\n", ", line 3: an example must begin with its id, a tab"),
        (SEMEVAL, SENTENCE + "Cause-Effect\n", ", line 2: a sentence must be followed by its rel"),
        (SEMEVAL, SENTENCE + "Other\nOther\n", ", line 3: a sentence must be followed by"),
        (SEMEVAL, SENTENCE.replace('"The', "The"), ', line 1: a sentence must be in `"`'),
        (SEMEVAL, SENTENCE.replace("</e2>", ""), ".*and </e2> once. Received: '<e1>, </e1>, <e2>"),
        (SEMEVAL, '1\t"a <e1></e1> <e2>b</e2>"\nOther\n', ", line 1: the subject must.*: 2, 2"),
        (SEMEVAL, '1\t"<e1>b</e1> </e2>b<e2>"\nOther\n', ", line 1: the object must be.*: 3, 2"),
        (SEMEVAL, (SENTENCE + "Other\n") * 2, ", line 3: an id must not be repeated"),
        (SEMEVAL, "\n", " must contain examples. Received: none"),
        (ANSWERS, "1\tOther\n1\tOther\n", ", line 2: an id must not be repeated. .*: '1'"),
        (ANSWERS, "1\tCause-Effect\n", ", line 1: a line must be an id, a tab and one of Other, "),
        (ANSWERS, "x\tOther\n", ", line 1: a line must be an id"),
        (ANSWERS, "", " must contain answers. Received: none"),
    ],
)
def test_invalid_files_are_named(tmp_path, read, content, message):
    path = write(tmp_path / "a", content)
    with pytest.raises(ValueError, match=f"{path}{message}"):
        read(path)
