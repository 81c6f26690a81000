"""MRQA's files, and the download of official ones."""

import functools
import gzip
import hashlib
import http.server
import json
import re
import threading

import pytest

from keras_spanbert.data import mrqa, squad

CONTEXT = "Ann saw Bob. Bob saw Ann."


def question(name="1", spans=((13, 15), (8, 10)), answers=("Bob", "Bobby"), **kwargs):
    detected = [{"text": "Bob", "char_spans": [list(span)]} for span in spans]
    return {
        "qid": name,
        "question": "Who?",
        "answers": list(answers),
        "detected_answers": detected,
        **kwargs,
    }


def write(path, *questions, context=CONTEXT):
    lines = [{"header": {"dataset": "Test"}}]
    lines += [{"context": context, "qas": [q]} for q in questions]
    content = "".join(json.dumps(line) + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_of_several_spans_the_first_is_trained_with_and_all_answers_count(tmp_path, name):
    examples = mrqa.read(write(tmp_path / name, question("1"), question("2", spans=())))
    assert examples.ids == ["1", "2"]
    assert examples.contexts == [CONTEXT] * 2 and examples.questions == ["Who?"] * 2
    assert examples.answers == [{"text": "Bob", "answer_start": 8}, None]
    assert examples.golds == [["Bob", "Bobby"]] * 2


def test_lone_surrogate_names_the_line_and_the_id(tmp_path):
    path = write(tmp_path / "a.jsonl", question("1"), question("2", answers=["Bo\ud800b"]))
    with pytest.raises(ValueError, match=rf"{path}, line 3, question 0 \(id 2\): .*`answers`"):
        mrqa.read(path, for_training=False)


def test_span_outside_its_context_is_left_out_or_refused(tmp_path, caplog):
    path = write(tmp_path / "a.jsonl", question("1"), question("2", spans=[(20, 25)]))
    assert mrqa.read(path).ids == ["1"]
    (record,) = caplog.records
    assert (
        f"Left out 1 questions whose answers are not at their places, the first {path}, line 3"
        in (record.getMessage())
    )
    assert mrqa.read(path, for_training=False).ids == ["1", "2"]
    with pytest.raises(ValueError, match=r"line 3, question 0 \(id 2\): '' is not at 20"):
        mrqa.read(path, strict=True)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"qid": None}, "line 2, question 0: `qid` must be a str. Received: None"),
        ({"answers": []}, "line 2, question 0: `answers` must be strings. Received: []"),
        ({"question": " "}, "line 2, question 0 (id 1): question and context must not be empty"),
        ({"detected_answers": [{"char_spans": [[1]]}]}, "a span must be two integers"),
    ],
)
def test_error_names_the_place(tmp_path, wrong, message):
    path = write(tmp_path / "a.jsonl", question(**wrong) if "qid" not in wrong else question(None))
    with pytest.raises(ValueError, match=re.escape(message)):
        mrqa.read(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{]", "must be JSON. Received: Expecting property name"),
        (b"[" * 100_000, "must be JSON. Received: lists in lists too deep"),
        (b'{"context": "\xff"}', "text must be UTF-8. Received: invalid start byte at byte 13"),
    ],
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_error_for_a_line_that_is_not_json_names_it(tmp_path, line, message, name):
    path = write(tmp_path / "plain.jsonl", question())
    content = path.read_bytes() + b"\n" + line + b"\n"  # The line that is blank counts too.
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(ValueError, match=re.escape(f"{path}, line 4: {message}")):
        mrqa.read(path)


def test_error_for_an_id_again(tmp_path):
    path = write(tmp_path / "b.jsonl", question(), question())
    with pytest.raises(ValueError, match="an id may stand once. Received: '1' again"):
        mrqa.read(path)


def test_error_for_a_damaged_archive(tmp_path):
    path = write(tmp_path / "a.jsonl.gz", *[question(str(i)) for i in range(1000)])
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(
        ValueError, match=rf"gzip file must be whole.*{path}, damaged after line \d+: "
    ):
        mrqa.read(path)


# === Official files ===


@pytest.fixture
def server(tmp_path):
    """A folder and its address."""
    (tmp_path / "served").mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / "served")
    server = http.server.ThreadingHTTPServer(("localhost", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield tmp_path / "served", f"http://localhost:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("module", [squad, mrqa])
def test_official_file_is_fetched_once_and_checked(module, server, tmp_path, monkeypatch):
    folder, address = server
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr("keras.src.utils.file_utils.config.keras_home", lambda: str(tmp_path))
    name = next(iter(module.FILES))
    (folder / "file").write_bytes(b"content")
    checksum = hashlib.sha256(b"content").hexdigest()
    monkeypatch.setitem(module.FILES, name, (address + "file", checksum))
    path = module.download(name)
    with open(path, "rb") as file:
        assert file.read() == b"content"
    assert path.startswith(str(tmp_path)) and path.endswith(name.split("/")[-1])
    (folder / "file").unlink()
    assert module.download(name) == path
    (folder / "file").write_bytes(b"other")
    other = list(module.FILES)[1]
    monkeypatch.setitem(module.FILES, other, (address + "file", checksum))
    with pytest.raises(ValueError, match="sha256"):
        module.download(other)
    with pytest.raises(ValueError, match="`name` must be one of .*Received: nothing"):
        module.download("nothing")


def test_addresses_are_the_official_ones():
    assert len(squad.FILES) == 4 and len(mrqa.FILES) == 17
    for module in [squad, mrqa]:
        for name, (url, checksum) in module.FILES.items():
            assert url.startswith("https://") and url.endswith(f"/{name}")
            assert re.fullmatch("[0-9a-f]{64}", checksum)


def test_checksum_is_that_of_the_file_at_hand(shared_data):
    content = (shared_data / "data/squad/dev-v1.1.json").read_bytes()
    assert squad.FILES["dev-v1.1.json"][1] == hashlib.sha256(content).hexdigest()
