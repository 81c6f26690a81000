"""Large files cut into ranges at ends of documents, for several workers to read."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from keras_spanbert import stores

GZIP = b"\x1f\x8b"
# All files are read so much at a time.
READ_BYTES = 1 << 20
# Of larger files: whoever reads them, in whatever number, they are cut at the same places.
RANGE_BYTES = 64 << 20


class ByteRange(NamedTuple):
    """A part of a file, or all of it.

    Attributes:
        start: int, its first byte.
        stop: int, the byte behind its last, or `None` at the file's end.
        first_line: int, the number of its first line, from 1, where lines were
            counted.
    """

    start: int = 0
    stop: int | None = None
    first_line: int = 1


WHOLE_FILE = ByteRange()


class FileRange(NamedTuple):
    """What one worker may read of a corpus.

    Attributes:
        file: int, the number of its file.
        first_document: int, the number of its first document.
        first_character: int, how many characters come before it.
        within: `ByteRange`, a part of the file, or all of it.
    """

    file: int
    first_document: int
    first_character: int
    within: ByteRange


def units_of(ranges: list[FileRange], joins_files: bool) -> list[list[int]]:
    """The numbers of ranges that are read together: one each, or those of a file."""
    units = []
    for number, place in enumerate(ranges):
        if joins_files and units and ranges[units[-1][0]].file == place.file:
            units[-1].append(number)
        else:
            units.append([number])
    return units


def training_sizes(
    starts: list[FileRange], num_documents: int, num_characters: int, held_out_every: int | None
) -> np.ndarray:
    """About how many characters are trained on from each start to the next, floats `[starts]`.

    Each n-th document of all is held out. 0 where all between are, and only there.
    """
    characters = np.diff([*(start.first_character for start in starts), num_characters])
    documents = np.array([*(start.first_document for start in starts), num_documents])
    if held_out_every is None:
        return characters.astype(float)
    return characters * (1.0 - np.diff(documents // held_out_every) / np.diff(documents))


def find_ranges(path: str, boundary: str, count_lines: bool = False) -> Iterator[ByteRange]:
    """Yields the ranges of a file, of which each holds whole documents.

    A range ends at the first end of a document behind a multiple of 64 MB: by
    `boundary` a newline (not a lone carriage return), or a blank line behind one
    with text. A file of at most 64 MB, one that is gzip, and one that is a
    document are one range.

    Args:
        path: string.
        boundary: "file", "blank_line" or "line".
        count_lines: bool. Whether ranges know their first line, for which all
            of a large file is read. Defaults to `False`.
    """
    size = stores.size(path)
    start, line = 0, 1
    if size > RANGE_BYTES and boundary != "file":
        with stores.open_binary(path) as file:
            is_plain = file.read(len(GZIP)) != GZIP
            while is_plain and (place := (start // RANGE_BYTES + 1) * RANGE_BYTES) < size:
                file.seek(place)
                stop = _next_end(file, boundary)
                if stop is None or stop >= size:
                    break
                yield ByteRange(start, stop, line)
                if count_lines:
                    line += _count_lines(file, start, stop)
                start = stop
    yield ByteRange(start, None, line)


def _next_end(file, boundary):
    """The offset behind the next end of a document, or None."""
    start, text_start = file.tell(), -1
    begins_line = False  # For all that is known here.
    # No newline is part of another character of UTF-8. Lines may be of any length.
    while data := file.readline(READ_BYTES):
        stop, ends_line = file.tell(), data.endswith(b"\n")
        if boundary == "line" and ends_line:
            return stop
        text = data.decode("utf-8", "replace")
        # In one of the reads of `read_documents` with the text before it and more behind it.
        is_apart = begins_line and text_start // READ_BYTES == stop // READ_BYTES
        if is_apart and not text.strip():
            return stop
        # Lone carriage returns end lines there.
        has_text = begins_line and text.splitlines()[-1].strip()
        text_start = start if has_text else -1
        start, begins_line = stop, ends_line
    return None


def _count_lines(file, start, stop):
    file.seek(start)
    num_lines = 0
    while start < stop:
        data = file.read(min(READ_BYTES, stop - start))
        num_lines += data.count(b"\n")
        start += len(data)
    return num_lines
