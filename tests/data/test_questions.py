"""Files of SQuAD and MRQA, and the download of official ones."""

import hashlib
import json

import keras
import pytest
from data_files import write, write_lines

from keras_spanbert import metrics
from keras_spanbert.data import mrqa, squad

CONTEXT = "Ann saw Bob. Bob saw Ann."
BOB = {"text": "Bob", "answer_start": 8}


def squad_question(name="1", answers=(("Bob", 8), ("Ann", 0)), **kwargs):
    answers = [{"text": text, "answer_start": at} for text, at in answers]
    return {"id": name, "question": "Who?", "answers": answers, **kwargs}


def squad_data(*questions, context=CONTEXT):
    return {"data": [{"paragraphs": [{"context": context, "qas": questions}]}]}


def mrqa_data(*questions, context=CONTEXT):
    rows = [{"context": context, "qas": [question]} for question in questions]
    return "\n".join(map(json.dumps, [{"header": {"dataset": "Test"}}, *rows]))


def mrqa_question(name="1", answers=(("Bob", 8), ("Ann", 22)), **kwargs):
    spans = [[at, at + len(text) - 1] for text, at in reversed(answers)]
    return {
        "qid": name, "question": "Who?", "answers": [text for text, _ in answers],
        "detected_answers": [{"text": "Bob", "char_spans": [span]} for span in spans], **kwargs,
    }  # fmt: skip


BAD_SPAN = [{"char_spans": [[1]]}]
# The last value is the position of the second question in messages.
each_format = pytest.mark.parametrize(
    "reader, question, data, id_key, place",
    [
        (squad, squad_question, squad_data, "id", "article 0, paragraph 0, question 1"),
        (mrqa, mrqa_question, mrqa_data, "qid", "line 3, question 0"),
    ],
)


def test_questions_without_an_answer(tmp_path):
    rows = [squad_question(str(x), is_impossible=x) for x in [True, False, None]]
    content = squad_data(squad_question("1", []), *rows)
    examples = squad.read(write(tmp_path / "a.json", content))
    assert examples.answers == [None, None, BOB, BOB]
    assert examples.golds == [[], [], ["Bob", "Ann"], ["Bob", "Ann"]]


def test_answers_without_a_span_are_left_out(tmp_path, caplog):
    no_span = mrqa_question("2", detected_answers=[])
    path = write(tmp_path / "a.jsonl", mrqa_data(mrqa_question("1"), no_span))
    assert mrqa.read(path).ids == ["1"]
    assert "Left out 1 question " in caplog.text
    assert "(id 2): 'Bob' has no span" in caplog.text
    examples = mrqa.read(path, for_training=False)
    assert examples.golds == [["Bob", "Ann"]] * 2
    assert examples.answers == [BOB, None]
    with pytest.raises(ValueError, match="Received: .*'Bob' has no span"):
        mrqa.read(path, strict=True)


@each_format
def test_numbers_as_ids_become_strings(tmp_path, reader, question, data, id_key, place):
    path = write(tmp_path / "a.json", data(question(17), question("x"), question(2.5)))
    assert reader.read(path).ids == ["17", "x", "2.5"]


def flat_row(name="1", texts=("Bob", "Ann"), starts=(8, 0), **kwargs):
    answers = {"text": list(texts), "answer_start": list(starts)}
    return {"id": name, "context": CONTEXT, "question": "Who?", "answers": answers, **kwargs}


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("layout", ["lines", "list", "data"])
def test_rows_of_huggingface_datasets_are_read(tmp_path, layout, count):
    as_list = squad_question("3")["answers"]
    rows = [flat_row(), flat_row("2", [], []), flat_row("3", answers=as_list)][:count]
    path = tmp_path / "a.json"
    if layout == "lines":
        write_lines(path, rows)
    else:
        write(path, rows if layout == "list" else {"version": "2.0", "data": rows})
    examples = squad.read(path)
    assert examples.ids == ["1", "2", "3"][:count]
    assert examples.questions == ["Who?"] * count and examples.contexts == [CONTEXT] * count
    assert examples.answers == [BOB, None, BOB][:count]
    assert examples.golds == [["Bob", "Ann"], [], ["Bob", "Ann"]][:count]
    dataset = json.loads(path.read_text()) if layout != "lines" else rows
    assert squad.has_rows(path) == (layout == "lines")
    assert metrics.squad(dataset if count == 3 else {"data": rows}, {"1": "Bob"})["total"] == count


@pytest.mark.parametrize(
    "row, message",
    [
        (flat_row(starts=[8]), "`text` and `answer_start` must have the same length"),
        (flat_row(answers={"text": "Bob", "answer_start": 8}), "`text` must be a list"),
        (flat_row(texts=["Bob", 7]), "`text` must be a str. Received: 7"),
        (flat_row(starts=[8, "0"]), "`answer_start` must be an integer. Received: '0'"),
        (flat_row(answers="Bob"), "`answers` must be a list. Received: 'Bob'"),
        (flat_row(is_impossible="false"), "`is_impossible` must be true or false. .*'false'"),
        (flat_row(is_impossible=0), "`is_impossible` must be true or false. Received: 0"),
        (flat_row(context=3), "`context` must be a str. Received: 3"),
        (flat_row(id=None), "`id` must be a str. Received: None"),
    ],
)
def test_invalid_row_is_named(tmp_path, row, message):
    for path, place in [
        (write_lines(tmp_path / "a.jsonl", [flat_row("0"), row]), "line 2"),
        (write(tmp_path / "a.json", {"data": [flat_row("0"), row]}), "row 1"),
    ]:
        with pytest.raises(ValueError, match=f"{path}, {place}.*{message}"):
            squad.read(path)


@each_format
def test_misplaced_answers_are_left_out(tmp_path, caplog, reader, question, data, id_key, place):
    path = write(tmp_path / "a.json", data(question("1"), question("2", [("Bob", 24)])))
    assert reader.read(path).ids == ["1"]
    (record,) = caplog.records
    message = "Left out 1 question with an answer that is not at its position. The first is"
    assert f"{message} {path}, {place} (id 2): '" in record.getMessage()
    assert reader.read(path, for_training=False).ids == ["1", "2"]
    message = r"at its place in the context. Received: .*\(id 2\): '.*' is not at character 24"
    with pytest.raises(ValueError, match=message):
        reader.read(path, strict=True)


@each_format
def test_prediction_needs_no_answers(tmp_path, reader, question, data, id_key, place):
    without = {id_key: "2", "question": "Who?"}
    blank = {**without, id_key: "3", "answers": None}
    path = write(tmp_path / "a.json", data(question("1"), without, blank, question("4", [])))
    examples = reader.read(path, for_training=False, needs_answers=False)
    assert examples.ids == ["1", "2", "3", "4"] and examples.questions == ["Who?"] * 4
    assert examples.golds == [["Bob", "Ann"], None, None, [] if reader is squad else None]
    assert examples.answers == [BOB, None, None, None]
    for for_training in [True, False]:
        with pytest.raises(ValueError, match=rf"{place} \(id 2\): .*must have `answers`"):
            reader.read(path, for_training=for_training)


@each_format
@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"name": 1}, "an id must not be repeated. Received: '1'"),
        ({"question": " "}, "question and context must not be empty"),
        ({"name": True}, "`q?id` must be a str. Received: True"),
    ],
)
def test_invalid_question_is_named(tmp_path, reader, question, data, id_key, place, wrong, message):
    path = write(tmp_path / "a.json", data(question("1"), question(**{"name": "2", **wrong})))
    with pytest.raises(ValueError, match=f"{path}, {place}.*{message}"):
        reader.read(path)


@pytest.mark.parametrize(
    "reader, content, error",
    [
        (squad, "[]", ": `data` must be a list. Received: None"),
        (squad, {"data": [{"paragraphs": 3}]}, ", article 0: `paragraphs` must be a list. Rec"),
        (squad, {"data": []}, " must contain questions. Received: none"),
        (squad, squad_data(squad_question(), context="\n"), ".* context must not be empty"),
        (mrqa, mrqa_data({**mrqa_question(), "answers": []}), ", line 2, question 0: `answers` mu"),
        (mrqa, mrqa_data(mrqa_question(detected_answers=BAD_SPAN)), ".*span must be two integers"),
    ],
)
def test_invalid_file_error_names_the_place(tmp_path, reader, content, error):
    path = write(tmp_path / "a.json", content)
    with pytest.raises(ValueError, match=f"{path}{error}"):
        reader.read(path)


def test_official_file_is_downloaded_with_its_checksum(monkeypatch):
    found = []
    monkeypatch.setattr(keras.utils, "get_file", lambda *args, **more: found.append((args, more)))
    squad.download("dev-v2.0.json")
    ((arguments, more),) = found
    values = [*arguments, *more.values()]
    assert "dev-v2.0.json" in values and {*squad.FILES["dev-v2.0.json"]} <= {*values}
    with pytest.raises(ValueError, match="`name` must be one of .*Received: name='nothing'"):
        squad.download("nothing")


def test_checksum_equals_the_reference_file(shared_data):
    content = (shared_data / "data/squad/dev-v1.1.json").read_bytes()
    assert squad.FILES["dev-v1.1.json"][1] == hashlib.sha256(content).hexdigest()
