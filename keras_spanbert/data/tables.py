"""Files of rows and columns, checked as they are read."""

import collections
import csv
import os
from collections.abc import Iterable, Iterator

from keras_spanbert.data.text_files import read_lines


def read_rows(
    path: str | os.PathLike, delimiter: str = "\t", quoted: bool = False
) -> Iterator[tuple[str, list[str]]]:
    """Yields `(place, cells)` of the rows of a file; empty lines are none.

    Args:
        path: string. A text file, plain or gzip, in UTF-8.
        delimiter: string. What stands between cells. Defaults to a tab.
        quoted: bool. Whether a cell may stand between `"`, and then hold
            delimiters, line ends and, doubled, `"`. Where not, these are
            characters as others are. Defaults to `False`.

    Raises:
        ValueError: where a line is not UTF-8, the file is damaged gzip, or
            quotes do not close; `place`, path and line, is named.
    """
    if not quoted:
        for place, line in read_lines(path):
            if line:
                yield place, line.split(delimiter)
        return
    places = []  # Of the lines of the row that is being read.

    def lines():
        for place, line in read_lines(path):
            places.append(place)
            yield line + "\n"

    rows = csv.reader(lines(), delimiter=delimiter, strict=True)
    while True:
        places.clear()
        try:
            cells = next(rows, None)
        except csv.Error as error:
            raise ValueError(
                f'{places[0]}: a row must be cells between {delimiter!r}, where a cell with `"` in '
                f'it stands between `"` and has it doubled. Received: {error}'
            ) from None
        if cells is None:
            return
        if cells:
            yield places[0], cells


def read_table(
    path: str | os.PathLike,
    columns: Iterable[str],
    optional: Iterable[str] = (),
    delimiter: str = "\t",
    quoted: bool = False,
    short: list | None = None,
    hint: str = "",
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields `(place, row)` of a file with a header; a row is a dict of the columns asked for.

    Args:
        path: string.
        columns: names that the header must have, among others.
        optional: names that it may have.
        delimiter, quoted: see `read_rows`.
        short: list, to which the places of rows with fewer cells than the header
            are added, instead of an error. Defaults to `None`.
        hint: string, what the message of a missing column adds. Defaults to
            `""`.

    Raises:
        ValueError: see `read_rows`; and where the header has not all columns, or
            one of these twice, or a row has not as many cells as the header.
    """
    header = places = None
    wanted = list(columns)
    known = {*wanted, *optional}
    for place, cells in read_rows(path, delimiter, quoted):
        if header is None:
            header = check_header(cells, wanted, known, place, hint)
            places = {name: i for i, name in enumerate(header) if name in known}
            continue
        if short is not None and len(cells) < len(header):
            short.append(place)
            continue
        if len(cells) != len(header):
            raise ValueError(
                f"{place}: a row must have as many cells as the header, {len(header)}, between "
                f"{delimiter!r}. Received: {len(cells)}, {cells!r:.80}"
            )
        yield place, {name: cells[i] for name, i in places.items()}
    if header is None:
        raise ValueError(f"{path}: a table must have a header. Received: an empty file")


def check_header(header: list[str], columns, known, place: str, hint: str = "") -> list[str]:
    """The header, which has all of `columns`, and none of `known` twice."""
    missing = [name for name in columns if name not in header]
    if missing:
        raise ValueError(
            f"{place}: the columns must include {', '.join(columns)}{hint}. Received: no "
            f"{', '.join(missing)} in {header!r:.200}"
        )
    twice = [name for name, n in collections.Counter(header).items() if n > 1 and name in known]
    if twice:
        raise ValueError(f"{place}: a column may stand once. Received: {twice[0]!r} again")
    return header
