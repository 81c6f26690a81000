"""Files of SWAG, CODAH, Cosmos QA, CommonsenseQA and RACE."""

import json

import pytest
from data_files import write

from keras_spanbert.data import codah, commonsense_qa, cosmos_qa, race, swag

SWAG = ",sent1,sent2,ending0,ending1,ending2,ending3,label\n"
COSMOS_QA = "id,context,question,answer0,answer1,answer2,answer3,label\n"
CHOICES = [f"text {letter}" for letter in "ABCD"]
QUESTION = {
    "answerKey": "B",
    "id": "7f",
    "question": {
        "question_concept": "sitting",
        "stem": "What is it?",
        "choices": [{"label": c, "text": f"text {c}"} for c in "ABCD"],
    },
}
STORY = {
    "article": "Ann has a dog.",
    "questions": ["Who has it?", "Ann has a _ .", "_ has a _ ?"],
    "options": [["Ann", "Bob", "Al", "Jo"], ["dog", "cat", "cow", ""], ["a", "b", "c", "d"]],
    "answers": ["A", "A", "D"],
    "id": "high1.txt",
}


PAIR = ("A tale, old.", "Who?")
ROW = '"A tale, old.",Who?,text A,text B,text C,text D,LABEL\n'
ONE_QUESTION = {
    "article": PAIR[0], "questions": [PAIR[1]], "options": [CHOICES], "answers": ["LABEL"],
    "id": "a",
}  # fmt: skip
# A file in each format with `CHOICES`, and the id and prompt of its question.
each_format = pytest.mark.parametrize(
    "benchmark, content, name, prompt",
    [
        (swag, SWAG + "," + ROW, "0", PAIR),
        (codah, '"o\tWho?\ttext A\ttext B\ttext C\ttext D\tLABEL\n', "0", "Who?"),
        (cosmos_qa, COSMOS_QA + "x," + ROW, "x", PAIR),
        (commonsense_qa, json.dumps({**QUESTION, "answerKey": "LABEL"}), "7f", "What is it?"),
        (race, json.dumps(ONE_QUESTION), "a-0", PAIR),
    ],
)


@each_format
def test_files_in_all_formats(tmp_path, benchmark, content, name, prompt):
    label = "B" if benchmark in (commonsense_qa, race) else "1"
    path = write(tmp_path / "a.csv", content.replace("LABEL", label))
    one, other = benchmark.read([path, path])
    assert one == {"id": name, "prompt": prompt, "choices": CHOICES, "label": 1}
    assert other == {**one, "id": "1" if name == "0" else name}
    write(path, content.replace("LABEL", ""))
    assert benchmark.read(path, needs_labels=False) == [{**one, "label": None}]
    message = r"\d: an example for training or scoring must have a label. Received: None"
    with pytest.raises(ValueError, match=message):
        benchmark.read(path)


@each_format
def test_invalid_label_is_refused(tmp_path, benchmark, content, name, prompt):
    rule, other = "number from 0, below 4", "B"
    if benchmark in (commonsense_qa, race):
        rule, other = "letter, A to D", "1"
    for label in [other, "b", "4", "E", "-1", "BB"]:
        path = write(tmp_path / "a.csv", content.replace("LABEL", label))
        message = f"a label must be a choice's {rule}. Received: '{label}'"
        with pytest.raises(ValueError, match=rf"{path}, .* \d: {message}"):
            benchmark.read(path)


def without(value, key):
    return {name: item for name, item in value.items() if name != key}


@pytest.mark.parametrize(
    "benchmark, content, message",
    [
        (swag, SWAG.replace(",label", "") + ",A,B,a,b,c,d\n", "line 1: .*Received: no label in"),
        (commonsense_qa, without(QUESTION, "answerKey"), "line 1: an example .* must have a label"),
        (race, without(STORY, "answers"), "a.csv: `answers` must be a list. Received: None"),
    ],
)
def test_label_keys_and_columns_are_optional_for_prediction(tmp_path, benchmark, content, message):
    path = write(tmp_path / "a.csv", content)
    assert {e["label"] for e in benchmark.read(path, needs_labels=False)} == {None}
    with pytest.raises(ValueError, match=message):
        benchmark.read(path)


def asking(*choices):
    return {**QUESTION, "question": {"stem": "a", "choices": list(choices)}}


@pytest.mark.parametrize(
    "benchmark, content, message",
    [
        (swag, SWAG + "1,A,B,a,b,c,0\n", ", line 2: a row must have 8 cells.*Received: 7"),
        (swag, SWAG + "1,A,B,a,b, ,d,0\n", ", line 2: a choice must not be empty"),
        (swag, SWAG + "1, ,,a,b,c,d,0\n", ", line 2: a question must not be empty"),
        (swag, SWAG + '1,"A\nB"C,B,a,b,c,d,0\n', ", line 2: a row must be cells separated by ','"),
        (cosmos_qa, SWAG, ".* must include id, context, question, .*no id, context, question,"),
        (codah, "o\tA\tb\tc\td\te\n", ", line 1: a row must have 7 cells.*Received: 6"),
        (commonsense_qa, {**QUESTION, "id": 3}, ", line 1: `id` must be a str. Received: 3"),
        (commonsense_qa, asking({"label": "A", "text": "b"}), ".*two or more .*Received: ..b"),
        (commonsense_qa, asking({"label": "B", "text": "b"}), ".*letters from A, in order.*B"),
        (race, {**STORY, "answers": ["A", "A"]}, ".* have the same length. Received: .3, 3, 2"),
        (race, {**STORY, "options": [["a", "b"], "ab", ["a"]]}, ".*1: .*options a list of strings"),
        (race, {**STORY, "questions": ["a", 2, "c"]}, ", question 1: a question must be a string"),
    ],
)
def test_errors_name_the_line_or_question(tmp_path, benchmark, content, message):
    path = write(tmp_path / "a.csv", content)
    with pytest.raises(ValueError, match=f"{path}{message}"):
        benchmark.read(path)


def test_folders_of_race(tmp_path):
    for level in ["high", "middle"]:
        (tmp_path / "dev" / level).mkdir(parents=True)
        write(tmp_path / "dev" / level / "1.txt", {**STORY, "id": f"{level}1.txt"})
    write(tmp_path / "dev" / "README.md", "Read me")
    examples = race.read(tmp_path / "dev")
    assert [example["id"] for example in examples] == [
        f"{level}1.txt-{i}" for level in ["high", "middle"] for i in range(3)
    ]
    plain, filled, two = examples[:3]
    assert plain["prompt"] == ("Ann has a dog.", "Who has it?")
    assert plain["choices"] == ["Ann", "Bob", "Al", "Jo"]
    # A question with one blank becomes four sentences.
    assert filled["prompt"] == ("Ann has a dog.", "")
    assert filled["choices"] == [f"Ann has a {option} ." for option in ["dog", "cat", "cow", ""]]
    assert two["prompt"][1] == "_ has a _ ?"
    assert [example["label"] for example in examples] == [0, 0, 3] * 2
    assert race.read(tmp_path / "dev" / "high" / "1.txt") == examples[:3]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"must contain \.txt files\. Received: "):
        race.read(tmp_path / "empty")
