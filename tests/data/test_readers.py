"""Encodings, line ends, JSON and damages of files in every format."""

import codecs
import functools
import gzip
import json
import re

import pytest
from data_files import write

from keras_spanbert.data import (
    codah,
    columns,
    commonsense_qa,
    conll,
    coreference,
    cosmos_qa,
    glue,
    mrqa,
    race,
    semeval2010,
    squad,
    swag,
    tacred,
)

as_json = functools.partial(json.dumps, ensure_ascii=False)
CHOICES = "a,b,c,d,0\n"
ANSWERS = "answer0,answer1,answer2,answer3"
CONLL_2012 = "\t".join(["a", "0", "0", "café", *"_____-_", "(1)"])
WORDS = {"token": ["a", "café"], "subj_start": 0, "subj_end": 0, "obj_start": 1, "obj_end": 1}
RELATION = as_json({"id": "1", "relation": "r", **WORDS})
OPTIONS = {"stem": "café", "choices": [{"label": c, "text": c} for c in "AB"]}
ARTICLE = {"id": "1", "article": "café", "questions": ["a"], "options": [["b", "c"]]}
SQUAD = {"context": "café", "qas": [{"question": "a", "answers": [], "id": "1"}]}
SPANS = [{"char_spans": [[0, 3]]}]
MRQA = {"question": "a", "answers": ["café"], "detected_answers": SPANS, "qid": "1"}
RTE = functools.partial(glue.read, task="rte", split="dev")
# Each file has the word "café".
FILES = [
    (swag.read, ".csv", "sent1,sent2,ending0,ending1,ending2,ending3,label\ncafé,s," + CHOICES),
    (codah.read, ".tsv", "o\tcafé\ta\tb\tc\td\t0\n"),
    (cosmos_qa.read, ".csv", f"id,context,question,{ANSWERS},label\n1,café,q," + CHOICES),
    (commonsense_qa.read, ".jsonl", as_json({"id": "1", "question": OPTIONS, "answerKey": "A"})),
    (race.read, ".txt", as_json({**ARTICLE, "answers": ["A"]})),
    (columns.read_texts, ".csv", 'text,label\n"café, \n\nshe",a\n'),
    (columns.read_texts, ".tsv", "text\tlabel\ncafé\ta\n"),
    (columns.read_words, ".jsonl", as_json({"words": ["café"], "tags": ["O"]})),
    (conll.read, ".txt", "café\tO\n\nb\tO\n"),
    (coreference.read, ".conll", f"#begin document (a); part 000\n{CONLL_2012}\n\n#end document\n"),
    (coreference.read, ".jsonlines", as_json({"doc_key": "a", "sentences": [["café"]]})),
    (RTE, ".tsv", "index\tsentence1\tsentence2\tlabel\n1\tcafé\tb\tentailment\n"),
    (squad.read, ".json", as_json({"data": [{"paragraphs": [SQUAD]}]})),
    (mrqa.read, ".jsonl", as_json({"context": "café", "qas": [MRQA]})),
    (tacred.read, ".json", f"[{RELATION}]"),
    (tacred.read, ".jsonl", RELATION),
    (semeval2010.read, ".txt", '1\t"The <e1>café</e1> <e2>b</e2>."\nOther\nComment: c\n\n'),
]
each_format = pytest.mark.parametrize("read, ending, content", FILES)


@each_format
def test_gzip_byte_order_mark_line_ends_and_capitals(tmp_path, read, ending, content):
    examples = repr(read(write(tmp_path / f"a{ending}", content)))
    assert "café" in examples
    # Windows, old Macs, and two returns before a newline, which are one end.
    for end in ["\r\n", "\r", "\r\r\n"]:
        changed = content.strip("\n").replace("\n", end) + end
        changed = codecs.BOM_UTF8 + changed.encode()
        packed = gzip.compress(changed)
        for name, given in [(ending, packed), (ending.upper(), changed), (f"{ending}.GZ", packed)]:
            found = repr(read([write(tmp_path / f"B{name}", given)]))
            # A cell in quotes keeps its line ends.
            assert found.replace(repr(end)[1:-1], r"\n") == examples


@each_format
def test_text_that_is_not_utf_8_names_the_line(tmp_path, read, ending, content):
    path = write(tmp_path / f"a{ending}", content.encode().replace("é".encode(), b"\xe9"))
    line = content[: content.index("é")].count("\n") + 1
    place = re.escape(f"{path}, line {line}")
    for end in [b"\n", b"\r"]:
        write(path, path.read_bytes().replace(b"\n", end))
        message = f"{place}: text must be UTF-8. Received: invalid cont"
        with pytest.raises(ValueError, match=message):
            read(path)


@each_format
def test_empty_file_is_refused(tmp_path, read, ending, content):
    path = write(tmp_path / f"a{ending}", "")
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}.* must ") as error:
        read(path)
    assert "Received: " in str(error.value)


@pytest.mark.parametrize(
    "read, ending, content", [file for file in FILES if file[2].startswith(("{", "["))]
)
def test_text_that_is_not_json_names_the_line(tmp_path, read, ending, content):
    for text, message in [
        ("\n{\n]", r"line [23]: must be JSON. Received: Expecting property name"),
        ("\n\n" + "[" * 100_000, "must be JSON. Received: lists nested too deeply"),
        (content.replace("é", r"\ud83d"), r"must be JSON. Received: a lone surrogate, .ud83d"),
    ]:
        path = write(tmp_path / f"a{ending}", text)
        with pytest.raises(ValueError, match=rf"{re.escape(str(path))}, .*{message}"):
            read(path)
