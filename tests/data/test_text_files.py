"""Text files: documents, lines, and ranges of large files, which equal the whole file."""

import codecs
import gzip
import json
import os
import tracemalloc

import numpy as np
import pytest
from data_files import read_texts, write

import keras_spanbert as ks
from keras_spanbert.data import text_files
from keras_spanbert.data.corpus import Corpus
from keras_spanbert.data.prepared import prepare
from keras_spanbert.data.text_files import WHOLE_FILE, find_ranges, read_documents, read_json_lines
from keras_spanbert.formats.vocabulary import SPECIAL_TOKENS


def test_globs_give_sorted_files_without_repetition(tmp_path):
    for name in "cb":
        write(tmp_path / f"{name}.txt", name)
    (tmp_path / "a.txt").symlink_to(tmp_path / "b.txt")
    corpus = Corpus([str(tmp_path / "c*"), tmp_path / "*.txt"])
    assert corpus.files == [str(tmp_path / "a.txt"), str(tmp_path / "c.txt")]
    assert read_texts(corpus, order=[1, 0]) == ["c", "b"]
    with pytest.raises(ValueError, match=r"Received: .*/\*\.nothing, which matches no file"):
        Corpus([tmp_path / "a.txt", tmp_path / "*.nothing"])


def test_lines_end_at_newlines_and_carriage_returns_only(tmp_path):
    # \x0b, \x0c, \x1c, \x85, U+2028 and U+2029 are no line ends.
    inner = "b\x0b\x0c\x1c\x85\u2028\u2029c"
    path = write(tmp_path / "a.txt", f"a\r\n\r{inner}\r\rd\r\r\n\ne\r")
    lines = ["a", "", inner, "", "d", "", "e"]
    assert list(text_files.read_lines(path)) == [
        (f"{path}, line {number}", line) for number, line in enumerate(lines, start=1)
    ]
    kept = [line for _, line in text_files.read_lines(path, keep_ends=True)]
    assert "".join(kept) == path.read_bytes().decode()
    assert [line.rstrip("\r\n") for line in kept] == lines


@pytest.mark.parametrize("boundary", text_files.DOCUMENT_BOUNDARIES)
def test_pieces_of_a_long_document_join_to_its_text(tmp_path, small_chunks, boundary):
    text = " ".join(f"é{i} 漢" for i in range(300))
    corpus = Corpus(write(tmp_path / "a.txt", text), boundary)
    pieces = list(corpus.documents("all"))
    assert "".join(piece for piece, _ in pieces) == text
    assert [ends for _, ends in pieces] == [False] * (len(pieces) - 1) + [True]
    # Pieces end between words.
    assert [word for piece, _ in pieces for word in piece.split()] == text.split()
    # Reads of 5 bytes and pieces of at least 16 characters that are not much longer.
    assert len(pieces) > 50 and max(len(piece) for piece, _ in pieces) < 32


def test_memory_does_not_grow_with_a_line(tmp_path, monkeypatch):
    for name in ["_READ_BYTES", "_RANGE_BYTES"]:
        monkeypatch.setattr(text_files, name, 1 << 16)
    num_words = 1_000_000
    path = write(tmp_path / "a.txt", b"word " * num_words + b"\nend")  # 5 MB
    tracemalloc.start()
    try:
        ranges = list(find_ranges(path, "line", count_lines=True))
        corpus = Corpus(path, "line")
        found = sum(len(text.split()) for text, _ in corpus.documents("all"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == num_words + 1 and corpus.num_documents == 2 == len(ranges)
    assert peak < 3_000_000


@pytest.mark.parametrize("content", [b"", b"\n\n \r\n\t\n", codecs.BOM_UTF8, gzip.compress(b"")])
def test_empty_or_blank_file_is_named(tmp_path, content):
    write(tmp_path / "a.txt", "text")
    path = write(tmp_path / "b.txt", content)
    with pytest.raises(ValueError, match=f"Received: {path}, empty or blank"):
        Corpus(str(tmp_path / "*"), "blank_line")


@pytest.mark.parametrize("read_bytes", [2, 3, 5, 1 << 20])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"some text \x00 more", "binary: a zero byte at byte 10"),
        (b"abc\xff text", "at byte 3"),
        ("ä漢 ok ".encode() + b"\xe4rger", "at byte 9"),  # Latin-1 within UTF-8.
        (b"twenty bytes of text" + b"\xc3\xa4\xc3", "at byte 22"),  # The last one is incomplete.
        (codecs.BOM_UTF8 + b"text \xff", "at byte 8"),
        ("text".encode("utf-16"), "which starts like UTF-16"),
    ],
)
def test_invalid_text_error_gives_its_position(tmp_path, monkeypatch, read_bytes, content, message):
    monkeypatch.setattr(text_files, "_READ_BYTES", read_bytes)
    path = write(tmp_path / "latin.txt", content)
    with pytest.raises(ValueError, match=f"Received: {path}, .*{message}$"):
        Corpus(path)


@pytest.mark.parametrize("damage", ["cut", "garbled"])
def test_damaged_gzip_file_is_named(tmp_path, damage):
    text = np.random.default_rng(0).bytes(4000).hex()
    content = bytearray(gzip.compress(f"one\ntwo\n{text}".encode()))
    if damage == "cut":
        content = content[:2000]
    else:
        content[1000:1100] = b"\xff" * 100
    path = write(tmp_path / "a.gz", bytes(content))
    message = f"gzip file must be whole. Received: {path}"
    with pytest.raises(ValueError, match=f"{message}: "):
        Corpus(path)
    with pytest.raises(ValueError, match=f"{message}, damaged after line 2: "):
        list(text_files.read_lines(path))


# === Ranges of large files ===
WORDS = ["one", "two", "three", "größer", "漢", "字"]
LENGTH = 11


@pytest.fixture
def small_ranges(monkeypatch):
    monkeypatch.setattr(text_files, "_RANGE_BYTES", 300)


def documents(path, boundary, ranges):
    """The words of the documents in ranges of a file."""
    found, text = [], ""
    for within in ranges:
        for piece, ends in read_documents(path, boundary, "replace", within):
            text += piece
            if ends:
                found.append(text.split())
                text = ""
    assert not text
    return found


def expected_documents(content, boundary):
    """Returns the words of documents by reading line by line, as a reference."""
    text = content.decode("utf-8-sig", "replace")
    documents = [[]]
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        documents[-1] += line.split()
        if boundary == "line" or (boundary == "blank_line" and not line.strip()):
            documents.append([])
    return [words for words in documents if words]


def write_documents(folder, kind):
    """Writes a large and a small file. Returns their glob and the document boundary."""
    generator = np.random.default_rng(7)
    documents = [" ".join(generator.choice(WORDS, generator.integers(1, 40))) for _ in range(50)]
    if kind == "jsonl":
        rows = [{"text": text, "spans": [[0, len(text.split()[0])]]} for text in documents]
        documents = [json.dumps(row, ensure_ascii=False) for row in rows]
    joint = "\r\n \r\n" if kind == "blank_line" else "\r\n"
    ending = ".jsonl" if kind == "jsonl" else ".txt"
    write(folder / f"a{ending}", joint.join(documents[:-3]))
    write(folder / f"b{ending}", joint.join(documents[-3:]))
    return str(folder / f"*{ending}"), "file" if kind == "jsonl" else kind


@pytest.mark.parametrize("boundary", text_files.DOCUMENT_BOUNDARIES)
def test_documents_do_not_depend_on_ranges_and_reads(tmp_path, monkeypatch, boundary):
    # Multi-byte characters, \r\n, blank lines and invalid bytes are split at every position.
    parts = ["ab", "é", "漢字", "😀x", " ", "\u3000", "\n", "\r\n", "\r", "\n\n", "\r\n \r\n"]
    parts = [part.encode() for part in [*parts, "\n" * 9, "long" * 9, "\n" + " " * 30 + "\n"]]
    parts += [b"\xe2\x82", b"\xff"]
    generator = np.random.default_rng(3)
    num_ranges, path = [], tmp_path / "a.txt"
    for i in range(120):
        monkeypatch.setattr(text_files, "_RANGE_BYTES", 1 + i % 50)
        monkeypatch.setattr(text_files, "_READ_BYTES", 1 + i % 60)
        monkeypatch.setattr(text_files, "_PIECE_CHARACTERS", 8 + i % 7)
        text = b"".join(parts[j] for j in generator.integers(len(parts), size=90))
        write(path, (codecs.BOM_UTF8 if i % 2 else b"") + text)
        ranges = list(find_ranges(path, boundary))
        stops = [within.stop for within in ranges]
        assert [within.start for within in ranges] == [0, *stops[:-1]] and stops[-1] is None
        num_ranges.append(len(ranges))
        expected = expected_documents(path.read_bytes(), boundary)
        packed = write(tmp_path / "a.gz", gzip.compress(path.read_bytes()))
        for file, within in [(path, ranges), (path, [WHOLE_FILE]), (packed, [WHOLE_FILE])]:
            assert documents(file, boundary, within) == expected, (i, path.read_bytes())
    assert np.mean(num_ranges) > 3 or boundary == "file"


def test_small_compressed_or_single_document_files_are_not_split(tmp_path, small_ranges):
    large, small = "one\n\n" * 100, "one\n\n" * 60
    whole = [(0, None, 1)]
    assert len(list(find_ranges(write(tmp_path / "a.txt", large), "line"))) == 2
    assert list(find_ranges(write(tmp_path / "a.txt", large), "file")) == whole
    assert list(find_ranges(write(tmp_path / "b.txt", small), "line")) == whole
    packed = gzip.compress(np.random.default_rng(0).bytes(400))
    assert list(find_ranges(write(tmp_path / "c.gz", packed), "line")) == whole
    assert list(find_ranges(write(tmp_path / "d.txt", large.replace("\n", " ")), "line")) == whole


@pytest.mark.parametrize("kind", ["line", "blank_line", "jsonl"])
def test_documents_and_splits_equal_whole_files(tmp_path, monkeypatch, kind):
    texts, boundary = write_documents(tmp_path, kind)
    whole = Corpus(texts, boundary, held_out=0.3)
    assert len(whole.ranges) == 2
    monkeypatch.setattr(text_files, "_RANGE_BYTES", 300)
    corpus = Corpus(texts, boundary, held_out=0.3)
    assert len(corpus.ranges) > 10
    assert corpus.num_documents == whole.num_documents == 50
    all_ranges = range(len(corpus.ranges))
    swapped = sorted(all_ranges, key=lambda i: -corpus.ranges[i].file)
    for split in ["train", "held_out", "all"]:
        for order, of_whole in [(None, None), (swapped, [1, 0])]:
            documents = list(corpus.documents(split, order))
            expected = list(whole.documents(split, of_whole))
            assert documents == expected
            if kind == "jsonl":
                assert [text.place for text, _ in documents] == [text.place for text, _ in expected]


@pytest.mark.parametrize("cross_documents", [False, True])
@pytest.mark.parametrize("kind", ["line", "jsonl"])
def test_shards_equal_blocks_of_the_text(tmp_path, small_ranges, kind, cross_documents):
    tokenizer = ks.SpanBertTokenizer([*SPECIAL_TOKENS, *WORDS])
    texts, boundary = write_documents(tmp_path, kind)
    corpus = Corpus(texts, boundary, held_out=0.3, cross_documents=cross_documents)
    for num_shards in [1, 3, 99]:
        path = str(tmp_path / f"{num_shards}")
        prepared = prepare(corpus, tokenizer, LENGTH, path, 1, num_shards)
        names = [name for name in os.listdir(path) if name.startswith("train-")]
        assert len(names) == min(num_shards, len(corpus.ranges))
        for split in ["train", "held_out"]:
            expected = corpus.blocks(tokenizer, LENGTH, split, min_tokens=1, with_marks=True)
            found = prepared.read(np.arange(prepared.num_blocks(split)), split, with_marks=True)
            np.testing.assert_array_equal(found, np.concatenate(list(expected)))


@pytest.mark.parametrize("read_bytes", [1, 7, 1000])
def test_ranges_count_lines_that_end_at_carriage_returns(tmp_path, monkeypatch, read_bytes):
    monkeypatch.setattr(text_files, "_RANGE_BYTES", 90)
    monkeypatch.setattr(text_files, "_READ_BYTES", read_bytes)
    ends = np.random.default_rng(4).choice(["\n", "\r\n", "\r", "\r\r", "\r\r\n", "\n\n\r"], 200)
    rows = [json.dumps({"text": f"n {i}"}) + end for i, end in enumerate(ends)]
    path = write(tmp_path / "a.jsonl", "".join(rows))
    ranges = list(find_ranges(path, "line", count_lines=True))
    assert len(ranges) > 10
    places = [place for within in ranges for place, _ in read_json_lines(path, within=within)]
    assert places == [place for place, _ in read_json_lines(path)] and len(places) == 200


def test_errors_name_the_byte_and_line_in_the_file(tmp_path, small_ranges):
    line = "größer one\r\n".encode()
    for bad in [b"bad \xff", b"bad \0"]:
        path = write(tmp_path / "a.txt", line * 100 + bad)
        with pytest.raises(ValueError, match=f"a.txt, .* at byte {100 * len(line) + 4}"):
            Corpus(path, "line")
    rows = b'{"text": "one"}\n\n' * 100
    for bad in [b"{", b"\xff", b'{"text": 1}']:
        path = write(tmp_path / "c.jsonl", rows + bad + b"\n" + rows)
        with pytest.raises(ValueError, match="c.jsonl, line 201"):
            Corpus(path)
