"""Conversion of text files to documents."""

import codecs
import gzip
import tracemalloc

import numpy as np
import pytest
from data_files import read_texts, write

from keras_spanbert.data import text_files
from keras_spanbert.data.corpus import Corpus


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
    monkeypatch.setattr(text_files, "_READ_BYTES", 1 << 16)
    num_words = 1_000_000
    path = write(tmp_path / "a.txt", b"word " * num_words)  # 5 MB
    tracemalloc.start()
    try:
        corpus = Corpus(path, "line")
        found = sum(len(text.split()) for text, _ in corpus.documents("all"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == num_words and corpus.num_documents == 1
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
    content = bytearray(gzip.compress(np.random.default_rng(0).bytes(4000).hex().encode()))
    if damage == "cut":
        content = content[:2000]
    else:
        content[1000:1100] = b"\xff" * 100
    path = write(tmp_path / "a.gz", bytes(content))
    for read in [Corpus, lambda path: list(text_files.read_lines(path))]:
        with pytest.raises(ValueError, match=f"gzip file must be whole. Received: {path}"):
            read(path)
