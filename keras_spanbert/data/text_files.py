"""Reads text files as documents, a megabyte at a time, and checks them."""

import codecs
import contextlib
import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from keras_spanbert import cache, stores
from keras_spanbert.checks import check_paths
from keras_spanbert.data.blocks import SPAN_KINDS, AnnotatedText, filter_spans
from keras_spanbert.data.examples import check
from keras_spanbert.files import ending
from keras_spanbert.text.strings import replace_surrogates

# Number of bytes per read, for all files.
_READ_BYTES = 1 << 20
# Larger files are cut at the first ends of documents after multiples of this size. The cuts do
# not depend on the number of workers.
_RANGE_BYTES = 64 << 20
# A carriage return that ends a line because no newline follows.
_BARE_RETURN = re.compile(rb"\r(?!\r*\n)")
_GZIP = b"\x1f\x8b"
_DAMAGES = (EOFError, zlib.error, gzip.BadGzipFile)
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# In JSON, half of a character without its other half.
_SURROGATE = re.compile(
    r"\\u[dD][89abAB]\w\w(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]\w\w)\\u[dD][c-fC-F]\w\w"
)
# A document longer than this is read in pieces, cut between words.
_PIECE_CHARACTERS = 1 << 16
# Functions that split a text into documents.
_SPLITS = {
    "file": lambda text: [text],
    "blank_line": re.compile(r"\n[^\S\n]*\n\s*").split,
    "line": lambda text: text.split("\n"),
}
DOCUMENT_BOUNDARIES = tuple(_SPLITS)


class ByteRange(NamedTuple):
    """A part of a file, or the whole file."""

    start: int = 0  # Offset of the first byte.
    stop: int | None = None  # Offset after the last byte. `None`: the end of the file.
    first_line: int = 1  # Number of the first line, from 1, if lines were counted.


WHOLE_FILE = ByteRange()


# === Ranges of large files, for several workers to read ===
def find_ranges(path: str, boundary: str, count_lines: bool = False) -> Iterator[ByteRange]:
    """Yields the ranges of a file, each with whole documents.

    A file of at most 64 MB, a gzip file, or a file that is one document is a single range. With
    `count_lines`, the first line of each range is counted, which reads all of a large file.
    """
    path = cache.local_copy(path)
    size = os.path.getsize(path)
    start, line = 0, 1
    if size > _RANGE_BYTES and boundary in ("line", "blank_line"):
        with open(path, "rb") as file:
            is_plain = file.read(len(_GZIP)) != _GZIP
            while is_plain and (place := (start // _RANGE_BYTES + 1) * _RANGE_BYTES) < size:
                # In UTF-8, a newline is never part of another character.
                file.seek(place)
                _skip_line(file)
                while boundary == "blank_line" and _skip_line(file):
                    pass
                if (stop := file.tell()) >= size:
                    break
                yield ByteRange(start, stop, line)
                if count_lines:
                    line += _count_lines(file, start, stop)
                start = stop
    yield ByteRange(start, None, line)


def _skip_line(file):
    """Reads a line in parts, because it may be long. Returns whether it has text."""
    has_text = False
    while part := file.readline(_READ_BYTES):
        has_text = has_text or bool(part.strip(b" \t\r\n"))
        if part.endswith(b"\n"):
            break
    return has_text


def _count_lines(file, start, stop):
    """Counts the lines of a range like `read_lines`. The range ends with a newline."""
    file.seek(start)
    num_lines = 0
    while data := file.read(min(_READ_BYTES, stop - file.tell())):
        while data.endswith(b"\r") and file.tell() < stop:  # The next byte may be a newline.
            data += file.read(1)
        num_lines += data.count(b"\n") + len(_BARE_RETURN.findall(data))
    return num_lines


# === Documents ===
def find_files(patterns: str | os.PathLike | Iterable[str | os.PathLike]) -> list[str]:
    """Returns the sorted files that globs match. A file with several names is listed once."""
    by_place = {}
    for pattern in map(os.fspath, check_paths("files", patterns)):
        found = list(stores.find(pattern))
        if not found:
            raise ValueError(f"Files must exist. Received: {pattern}, which matches no file")
        # In a store, globs skip folders.
        is_folder = stores.kind(pattern) == "directory"
        folder = pattern if is_folder else next(filter(os.path.isdir, found), None)
        if folder is not None:
            raise ValueError(
                f"Files must be given, for example as '{folder}/*'. Received: {folder}, a folder"
            )
        for path in found:
            place = path if stores.is_store(path) else os.path.realpath(path)
            by_place[place] = min(path, by_place.get(place, path))
    return sorted(by_place.values())


def read_documents(
    path: str, boundary: str, encoding_errors: str, within: ByteRange = WHOLE_FILE
) -> Iterator[tuple[str, bool]]:
    """Yields `(text, ends_document)` from a file or its part. Long documents come in pieces.

    The ranges of a file, one after another, give the same documents as the whole file. `boundary`
    and `encoding_errors` are those of `Corpus`.
    """
    # White space after a document's end belongs to it.
    before = "\n\n" if within.start else ""
    return _split_documents(_read_text(path, encoding_errors, within), boundary, before)


def _split_documents(parts, boundary, rest):
    """Yields `(text, ends_document)` from a file's text. Blank documents are dropped."""
    is_open = False  # Whether a piece of a document was yielded but not its end.
    for part in parts:
        *documents, rest = _SPLITS[boundary](rest + part)
        for document in documents:
            if is_open or document.strip():
                yield document, True
                is_open = False
        if len(rest) >= _PIECE_CHARACTERS:
            cut = _before_last_word(rest)
            if rest[:cut].strip():
                yield rest[:cut], False
                is_open = True
                rest = rest[cut:]
    if is_open or rest.strip():
        yield rest, True


def read_text(path: str, encoding_errors: str = "strict") -> str:
    """Reads a file as one text: see `read_documents`."""
    return "".join(piece for piece, _ in read_documents(path, "file", encoding_errors))


def _read_text(path, encoding_errors, within):
    """Yields the text of a file's range in parts, with line ends as `\\n`."""
    decoder = codecs.getincrementaldecoder("utf-8")(encoding_errors)
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    offset = within.start
    with _open_range(path, within) as file:
        while True:
            size = _READ_BYTES if within.stop is None else min(_READ_BYTES, within.stop - offset)
            data = file.read(size)
            if (nul := data.find(0)) >= 0:
                raise ValueError(
                    "A file must contain text. If this is text, `tr -d '\\000'` removes zero "
                    f"bytes. Received: {path}, binary: a zero byte at byte {offset + nul}"
                )
            waiting = len(decoder.getstate()[0])
            try:
                text = decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"Text must be UTF-8. --encoding_errors=replace (encoding_errors='replace') "
                    f"ignores the error. Received: {path}, {error.reason} at byte "
                    f"{offset - waiting + error.start}"
                ) from None
            if text.startswith("\ufeff") and offset == waiting:
                text = text[1:]  # A byte order mark.
            yield newlines.decode(text, final=not data)
            offset += len(data)
            if not data:
                return


@contextlib.contextmanager
def _open_range(path, within):
    """Yields a file opened in binary mode, at the start of a range. Decompresses gzip."""
    with open(cache.local_copy(path), "rb") as file:
        try:
            if within.start:
                file.seek(within.start)
            elif file.peek(len(_GZIP)).startswith(_GZIP):
                file = gzip.GzipFile(fileobj=file)
            if not within.start and file.peek(2).startswith(_UTF_16):
                raise ValueError(
                    "Text must be UTF-8. Convert it with `iconv -f UTF-16 -t UTF-8`. Received: "
                    f"{path}, which starts like UTF-16"
                )
            yield file
        except _DAMAGES as error:
            raise ValueError(f"A gzip file must be whole. Received: {path}: {error}") from None


def _before_last_word(text):
    # The last word may be incomplete, and blanks may become a blank line.
    stripped = len(text.rstrip())
    if stripped == len(text):
        space = max(text.rfind(character) for character in " \n\t")
        # A "word" of this length is not a word and can be cut anywhere.
        stripped = len(text[:space].rstrip()) if space > len(text) // 2 else stripped
    return stripped


# === Lines ===
def read_lines(
    path: str | os.PathLike,
    encoding_errors: str = "strict",
    within: ByteRange = WHOLE_FILE,
    keep_ends: bool = False,
) -> Iterator[tuple[str, str]]:
    """Yields `(place, line)` of a text file, plain or gzip. `place` is path and line.

    Lines end at `\\n`, `\\r\\n` or a bare `\\r`, as in files of old Macs. `keep_ends` keeps
    these characters.
    """
    number = within.first_line - 1
    with _open_range(path, within) as file:
        lines = _iterate_lines(file, within)
        while True:
            try:
                line = next(lines, None)
            except _DAMAGES as error:
                place = f"{path}, damaged after line {number}"
                raise ValueError(f"A gzip file must be whole. Received: {place}: {error}") from None
            if line is None:
                return
            number += 1
            place = f"{path}, line {number}"
            try:
                # The file may start with a byte order mark.
                text = line.decode("utf-8-sig" if number == 1 else "utf-8", encoding_errors)
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{place}: text must be UTF-8. Received: {error.reason} at byte {error.start}"
                ) from None
            yield place, text if keep_ends else text.rstrip("\r\n")


def _iterate_lines(file, within):
    offset = within.start
    for line in file:
        # Some programs end lines with \r\r\n, which counts as one line end.
        content = line.rstrip(b"\r\n")
        *before, last = content.split(b"\r")
        yield from (part + b"\r" for part in before)
        yield last + line[len(content) :]
        offset += len(line)
        if offset == within.stop:
            return


def read_json_lines(
    path: str | os.PathLike, encoding_errors: str = "strict", within: ByteRange = WHOLE_FILE
) -> Iterator[tuple]:
    """Yields `(place, value)` of a file with a JSON value per line: see `read_lines`."""
    lines = read_lines(path, encoding_errors, within)
    for number, (place, line) in enumerate(lines, start=within.first_line):
        if line.strip():
            yield place, _parse_json(line, path, number, encoding_errors == "replace")


def read_json(path: str | os.PathLike):
    """Returns the value of a JSON file, plain or gzip: see `read_lines`."""
    return _parse_json("\n".join(line for _, line in read_lines(path)), path)


def _parse_json(text, path, line=1, may_have_surrogates=False):
    """Parses JSON text that starts at a line of a file."""
    try:
        value = json.loads(text)
        if not may_have_surrogates and (surrogate := _SURROGATE.search(text)):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except json.JSONDecodeError as error:
        line += error.lineno - 1
        received = f"{error.msg}, column {error.colno}"
    except RecursionError:
        received = "lists nested too deeply"
    except UnicodeEncodeError:
        line += text.count("\n", 0, surrogate.start())
        received = f"a lone surrogate, {surrogate[0]}, which is half of a character"
    except ValueError as error:  # A number with thousands of digits.
        received = str(error)
    raise ValueError(f"{path}, line {line}: must be JSON. Received: {received}")


# === Documents with linguistic spans ===
def is_document_lines(path: str | os.PathLike) -> bool:
    """Returns whether a file has one document per line, judging by its name."""
    return ending(path) == ".jsonl"


def read_document_lines(
    path: str, encoding_errors: str, within: ByteRange = WHOLE_FILE
) -> Iterator[tuple[AnnotatedText, bool]]:
    """Yields `(text, ends_document)`. Long documents come in pieces, and blank ones are skipped.

    A line is `{"text": "...", "spans": [[start, end], ...]}`. Positions count characters from 0,
    and the end is excluded. A list of spans is used for both kinds. To give each kind its own, use
    `"spans": {"entity": [...], "noun_phrase": [...]}`. `spans` is optional. If spans overlap, the
    longest is kept.
    """
    for place, row in read_json_lines(path, encoding_errors, within):
        text = row.get("text") if isinstance(row, dict) else None
        rule = 'a document must be {"text": "...", "spans": [[start, end], ...]}'
        check(isinstance(text, str), place, rule, row)
        if encoding_errors == "replace":
            text = replace_surrogates(text)
        document = AnnotatedText(text, _spans(row.get("spans"), text, place), place)
        start, size = 0, len(text) if text.strip() else 0
        while start < size:
            length = size - start
            if length > _PIECE_CHARACTERS:
                length = _before_last_word(text[start : start + _PIECE_CHARACTERS])
                length = length or _PIECE_CHARACTERS  # The piece is blank.
            yield document.piece(start, start + length), start + length == size
            start += length


def _spans(given, text, place):
    """Returns checked spans by kind. A list is used for both kinds."""
    if given is None:
        return {}
    by_kind = given if isinstance(given, dict) else dict.fromkeys(SPAN_KINDS, given)
    for kind, spans in by_kind.items():
        rule = f"kinds of `spans` must be {' or '.join(SPAN_KINDS)}"
        check(kind in SPAN_KINDS, place, rule, kind)
        for span in spans if isinstance(spans, list) else [spans]:
            is_pair = isinstance(span, list) and [type(x) for x in span] == [int, int]
            is_inside = is_pair and 0 <= span[0] < span[1] <= len(text)
            rule = "`spans` must be a list of [start, end] in characters, with 0 <= start < end <="
            check(is_inside, place, f"{rule} {len(text)}, the length of the text", span)
    return {kind: filter_spans(spans) for kind, spans in by_kind.items()}
