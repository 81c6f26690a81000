"""Reads and checks files of rows and columns."""

import collections
import csv
import dataclasses
import logging
import math
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from keras_spanbert.checks import check_paths
from keras_spanbert.data.examples import (
    as_number,
    check,
    check_ids,
    check_known,
    check_label,
    check_text,
)
from keras_spanbert.data.text_files import read_json_lines, read_lines
from keras_spanbert.files import ending

# Python limits the size of a cell to 131,072 characters, for the whole process.
_LIMIT_LOCK = threading.Lock()
_NO_LIMIT = 2**31 - 1

_TABLES = {".csv": ",", ".tsv": "\t"}
_JSON_LINES = (".jsonl", ".jsonlines")
# The endings of files that `read_examples` reads.
ENDINGS = tuple(f"{kind}{gz}" for kind in [*_TABLES, *_JSON_LINES] for gz in ["", ".gz"])
_HINT = " (an argument, or a flag such as --text_column, can give another name)"
_QUOTED_HINT = ". For cells in quotes, use quoted=True (--quoted_tsv)"
_QUOTED_CELL = re.compile(r'"(?:[^"]|"")*"')
_SEVERAL = " (for several labels per row, set `label_separator` or --multi_label)"
_NOT_PRINTED = (
    "not be a list printed as text. Lists need a .jsonl file; from pandas, "
    'DataFrame.to_json("a.jsonl", orient="records", lines=True) writes it'
)
# Lists as Python, NumPy, JSON and R print them. Before matching, each quoted text is replaced with
# `'`, the beginning of a call with `[`, and a value without quotes with nothing.
_STRING = re.compile(r"'(?:[^'\\]|\\.)*'" r'|"(?:[^"\\]|\\.)*"', re.DOTALL)
_CALL = re.compile(r"\b(?:array|c|frozenset|list|np\.str_|set|tuple)\(")
_VALUE = re.compile(r"\bdtype=|\b(?:object|None|nan|null|NA)\b|\.\.\.")
# Words such as `("Yes")` and `[ "Yes" , "No" ]` are not lists.
_LIST_OF_STRINGS = re.compile(
    r"(?!\(\s*'\s*\)$|\[\s+'\s+\]$|.*\s,)[\[({][\s,\[\](){}]*'[\s,'\[\](){}]*[\])}]", re.DOTALL
)
_EMPTY_LIST = re.compile(r"\[\]|\(\)|\{\}|(?:set|list)\(\)|array\(\[\].*\)|character\(0\)")
# Numbers, or names without quotes.
_LIST_OF_OTHERS = re.compile(r"\[[-\s]*\d[-\s\d.,]*\]|\[[^\s\[\]][^\[\]]*,[^\[\]]*[^\s\[\]]\]")


def _read_quoted(path, delimiter):
    """Returns `(place, cells)` for the rows of a text file with cells in `"`."""
    lines = (line for _, line in read_lines(path, keep_ends=True))
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    found, line = [], 1
    with _LIMIT_LOCK:
        limit = csv.field_size_limit(_NO_LIMIT)
        try:
            for cells in rows:
                found.append((f"{path}, line {line}", cells))
                line = rows.line_num + 1
        except csv.Error as error:
            raise ValueError(
                f"{path}, line {line}: a row must be cells separated by {delimiter!r}. A cell with "
                f'`"` in it must be in `"`, with the inner `"` doubled. Received: {error}'
            ) from None
        finally:
            csv.field_size_limit(limit)
    return found


def read_table(
    path: str | os.PathLike,
    columns: Iterable[str],
    optional: Iterable[str] = (),
    delimiter: str = "\t",
    quoted: bool = False,
    header: list[str] | None = None,
    short: list | None = None,
    hint: str = "",
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields `(place, row)` for the rows of a table. `row` is a dict from column to cell.

    If `quoted`, cells may be in `"`, with delimiters, line ends and doubled `"` inside. The table
    must have the `columns`, and may have the `optional` ones. `header` has the columns of a file
    without a header. If the list `short` is given, rows with fewer cells than the header are
    skipped, and their places are added to it. `hint` is added to messages about missing columns.
    """
    wanted = list(columns)
    known = {*wanted, *optional}
    rule = f"the {len(header)} columns {', '.join(header)}" if header else None
    rows = ((place, line and line.split(delimiter)) for place, line in read_lines(path))
    for place, cells in _read_quoted(path, delimiter) if quoted else rows:
        if not cells:  # An empty line.
            continue
        if header is not None and len(cells) == len(header):
            yield place, {name: cell for name, cell in zip(header, cells) if name in known}
            continue
        are_quoted = hint and not quoted and any(cell.startswith('"') for cell in cells)
        quoted_hint = _QUOTED_HINT if are_quoted else ""
        if header is None:
            header = check_header(cells, wanted, known, place, hint + quoted_hint)
            rule = f"as many cells as the header, {len(header)}"
        elif short is not None and len(cells) < len(header):
            short.append(place)
        else:
            raise ValueError(
                f"{place}: a row must have {rule}, separated by {delimiter!r}{quoted_hint}. "
                f"Received: {len(cells)}, {cells!r:.80}"
            )
    if header is None:
        raise ValueError(f"{path}: a table must have a header. Received: an empty file")


def check_endings(paths: list[str]) -> list[str]:
    """Returns the paths. Raises a `ValueError` if one is not of a table or of JSON lines."""
    known = [*_TABLES, *_JSON_LINES]
    for path in paths:
        if ending(path) not in known:
            rule = f"A file must end in {', '.join(known)}, optionally with .gz"
            raise ValueError(f"{rule}. Received: {path}")
    return paths


def read_examples(
    paths,
    example: Callable,
    columns: Sequence[str | None],
    label: str,
    needs_labels: bool,
    quoted: bool | None = None,
) -> list[dict]:
    """Returns `example(row)` for each `Row` of tables, or of files of JSON lines.

    If it is `None`, the row is left out. `columns` may have `None` for a column that is not used.
    The column `label` must exist if `needs_labels`.
    """
    columns = [*filter(None, columns), *([label] if needs_labels else [])]
    examples, number, has_warned = [], 0, quoted is not None
    for path in check_endings(check_paths("paths", paths)):
        kind = ending(path)
        if kind in _TABLES:
            is_quoted = kind == ".csv" if quoted is None else quoted
            rows = read_table(path, columns, [label], _TABLES[kind], is_quoted, hint=_HINT)
        else:
            rows = read_json_lines(path)
        for place, cells in rows:
            if kind in _JSON_LINES:
                check(isinstance(cells, dict), place, "a line must be a JSON object", cells)
                check_header(list(cells), columns, columns, place, _HINT)
            elif kind == ".tsv" and not has_warned:
                if cell := next(filter(_QUOTED_CELL.fullmatch, cells.values()), None):
                    has_warned = True
                    logging.getLogger("keras_spanbert").warning(
                        "%s: the quotes of %.80s are read as a part of the text. If the program "
                        "that wrote the table added them, use quoted=True (--quoted_tsv)",
                        *(place, cell),
                    )
            examples.append(example(Row(cells, place, number)))
            number += 1
    return check_ids([one for one in examples if one is not None], paths)


@dataclasses.dataclass
class Row:
    """A row of a file. Its methods check and convert the cells of columns."""

    cells: dict  # From columns to values: strings, or any values in JSON lines.
    place: str  # Path and line, for messages.
    number: int  # From 0, over all files.

    def check(self, is_right, name, rule, value):
        check(is_right, self.place, f"`{name}` must {rule}", value)

    def id(self, name):
        """Returns the id as a string, or the number of the row if no column is given."""
        value = self.cells[name] if name else self.number
        return str(value) if type(value) is int else self.text(name)

    def text(self, name, may_be_empty=False):
        value = self.cells[name]
        value = "" if value is None and may_be_empty else value
        is_text = isinstance(value, str) and (may_be_empty or not is_blank(value))
        self.check(is_text, name, "be a non-empty text", value)
        check_text(self.place, **{name: [value]})
        return value

    def check_not_printed(self, name, of_labels=False):
        """Refuses a list printed as text; `of_labels` also one of numbers or unquoted names."""
        value = self.cells.get(name)
        text = value.strip() if isinstance(value, str) else ""
        if not text.endswith(("]", ")", "}")):
            return
        inner = _VALUE.sub("", _CALL.sub("[", _STRING.sub("'", text)))
        is_list = _LIST_OF_STRINGS.fullmatch(inner) or _EMPTY_LIST.fullmatch(text)
        is_list = is_list or of_labels and _LIST_OF_OTHERS.fullmatch(text)
        self.check(not is_list, name, _NOT_PRINTED, value)

    def strings(self, name, are_labels=False):
        """Returns a list of strings unchanged, or a string split at blanks."""
        self.check_not_printed(name, are_labels)
        value = self.cells[name]
        value = value.split() if isinstance(value, str) else value
        are_strings = isinstance(value, list) and all(isinstance(item, str) for item in value)
        self.check(are_strings, name, "be a list of strings", value)
        check_text(self.place, **{name: value})
        return value

    def integer(self, name):
        value = self.cells[name]
        if isinstance(value, str) and value.strip().isdecimal() and len(value) < 10:
            value = int(value)
        rule = "be an integer that counts characters from 0"
        self.check(type(value) is int, name, rule, value)
        return value

    def label(self, name, needs_labels, labels=None, is_regression=False, separator=None):
        """Returns a label, a number, a list of labels if there is a separator, or `None`."""
        value = self.cells.get(name)
        self.check_not_printed(name, of_labels=separator is not None)
        if separator is not None and not (value is None and not needs_labels):
            values = value
            if isinstance(value, str):
                values = value.split(separator) if value.strip() else []
            rule = f"be a list of labels, or a text of labels with {separator!r} between them"
            self.check(isinstance(values, list), name, rule, value)
            self.check(not any(map(is_blank, values)), name, "not have an empty label", value)
            return [self._label(name, value, labels) for value in values]
        if is_blank(value):
            check_label(self.place, None, needs_labels, f"a `{name}`")
            return None
        if not is_regression:
            return self._label(name, value, labels)
        number = as_number(value)
        self.check(math.isfinite(number), name, "be a finite number", value)
        return number

    def _label(self, name, value, labels):
        value = str(value) if type(value) is int else value
        hint = _SEVERAL if isinstance(value, list) else ""
        self.check(isinstance(value, str), name, f"be a string or integer{hint}", value)
        check_text(self.place, **{name: [value]})
        value = value.strip()
        check_known(self.place, f"`{name}`", value, labels)
        return value


def is_blank(value) -> bool:
    """Returns whether a cell is empty or has only blanks."""
    return value is None or isinstance(value, str) and not value.strip()


def check_header(header: list[str], columns, known, place: str, hint: str = "") -> list[str]:
    """Returns the header, after checking that it has all `columns` and repeats none of `known`."""
    missing = [name for name in columns if name not in header]
    if missing:
        raise ValueError(
            f"{place}: the columns must include {', '.join(columns)}{hint}. Received: no "
            f"{', '.join(missing)} in {header!r:.200}"
        )
    twice = [name for name, n in collections.Counter(header).items() if n > 1 and name in known]
    if twice:
        raise ValueError(f"{place}: a column must not be repeated. Received: {twice[0]!r} again")
    return header
