"""Text files read as documents, a megabyte at a time, and checked on the way."""

import codecs
import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator

from keras_spanbert import stores
from keras_spanbert.data.file_ranges import GZIP, READ_BYTES, WHOLE_FILE, ByteRange

DOCUMENT_BOUNDARIES = ("file", "blank_line", "line")

_READ_BYTES = READ_BYTES
_DAMAGES = (EOFError, zlib.error, gzip.BadGzipFile)
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# A document longer than this is read in pieces, cut between words.
_PIECE_CHARACTERS = 1 << 16
_BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*")


def find_files(patterns: str | os.PathLike | Iterable[str | os.PathLike]) -> list[str]:
    """The sorted files that one or several globs match, each under its first name alone."""
    patterns = [patterns] if isinstance(patterns, (str, os.PathLike)) else patterns
    files = set()
    for pattern in map(os.fspath, patterns):
        found = list(stores.find(pattern))
        if not found:
            raise ValueError(f"Files must exist. Received: {pattern}, which no file matches")
        paths = [pattern] if stores.is_store(pattern) else found
        folder = next((path for path in paths if stores.is_folder(path)), None)
        if folder is not None:
            raise ValueError(
                f"Files must be named, as by '{folder}/*'. Received: {folder}, a folder"
            )
        files.update(found)
    by_place = {}
    for path in sorted(files, reverse=True):
        by_place[path if stores.is_store(path) else os.path.realpath(path)] = path
    return sorted(by_place.values())


def read_documents(
    path: str, boundary: str, encoding_errors: str, within: ByteRange = WHOLE_FILE
) -> Iterator[tuple[str, bool]]:
    """Yields `(text, ends_document)` from a file; long documents come in pieces.

    The ranges of a file, one after another, give the pieces that the whole file
    gives: reads end at the same places.

    Args:
        path: string.
        boundary: "file", "blank_line" or "line".
        encoding_errors: "strict", or "replace" to read on behind bytes that are
            not UTF-8.
        within: `ByteRange` to read. Defaults to the whole file.

    Raises:
        ValueError: where the file is binary, not UTF-8, or damaged gzip.
    """
    # With a document's end goes the white space behind it that the same read brings.
    before = "\n\n" if within.start % _READ_BYTES else ""
    return _split_documents(_read_text(path, encoding_errors, within), boundary, before)


def _read_text(path, encoding_errors, within):
    """Yields the text of a file's range in parts, with line ends as `\\n`."""
    decoder = codecs.getincrementaldecoder("utf-8")(encoding_errors)
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    offset = within.start
    with stores.open_binary(path) as file:
        file = _open_range(file, within)
        while True:
            size = _READ_BYTES - offset % _READ_BYTES
            if within.stop is not None:
                size = min(size, within.stop - offset)
            try:
                data = file.read(size)
            except _DAMAGES as error:
                raise ValueError(f"A gzip file must be whole. Received: {path}: {error}") from None
            if offset == 0 and data.startswith(_UTF_16):
                raise ValueError(
                    "Text must be UTF-8: `iconv -f UTF-16 -t UTF-8` writes it so. Received: "
                    f"{path}, which begins as UTF-16"
                )
            if (nul := data.find(0)) >= 0:
                raise ValueError(
                    "A file must hold text: where this is text, `tr -d '\\000'` takes such bytes "
                    f"out. Received: {path}, binary: a zero byte at byte {offset + nul}"
                )
            waiting = len(decoder.getstate()[0])
            try:
                text = decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"Text must be UTF-8; --encoding_errors=replace (encoding_errors='replace') "
                    f"reads on. Received: {path}, {error.reason} at byte "
                    f"{offset - waiting + error.start}"
                ) from None
            if text.startswith("\ufeff") and offset == 0:
                text = text[1:]  # A byte order mark.
            yield newlines.decode(text, final=not data)
            offset += len(data)
            if not data:
                return


def _open_range(file, within):
    """A file that is open for bytes, at a range's start, or what is in it where it is gzip."""
    if within.start:
        file.seek(within.start)
        return file
    return gzip.GzipFile(fileobj=file) if file.peek(len(GZIP)).startswith(GZIP) else file


def _split_documents(parts, boundary, rest=""):
    """Yields `(text, ends_document)` from a file's text; blanks are dropped."""
    is_open = False  # Whether a piece was yielded without its document's end.
    for part in parts:
        *documents, rest = _split(rest + part, boundary)
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


def cut_into_pieces(text: str) -> Iterator[tuple[int, int]]:
    """Yields start and stop of the pieces of a document, cut between words."""
    start = 0
    while len(text) - start > _PIECE_CHARACTERS:
        size = _before_last_word(text[start : start + _PIECE_CHARACTERS])
        size = size or _PIECE_CHARACTERS  # Of nothing but blanks.
        yield start, start + size
        start += size
    yield start, len(text)


def _before_last_word(text):
    # The last word may go on, and blanks may become a blank line.
    stripped = len(text.rstrip())
    if stripped == len(text):
        space = max(text.rfind(character) for character in " \n\t")
        # A "word" that long is none: it is cut where it stands.
        stripped = len(text[:space].rstrip()) if space > len(text) // 2 else stripped
    return stripped


def _split(text, boundary):
    if boundary == "file":
        return [text]
    return text.split("\n") if boundary == "line" else _BLANK_LINES.split(text)


def read_lines(
    path: str | os.PathLike, encoding_errors: str = "strict", within: ByteRange = WHOLE_FILE
) -> Iterator[tuple[str, str]]:
    """Yields `(place, line)` of a text file, plain or gzip; `place` is path and line for messages.

    Args:
        path, encoding_errors, within: see `read_documents`.

    Raises:
        ValueError: where a line is not UTF-8, unless `encoding_errors` is
            "replace", or the file is damaged gzip.
    """
    number = 0
    with stores.open_binary(path) as file:
        try:
            lines = _lines_of(_open_range(file, within), within)
            for number, line in enumerate(lines, start=within.first_line):
                place = f"{path}, line {number}"
                try:
                    # A byte order mark may stand at the start.
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8", encoding_errors)
                except UnicodeDecodeError as error:
                    if number == 1 and line.startswith(_UTF_16):
                        raise ValueError(
                            f"{place}: text must be UTF-8: `iconv -f UTF-16 -t UTF-8` writes it "
                            "so. Received: the beginning of UTF-16"
                        ) from None
                    raise ValueError(
                        f"{place}: text must be UTF-8. Received: {error.reason} at byte "
                        f"{error.start}"
                    ) from None
                yield place, text.rstrip("\r\n")
        except _DAMAGES as error:
            raise ValueError(
                f"A gzip file must be whole. Received: {path}, damaged after line {number}: {error}"
            ) from None


def _lines_of(file, within):
    offset = within.start
    for line in file:
        yield line
        offset += len(line)
        if offset == within.stop:
            return


def read_json_lines(
    path: str | os.PathLike, encoding_errors: str = "strict", within: ByteRange = WHOLE_FILE
) -> Iterator[tuple]:
    """Yields `(place, value)` of a file of a JSON value a line: see `read_lines`.

    Raises:
        ValueError: where a line is not JSON.
    """
    lines = read_lines(path, encoding_errors, within)
    for number, (place, line) in enumerate(lines, start=within.first_line):
        if line.strip():
            yield place, parse_json(line, path, number)


def read_json(path: str | os.PathLike):
    """The value of a JSON file, plain or gzip: see `read_lines`.

    Raises:
        ValueError: where it is not JSON in UTF-8.
    """
    return parse_json("\n".join(line for _, line in read_lines(path)), path)


def parse_json(text: str, path: str | os.PathLike, line: int = 1):
    """The value of JSON text, which begins at a line of a file.

    Raises:
        ValueError: where it is not JSON.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line += error.lineno - 1
        received = f"{error.msg}, column {error.colno}"
    except RecursionError:
        received = "lists in lists too deep"
    raise ValueError(f"{path}, line {line}: must be JSON. Received: {received}")
