"""Cuts large files into ranges at ends of documents, for several workers to read."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from keras_spanbert import files

GZIP = b"\x1f\x8b"
# Number of bytes per read, for all files.
READ_BYTES = 1 << 20
# Larger files are cut at the first ends of documents after multiples of this size. The cuts do
# not depend on the number of workers.
RANGE_BYTES = 64 << 20
# The ends of documents at which a file may be cut. In UTF-8, these bytes are never part of another
# character.
_ENDS = {"line": re.compile(rb"\n"), "blank_line": re.compile(rb"\n[ \t\r]*\n")}
# Carriage returns that end a line because no newline follows.
_BARE_RETURNS = re.compile(rb"\r+(?![\r\n])")
# An end with more blanks than this may be missed between two reads.
_OVERLAP = 100


class ByteRange(NamedTuple):
    """A part of a file, or the whole file.

    Attributes:
        start: int. Offset of its first byte.
        stop: int. Offset after its last byte, or `None` for the file's end.
        first_line: int. Number of its first line, from 1, if lines were
            counted.
    """

    start: int = 0
    stop: int | None = None
    first_line: int = 1


WHOLE_FILE = ByteRange()


class FileRange(NamedTuple):
    """A part of a corpus that one worker may read.

    Attributes:
        file: int. Number of the file.
        first_document: int. Number of its first document.
        within: `ByteRange`, a part of the file or the whole file.
    """

    file: int
    first_document: int
    within: ByteRange


def find_ranges(path: str, boundary: str, count_lines: bool = False) -> Iterator[ByteRange]:
    """Yields the ranges of a file, each with whole documents.

    A range ends at the first document end after a multiple of 64 MB. Depending on
    `boundary`, that is a newline (not a lone carriage return), or a blank line. A file
    of at most 64 MB, a gzip file, or a file that is one document is a single range.

    With `count_lines`, the first line of each range is counted, which reads all of a large file.
    """
    size = files.size(path)
    start, line = 0, 1
    if size > RANGE_BYTES and boundary in _ENDS:
        with files.open_binary(path) as file:
            is_plain = file.read(len(GZIP)) != GZIP
            while is_plain and (place := (start // RANGE_BYTES + 1) * RANGE_BYTES) < size:
                stop = _next_end(file, place, _ENDS[boundary])
                if stop is None or stop >= size:
                    break
                yield ByteRange(start, stop, line)
                if count_lines:
                    line += _count_lines(file, start, stop)
                start = stop
    yield ByteRange(start, None, line)


def _next_end(file, place, end):
    """Returns the offset after the next end of a document from `place`, or `None`."""
    file.seek(place)
    rest = b""
    while data := file.read(READ_BYTES):
        data = rest + data
        if found := end.search(data):
            return file.tell() - len(data) + found.end()
        rest = data[-_OVERLAP:]
    return None


def _count_lines(file, start, stop):
    """Counts lines as `text_files.read_lines` does. There is a newline before `stop`."""
    file.seek(start)
    num_lines, rest = 0, b""
    while start < stop:
        data = file.read(min(READ_BYTES, stop - start))
        start += len(data)
        data = rest + data
        rest = data[len(data.rstrip(b"\r")) :]  # A newline may follow.
        data = data[: len(data) - len(rest)]
        num_lines += data.count(b"\n") + sum(map(len, _BARE_RETURNS.findall(data)))
    return num_lines
