"""Reads CSV, TSV and JSON lines. A reader is a dict of columns and functions of their cells."""

import csv
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence

from keras_spanbert.checks import check_paths
from keras_spanbert.data.examples import add_id, as_number, check, check_not_empty
from keras_spanbert.data.text_files import read_json_lines, read_lines
from keras_spanbert.files import ending
from keras_spanbert.wording import LOG

# The endings of files, with the delimiter of cells, `None` for JSON lines.
_KINDS = {".csv": ",", ".tsv": "\t", ".jsonl": None, ".jsonlines": None}
ENDINGS = tuple(_KINDS)
_HINT = " (an argument, or a flag such as --text_column, can give another name)"
_QUOTED = "If the program that wrote the table quoted its cells, use quoted=True (--quoted_tsv)"
# Lists of strings as pandas writes them, and any list in brackets.
_PRINTED = re.compile(r"""\[+(np\.str_\()?['"].*\]|c?\(['"].*,.*\)|\{['"].*\}|\[\]|\(\)""", re.S)
_PRINTED_LABELS = re.compile(rf"{_PRINTED.pattern}|\[\S.*\]|\[[\s\d]*\]", re.S)
csv.field_size_limit(2**31 - 1)  # Python's limit, 131,072 characters, is too low for texts.


def read_rows(
    path, columns, delimiter="\t", quoted=False, header=None, short=None, hint=""
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields `(place, row)` for the rows of a table with `columns`. `row` maps columns to cells.

    If `quoted`, cells may be in `"`, with delimiters, line ends and doubled `"` inside. `header`
    has the columns of a file without a header. If the list `short` is given, rows with fewer cells
    than the header are skipped, and their places are added to it. `hint` says how to name columns.
    """
    lines = (line for _, line in read_lines(path, keep_ends=True))
    first, line = next(lines, ""), 1
    quoting = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    lines = itertools.chain([first], lines)
    rows = csv.reader(lines, delimiter=delimiter, strict=True, quoting=quoting)
    advice = f". {_QUOTED}" if hint and not quoted else ""
    if other := next((c for c in ";\t," if c in first and delimiter not in first), None):
        advice = (
            f". {other!r} seems to separate the cells. With pandas, pd.read_csv(path, "
            f"sep={other!r}).to_csv(path, sep={delimiter!r}, index=False) converts the file"
        )
    try:
        for cells in rows:
            place, line = f"{path}, line {line}", rows.line_num + 1
            if not cells:  # An empty line.
                continue
            if header is None:
                header = [cell.strip() for cell in cells]
                check_columns(header, [*columns], place, hint + advice)
            elif len(cells) == len(header):
                yield place, dict(zip(header, cells))
            elif short is not None and len(cells) < len(header):
                short.append(place)
            else:
                names = f"{', '.join(header):.80}"
                rule = f"a row must have {len(header)} cells ({names}), separated by {delimiter!r}"
                received = f"{len(cells)}, {cells!r:.80}"
                raise ValueError(f"{place}: {rule}{advice}. Received: {received}")
    except csv.Error as error:
        raise ValueError(
            f"{path}, line {line}: a row must be cells separated by {delimiter!r}. A cell with "
            f'`"` in it must be in `"`, with the inner `"` doubled{advice}. Received: {error}'
        ) from None
    if header is None:
        raise ValueError(f"{path}: a table must have a header. Received: an empty file")


def check_columns(found: list[str], columns: list[str], place: str, hint: str = "") -> None:
    """Raises a `ValueError` unless each of the `columns` is found once."""
    if missing := [name for name in columns if name not in found]:
        raise ValueError(
            f"{place}: the columns must include {', '.join(columns)}{hint}. Received: no "
            f"{', '.join(missing)} in {found!r:.200}"
        )
    for name in columns:
        check(found.count(name) == 1, place, "a column must not be repeated", name)


def check_endings(paths, more=()) -> list[str]:
    """Returns the paths as a list. Raises a `ValueError` if one has another ending.

    They are those of tables, JSON lines, and `more`.
    """
    for path in (paths := check_paths("paths", paths)):
        if ending(path) not in [*_KINDS, *more]:
            rule = f"A file must end in {', '.join([*_KINDS, *more])}, optionally with .gz"
            raise ValueError(f"{rule}. Received: {path}")
    return paths


def read_examples(
    paths,
    columns: dict[str, tuple[str | tuple | None, Callable]],
    build: Callable,
    optional: Sequence[str] = (),
    quoted: bool | None = None,
    rows: Callable = read_json_lines,
    endings: Sequence[str] = (),
) -> list[dict]:
    """Returns an example for each row of tables, or of files of JSON lines.

    `columns` maps keys of the example to a column, several or `None`, and to the function that
    converts a cell, or the list of several. Its `ValueError` completes "`column` must ...". An `id`
    without a column is the number of the row. `build`, a function of an example and its place,
    returns the final example, or `None` to leave the row out. Rows may lack `optional` columns.
    `rows`, a function of the path of JSON lines, or of a file with one of `endings`, yields the
    place and the row of each line.
    """
    names = ([of] if isinstance(of, str) else of or () for of, _ in columns.values())
    required = [name for name in itertools.chain(*names) if name not in optional]
    examples, numbers, ids, has_warned = [], itertools.count(), set(), quoted is not None
    for path in check_endings(paths, endings):
        is_csv, delimiter = ending(path) == ".csv", _KINDS.get(ending(path))
        is_quoted = is_csv if quoted is None else quoted
        table = delimiter and read_rows(path, required, delimiter, is_quoted, hint=_HINT)
        for (place, row), number in zip(table or rows(path), numbers):
            if delimiter is None:
                check(isinstance(row, dict), place, "a line must be a JSON object", row)
                check_columns([*row], required, place, _HINT)
            elif not has_warned and not is_csv:
                quotes = (row[n] for n in required if re.fullmatch('"([^"]|"")*"', row[n]))
                if has_warned := next(quotes, None):
                    text = "%s: the quotes of %.80s are read as a part of the text. %s"
                    LOG.warning(text, place, has_warned, _QUOTED)
            example = {}
            for key, (of, convert) in columns.items():
                cells = row.get(of) if of is None or isinstance(of, str) else [*map(row.get, of)]
                try:
                    example[key] = None if of is None else convert(cells)
                except ValueError as error:
                    shown = of if isinstance(of, str) else "`, `".join(of)
                    raise ValueError(f"{place}: `{shown}` must {error}") from None
            if "id" in example:
                name = example["id"] = str(number) if example["id"] is None else example["id"]
                add_id(ids, name, place)
            if (example := build(example, place)) is not None:
                examples.append(example)
    return check_not_empty(examples, paths)


# === Functions of cells ===
def refuse(rule: str, value):
    """Raises a `ValueError` that completes "`column` must ..."."""
    raise ValueError(f"{rule}. Received: {value!r:.80}")


def is_blank(value) -> bool:
    """Returns whether a cell is empty or has only blanks."""
    return value is None or isinstance(value, str) and not value.strip()


def as_text(value) -> str:
    is_text = isinstance(value, str) and value.strip()
    return value if is_text else refuse("be a non-empty text", value)


def as_optional_text(value) -> str:
    value = "" if value is None else value
    return value if isinstance(value, str) else refuse("be a text", value)


def as_id(value) -> str:
    return str(value) if type(value) is int else as_text(value)


def as_span(cells) -> list[int]:
    """Returns the start and the end of a span."""
    are_digits = [isinstance(c, str) and c.strip().isdecimal() and len(c) < 10 for c in cells]
    span = [int(cell) if is_digits else cell for cell, is_digits in zip(cells, are_digits)]
    rule = "be integers that count characters from 0, the start and the end"
    return span if [*map(type, span)] == [int, int] else refuse(rule, cells)


def as_strings(value, are_labels: bool = False) -> list[str]:
    """Returns a list of strings unchanged, or a string split at blanks."""
    check_not_printed(value, are_labels)
    value = value.split() if isinstance(value, str) else value
    are_strings = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return value if are_strings else refuse("be a list of strings", value)


def check_not_printed(value, are_labels: bool = False) -> None:
    """Refuses a list printed as text; `are_labels` also one without quotes, such as [0, 7]."""
    pattern = _PRINTED_LABELS if are_labels else _PRINTED
    if isinstance(value, str) and pattern.fullmatch(value.strip()):
        refuse(
            "not be a list printed as text. Lists need a .jsonl file; from pandas, "
            'DataFrame.to_json("a.jsonl", orient="records", lines=True) writes it',
            value,
        )


def label_of(is_needed, known=None, is_regression=False, separator=None, skipped=None) -> Callable:
    """Returns the function of a cell with a label, or with several if there is a separator.

    It returns `None` for no label, and for the label `skipped`.
    """

    def one(value):
        value = str(value).strip() if type(value) in (int, str) else value
        if not isinstance(value, str):
            hint = "several per row need `label_separator` or --multi_label"
            refuse(f"be a string or integer ({hint})", value)
        if known is not None and value not in known:
            hint = ' (skip_label="-", --skip_label=-, leaves such rows out)' * (value == "-")
            refuse(f"be one of {', '.join(known)}{hint}", value)
        return value

    def label(value):
        check_not_printed(value, separator is not None)
        if value is not None and str(value).strip() == skipped:
            return None
        if value is None or separator is None and is_blank(value):
            rule = "not be empty, because training and scoring need labels"
            return refuse(rule, value) if is_needed else None
        if separator is not None:
            values = value.split(separator) if isinstance(value, str) else value
            values = [] if is_blank(value) else values
            if not isinstance(values, list) or any(map(is_blank, values)):
                refuse(f"be a list of labels, or labels with {separator!r} between them", value)
            return [*map(one, values)]
        if not is_regression:
            return one(value)
        number = as_number(value)
        return number if math.isfinite(number) else refuse("be a finite number", value)

    return label
