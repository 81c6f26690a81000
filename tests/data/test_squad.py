import gzip
import json
import re

import pytest

from keras_spanbert.data import squad


def write(path, qas, context="Bob wrote the letter."):
    content = {"data": [{"paragraphs": [{"context": context, "qas": qas}]}]}
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def question(name="1", answers=(("Bob", 0),), **kwargs):
    answers = [{"text": text, "answer_start": at} for text, at in answers]
    return {"id": name, "question": "Who?", "answers": answers, **kwargs}


def test_examples_of_both_versions(tmp_path):
    path = write(tmp_path / "a.json", [
        question("1", [("Bob", 0), ("the letter", 10)]),
        question("2", [], is_impossible=True),
    ])  # fmt: skip
    examples = squad.read(path)
    assert examples.ids == ["1", "2"]
    assert examples.questions == ["Who?"] * 2
    assert examples.contexts == ["Bob wrote the letter."] * 2
    assert examples.answers == [{"text": "Bob", "answer_start": 0}, None]
    assert examples.golds == [["Bob", "the letter"], []]


def test_file_may_be_gzip_and_what_is_no_utf_8_is_named_by_its_line(tmp_path):
    path = write(tmp_path / "a.json", [question()])
    packed = tmp_path / "a.json.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + path.read_bytes()))
    assert squad.read(packed) == squad.read(path)
    path.write_bytes(path.read_bytes().replace(b"{", b"{\n").replace(b"Who?", b"Who\xe9"))
    with pytest.raises(ValueError, match=r"a\.json, line 5: text must be UTF-8"):
        squad.read(path)


def test_answer_not_at_its_place_is_left_out_or_refused(tmp_path, caplog):
    path = write(tmp_path / "a.json", [question("1"), question("2", [("Bob", 5)])])
    assert squad.read(path).ids == ["1"]
    (record,) = caplog.records
    assert "Left out 1 questions" in record.getMessage()
    assert f"{path}, article 0, paragraph 0, question 1 (id 2): 'Bob' is not at 5" in (
        record.getMessage()
    )
    with pytest.raises(ValueError, match="at its place. Received: .*'Bob' is not at 5"):
        squad.read(path, strict=True)


@pytest.mark.parametrize(
    "content, error",
    [
        ('{"data": [\n{"a": }]}', "line 2: must be JSON. Received: Expecting value, column 7"),
        ('{"data": ' + "[" * 100_000, "must be JSON. Received: lists in lists too deep"),
        ("[]", "`data` must be a list. Received: None"),
        ('{"data": [{"paragraphs": 3}]}', "article 0: `paragraphs` must be a list. Received: 3"),
        ('{"data": []}', "must hold questions. Received: none"),
    ],
)
def test_file_of_another_form_names_the_place(tmp_path, content, error):
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=re.escape(error)) as caught:
        squad.read(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "qas, context, error",
    [
        ([question("1"), question("1")], "Bob", "an id may stand once. Received: '1' again"),
        ([question(question=" ")], "Bob", "question and context must not be empty"),
        ([question()], "\n", "question and context must not be empty"),
        ([question(answers=[("Bob", "0")])], "Bob", "`answer_start` must be an integer"),
        ([{"question": "Who?"}], "Bob", "`id` must be a str"),
        (
            [question("7")],
            "Bob \ud800",
            r"\(id 7\): text must have no lone surrogates, .*'\\ud800' at character 4 of `con",
        ),
        ([question("7", question="\udfff?")], "Bob", r"'\\udfff' at character 0 of `question`"),
        ([question("7", [("Bo\ud800", 0)])], "Bob", r"\(id 7\).* at character 2 of `answers`"),
        ([question("7\ud800")], "Bob", "\\(id 7\ufffd\\).* at character 1 of `id`"),
    ],
)
def test_mistake_in_a_question_names_it(tmp_path, qas, context, error):
    with pytest.raises(ValueError, match="question .*" + error):
        squad.read(write(tmp_path / "a.json", qas, context))


def test_the_whole_of_squad_is_read(shared_data):
    examples = squad.read(shared_data / "data" / "squad" / "dev-v1.1.json")
    assert len(examples.ids) == 10570 == len(set(examples.ids))
    for context, answer in zip(examples.contexts, examples.answers):
        at = answer["answer_start"]
        assert context[at : at + len(answer["text"])] == answer["text"]
