"""Files of SWAG, CODAH, Cosmos QA, CommonsenseQA and RACE."""

import collections
import gzip
import json
import re

import numpy as np
import pytest

from keras_spanbert.data import codah, commonsense_qa, cosmos_qa, race, swag


def write(folder, text, name="a.csv"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return path


# === The files at hand ===


def test_rows_of_swag_of_the_reference(shared_data):
    folder = shared_data / "reference" / "finetuning" / "multiple_choice"
    examples = swag.read(folder / "swag_layout.csv")
    rows = json.loads((folder / "examples.json").read_text(encoding="utf-8"))[:10]
    for i, (example, row) in enumerate(zip(examples, rows, strict=True)):
        prompt = row["sent1"], row["sent2"]
        expected = {
            "id": str(i),
            "prompt": prompt,
            "choices": row["endings"],
            "label": row["label"],
        }
        assert example == expected


@pytest.mark.parametrize(
    "name, rows, labels",
    [
        ("full_data", 2776, [689, 684, 697, 706]),
        ("cv_split/fold_0/train", 1665, [426, 402, 404, 433]),
        ("cv_split/fold_0/dev", 556, [149, 140, 124, 143]),
        ("cv_split/fold_0/test", 555, [114, 142, 169, 130]),
    ],
)
def test_published_numbers_of_codah(shared_data, name, rows, labels):
    examples = codah.read(shared_data / "data" / "codah" / f"{name}.tsv")
    counts = collections.Counter(example["label"] for example in examples)
    assert len(examples) == rows and [counts[i] for i in range(4)] == labels
    assert all(isinstance(example["prompt"], str) for example in examples)


def test_published_number_of_cosmos_qa(shared_data, tmp_path):
    examples = cosmos_qa.read(shared_data / "data" / "cosmosqa" / "valid.csv")
    assert len(examples) == len({example["id"] for example in examples}) == 2985
    assert all(len(e["choices"]) == 4 and len(e["prompt"]) == 2 for e in examples)
    numbers = [example["label"] for example in examples]
    cosmos_qa.write_predictions(tmp_path / "a.lst", examples, np.array(numbers))
    assert [int(line) for line in (tmp_path / "a.lst").read_text().split()] == numbers


# === CSV and TSV ===

HEADER = ",sent1,sent2,ending0,ending1,ending2,ending3,label\n"


def test_quoted_cells_may_hold_commas_quotes_and_lines(tmp_path):
    text = HEADER + '4,"He said ""no"",\nthen",She,a,"b,c",d,e,1\n\n'
    expected = {
        "id": "4",
        "prompt": ('He said "no",\nthen', "She"),
        "choices": ["a", "b,c", "d", "e"],
        "label": 1,
    }
    windows = b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()
    paths = [write(tmp_path, windows), write(tmp_path, gzip.compress(windows), "a.csv.gz")]
    assert swag.read(paths) == [expected] * 2


def test_files_without_labels(tmp_path):
    text = HEADER.replace(",label", "").replace(",sent1", "sent1") + "A,B,a,b,c,d\n"
    path = write(tmp_path, text)
    (example,) = swag.read(path, needs_labels=False)
    assert example["label"] is None and example["id"] == "0"
    with pytest.raises(
        ValueError, match="line 1: the columns must include .*Received: no label in"
    ):
        swag.read(path)
    path = write(tmp_path, 'x\t"A\tb\tc\td\te\t\n', "a.tsv")
    (example,) = codah.read(path, needs_labels=False)
    assert example["label"] is None and example["prompt"] == '"A'
    with pytest.raises(
        ValueError, match="line 1: an example to train or score on must have a label"
    ):
        codah.read(path)


@pytest.mark.parametrize(
    "read, text, message",
    [
        (swag.read, HEADER + "1,A,B,a,b,c,d,4\n", "line 2: a label must be .*below 4. Received: 4"),
        (swag.read, HEADER + "1,A,B,a,b,c,d,x\n", "line 2: a label must be .*Received: 'x'"),
        (swag.read, HEADER + "1,A,B,a,b,c,d,-1\n", "Received: '-1'"),
        (swag.read, HEADER + "1,A,B,a,b,c,0\n", "line 2: a row must have as many.*8.*Received: 7"),
        (swag.read, HEADER + "1,A,B,a,b, ,d,0\n", "line 2: a choice must not be empty"),
        (swag.read, HEADER + "1, ,,a,b,c,d,0\n", "line 2: a question must not be empty"),
        (swag.read, HEADER + '1,"A\nB"C,B,a,b,c,d,0\n', "line 2: a row must be cells between ','"),
        (swag.read, HEADER + '1,A,B,a,b,c,d,0\n2,"A,B\n3,C\n', "line 3: a row must be cells"),
        (swag.read, HEADER, "must hold examples. Received: none"),
        (swag.read, "", "a table must have a header. Received: an empty file"),
        (swag.read, HEADER.encode() + b"1,\xe9\n", "line 2: text must be UTF-8"),
        (cosmos_qa.read, HEADER, "must include id, context, question, .*no id, context, question,"),
        (codah.read, "o\tA\tb\tc\td\te\n", "line 1: a row must have 7 columns.*Received: 6"),
        (codah.read, "o\tA\tb\tc\td\te\tf\t1\n", "line 1: .*Received: 8"),
    ],
)
def test_error_names_the_line_and_the_rule(tmp_path, read, text, message):
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=message) as error:
        read(path)
    assert str(path) in str(error.value)


# === JSON ===

QUESTION = {
    "answerKey": "B",
    "id": "70701f",
    "question": {
        "question_concept": "sitting",
        "stem": "What is one doing?",
        "choices": [{"label": c, "text": f"text {c}"} for c in "ABCDE"],
    },
}


def test_lines_of_commonsense_qa(tmp_path):
    test = {name: QUESTION[name] for name in ["id", "question"]}
    path = write(tmp_path, json.dumps(QUESTION) + "\n" + json.dumps(test) + "\n", "a.jsonl")
    first, second = commonsense_qa.read(path, needs_labels=False)
    choices = [f"text {c}" for c in "ABCDE"]
    expected = {"id": "70701f", "prompt": "What is one doing?", "choices": choices, "label": 1}
    assert first == expected and second == {**expected, "label": None}
    with pytest.raises(
        ValueError, match="line 2: an example to train or score on must have a label"
    ):
        commonsense_qa.read(path)
    commonsense_qa.write_predictions(tmp_path / "a.csv", [first, second], [4, 0])
    assert (tmp_path / "a.csv").read_bytes() == b"70701f,E\n70701f,A\n"


@pytest.mark.parametrize(
    "change, message",
    [
        ({"answerKey": "F"}, "line 1: a label must be .*, A to E. Received: 'F'"),
        ({"answerKey": "b"}, "line 1: an answer must be a letter from A. Received: 'b'"),
        ({"answerKey": 1}, "Received: 1"),
        ({"id": 3}, "line 1: `id` must be a str. Received: 3"),
        ({"question": "Why?"}, "`question` must be a dict. Received: 'Why"),
        (
            {"question": {"stem": "a", "choices": [{"label": "A", "text": "b"}]}},
            "must be two choices or more. Received: 1",
        ),
        (
            {"question": {"stem": "a", "choices": [{"label": c, "text": "b"} for c in "BA"]}},
            "letters from A, in order. Received: B, A",
        ),
        ({"question": {"stem": "a", "choices": ["b"]}}, "`text` must be a str"),
    ],
)
def test_error_for_a_line_of_another_form(tmp_path, change, message):
    path = write(tmp_path, json.dumps({**QUESTION, **change}), "a.jsonl")
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}.*{message}"):
        commonsense_qa.read(path)


ARTICLE = {
    "article": "Ann has a dog.",
    "questions": ["Who has it?", "Ann has a _ .", "_ has a _ ?"],
    "options": [["Ann", "Bob", "Al", "Jo"], ["dog", "cat", "cow", ""], ["a", "b", "c", "d"]],
    "answers": ["A", "A", "D"],
    "id": "high1.txt",
}


def test_folders_of_race(tmp_path):
    write(tmp_path, json.dumps(ARTICLE), "dev/high/1.txt")
    write(tmp_path, json.dumps({**ARTICLE, "id": "middle1.txt"}), "dev/middle/1.txt")
    write(tmp_path, "Read me", "dev/README.md")
    examples = race.read(tmp_path / "dev")
    assert [example["id"] for example in examples] == [
        f"{level}1.txt-{i}" for level in ["high", "middle"] for i in range(3)
    ]
    plain, filled, two = examples[:3]
    assert plain["prompt"] == ("Ann has a dog.", "Who has it?")
    assert plain["choices"] == ["Ann", "Bob", "Al", "Jo"]
    # What has one blank is filled.
    assert filled["prompt"] == ("Ann has a dog.", "")
    assert filled["choices"] == [f"Ann has a {option} ." for option in ["dog", "cat", "cow", ""]]
    assert two["prompt"][1] == "_ has a _ ?"
    assert [example["label"] for example in examples] == [0, 0, 3] * 2
    assert race.read(tmp_path / "dev" / "high" / "1.txt") == examples[:3]


def test_articles_without_answers(tmp_path):
    unlabelled = {name: value for name, value in ARTICLE.items() if name != "answers"}
    path = write(tmp_path, json.dumps(unlabelled), "1.txt")
    assert [example["label"] for example in race.read(path, needs_labels=False)] == [None] * 3
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}: `answers` must be a list"):
        race.read(path)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"answers": ["A", "A"]}, "must be as long. Received: 3, 3, 2"),
        ({"answers": ["A", "E", "A"]}, "question 1: a label must .*, A to D. Received: 'E'"),
        (
            {"answers": ["A", "", "A"]},
            "question 1: an example to train or score on must have a label",
        ),
        ({"options": [["a", "b"], "ab", ["a"]]}, "question 1: .*its options a list of strings"),
        ({"questions": ["a", 2, "c"]}, "question 1: a question must be a string"),
        ({"article": None}, "`article` must be a str. Received: None"),
        ({"article": " ", "questions": ["", "b", "c"]}, "question 0: a question must not be empty"),
        ({"article": "A\ud800"}, "question 0: text must have no lone surrogates.*of `prompt`"),
    ],
)
def test_error_for_an_article_of_another_form(tmp_path, change, message):
    path = write(tmp_path, json.dumps({**ARTICLE, **change}), "1.txt")
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}.*{message}"):
        race.read(path)


def test_folder_without_articles_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"must hold files in \.txt\. Received: "):
        race.read(tmp_path)
    path = write(tmp_path, '{"article": ""\n', "1.txt")
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}, line 1: must be JSON"):
        race.read(tmp_path)


# === Predictions ===


def test_predictions_of_swag_and_mistakes_in_them(tmp_path):
    examples = [{"id": "0", "choices": list("abcd")}, {"id": "7", "choices": list("abc")}]
    swag.write_predictions(tmp_path / "a.csv", examples, np.array([3, 2]))
    assert (tmp_path / "a.csv").read_bytes() == b",pred\n0,3\n7,2\n"
    for predictions, message in [
        ([0], "one for each example. Received: 1 for 2 examples"),
        ([0, 3], "number from 0, below 3. Received: 3 of 7"),
        ([0, -1], "below 3. Received: -1 of 7"),
        ([0, "1"], "below 3. Received: '1' of 7"),
    ]:
        for module in [swag, cosmos_qa, commonsense_qa]:
            with pytest.raises(ValueError, match=message):
                module.write_predictions(tmp_path / "b.csv", examples, predictions)
    assert not (tmp_path / "b.csv").exists()
