"""Files of tagged words in columns, as CoNLL-2003's and WNUT 2017's."""

import itertools
import os
import re

from keras_spanbert import files
from keras_spanbert.data.examples import as_list
from keras_spanbert.data.text_files import read_lines
from keras_spanbert.metrics.entities import read_tags

_TAG = re.compile(r"O|[BIES]-[^\s,]+")
_DOCUMENT = "-DOCSTART-"


def read(
    paths,
    column: int | None = -1,
    needs_labels: bool = True,
    types=None,
    convert: bool = True,
    entities: bool = True,
) -> list[dict]:
    """Reads and checks files of a word a line, with its tag in one of the columns.

    Columns stand between tabs, or where a line has none, between spaces; empty
    ones at a line's end are none. A line of blanks ends a sentence, as does one
    that begins with `-DOCSTART-`, which is left out.

    Tags are given in IOB2, whatever the file has: as conlleval reads them, an
    `I-` that continues nothing starts an entity, as in the files of CoNLL-2003,
    and `E-` and `S-` end one and are one.

    Args:
        paths: string or list of strings.
        column: int. Where the tag stands, counted from 0, or from the end with
            -1; words stand in column 0. `None` reads words alone. Defaults to
            `-1`, the last; of LitBank's entities 1 is the outermost layer.
        needs_labels: bool. Whether each word must have a tag, where `column` is
            not `None`. If not, sentences without are read too. Defaults to
            `True`.
        types: list of strings, the types of entities that there may be, as of
            the training set. Defaults to `None`, all.
        convert: bool. Whether to give tags in IOB2. If not, they are as in the
            file, as strict scores of predictions need them. Defaults to `True`.
        entities: bool. Whether tags are of entities. If not, they may be any, as
            parts of speech, `types` are those that there may be, and they are as in
            the file. Defaults to `True`.

    Returns:
        List of dicts, one a sentence: `words`, a list of strings; `tags`, a list
        of `"O"`, `"B-"` or `"I-"` and a type, or `None`.

    Raises:
        ValueError: where a line has no such column, an empty word, a tag of
            another form or an unknown type, or another number of columns than
            the sentence's first (path, line and rule are named), or there are no
            sentences.

    Example:
    ```python
    examples = keras_spanbert.data.conll.read("wnut17train.conll")
    gold = [example["tags"] for example in examples]
    keras_spanbert.metrics.entities(gold, gold)["f1"]  # 100.0
    ```

    Reference:
        [Tjong Kim Sang and De Meulder 2003](https://aclanthology.org/W03-0419/);
        [Derczynski et al. 2017](https://aclanthology.org/W17-4418/).
    """
    examples = []
    for path in as_list(paths):
        for rows in _sentences(path):
            examples.append(_example(rows, column, needs_labels, types, convert, entities))
    if not examples:
        raise ValueError(f"{paths} must hold sentences. Received: none")
    return examples


def has_tags(path: str | os.PathLike, types=()) -> bool:
    """Whether a file is of words with their tags, for `read`, rather than of texts.

    So it is where each line that is not blank ends in a tag of entities behind a
    word, and where in any line such a tag, or one of `types`, stands behind a tab:
    with it one file may have lines that `read` refuses.

    Args:
        path: string.
        types: list of strings, other tags that there may be. Defaults to `()`.

    Raises:
        ValueError: where a line is not UTF-8, or the file is damaged gzip.

    Example:
    ```python
    keras_spanbert.data.conll.has_tags("emerging.test.annotated")  # True
    ```
    """
    are_tagged = set()
    for _, line in read_lines(path):
        cells = _cells(line)
        if cells and "\t" in line:
            if any(cell in types or _TAG.fullmatch(cell) for cell in cells[1:]):
                return True
            are_tagged.add(False)
        elif cells:
            are_tagged.add(len(cells) > 1 and bool(_TAG.fullmatch(cells[-1])))
    return are_tagged == {True}


def tag_names(examples) -> list[str]:
    """The tags that models of examples give, which always make whole entities.

    Args:
        examples: list of dicts, of `read`, with tags.

    Returns:
        List of strings: `"O"`, then for each type of entity, in the order of the
        alphabet, `B-` and `I-` with it, whether both stand in `examples` or one.

    Raises:
        ValueError: where a sentence has no tags.

    Example:
    ```python
    examples = keras_spanbert.data.conll.read("train.txt")
    keras_spanbert.data.conll.tag_names(examples)  # ["O", "B-LOC", "I-LOC", "B-MISC", ...]
    ```
    """
    if any(example["tags"] is None for example in examples):
        raise ValueError("`examples` must all have tags. Received: one of None")
    tags = {tag for example in examples for tag in example["tags"]}
    types = sorted({tag.partition("-")[2] for tag in tags - {"O"}})
    return ["O", *(f"{prefix}-{name}" for name in types for prefix in "BI")]


def to_iob2(tags) -> list[str]:
    """Tags of one sentence in IOB2, as `read` gives them: see there.

    Raises:
        ValueError: where a tag is of another form.

    Example:
    ```python
    keras_spanbert.data.conll.to_iob2(["I-x", "I-x", "S-x"])  # ["B-x", "I-x", "B-x"]
    ```
    """
    result = ["O"] * len(tags)
    for name, start, end in read_tags(tags):
        result[start:end] = [f"B-{name}", *[f"I-{name}"] * (end - start - 1)]
    return result


def write_predictions(
    path: str | os.PathLike, examples, predictions, delimiter: str = "\t", entities: bool = True
) -> None:
    """Writes words with predicted tags, as the official scorers read them, whole or not at all.

    A line is the word, the tag of `examples` where there is one, and the
    predicted tag; an empty line ends a sentence.

    Args:
        path: string.
        examples: list of dicts, of `read`.
        predictions: list of lists of tags, one a word.
        delimiter: string. Defaults to a tab, as WNUT's scorer wants it;
            conlleval wants `" "`.
        entities: bool. Whether tags are of entities: see `read`. Defaults to `True`.

    Raises:
        ValueError: where tags are not as many as words, one is of another form,
            or a word or tag is empty or has a delimiter or line end.
        OSError: where the file cannot be written.

    Example:
    ```python
    examples = keras_spanbert.data.conll.read("emerging.test.annotated")
    predictions = [["O"] * len(example["words"]) for example in examples]
    keras_spanbert.data.conll.write_predictions("predictions.txt", examples, predictions)
    ```
    """
    if len(examples) != len(predictions):
        raise ValueError(
            f"`predictions` must be one list for each sentence. Received: {len(predictions)} for "
            f"{len(examples)} sentences"
        )
    lines = []
    for i, (example, tags) in enumerate(zip(examples, predictions)):
        columns = [example["words"], *([example["tags"]] if example.get("tags") else []), tags]
        if len(tags) != len(example["words"]):
            raise ValueError(
                f"`predictions` must have a tag for each word. Received: {len(tags)} for "
                f"{len(example['words'])} words in predictions[{i}]"
            )
        for cells in zip(*columns):
            tag = cells[-1]
            if not isinstance(tag, str) or (entities and not _TAG.fullmatch(tag)):
                raise ValueError(
                    f"A tag must be {'O or B-type, I-type' if entities else 'a string'}. Received: "
                    f"{tag!r:.80} in predictions[{i}]"
                )
            for cell in (cells[0], tag):
                if not cell.strip() or re.search(rf"[\r\n{re.escape(delimiter)}]", cell):
                    raise ValueError(
                        f"Words and tags must not be empty, nor have {delimiter!r} or line ends. "
                        f"Received: {cell!r:.80}"
                    )
            lines.append(delimiter.join(cells) + "\n")
        lines.append("\n")
    with files.replacing(os.fspath(path)) as file:
        file.writelines(lines)


def _sentences(path):
    """Lists of `(place, cells)`, one a sentence."""
    rows = ((place, _cells(line)) for place, line in read_lines(path))
    for is_sentence, group in itertools.groupby(rows, lambda row: row[1] is not None):
        if is_sentence:
            yield list(group)


def _cells(line):
    """The columns of a line, `None` where it ends a sentence."""
    if not line.strip(" \t"):
        return None
    cells = line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))
    while not cells[-1].strip(" "):
        cells.pop()
    cells = [cell.strip(" ") for cell in cells]
    return None if cells[0] == _DOCUMENT else cells


def _example(rows, column, needs_labels, types, convert, entities):
    first_place, first = rows[0]
    is_tagged = column is not None and len(first) > 1
    if needs_labels and column is not None and not is_tagged:
        raise ValueError(
            f"{first_place}: a line must be a word and its tag, between tabs or spaces; "
            f"needs_labels=False reads words alone. Received: {first!r:.80}"
        )
    if is_tagged and not (-len(first) < column < len(first) and column):
        raise ValueError(
            f"{first_place}: `column` (--label_column) must be one of the columns after the first, "
            f"1 to {len(first) - 1}, or -1 and so on from the end. Received: column={column}"
        )
    for place, cells in rows:
        if len(cells) != len(first):
            raise ValueError(
                f"{place}: the lines of a sentence must have one number of columns, {len(first)} "
                f"here. Received: {len(cells)}, {cells!r:.80}"
            )
        if not cells[0]:
            raise ValueError(f"{place}: a word must not be empty. Received: {cells!r:.80}")
        if is_tagged:
            check_tag(cells[column], types, place, entities)
    tags = [cells[column] for _, cells in rows] if is_tagged else None
    return {
        "words": [cells[0] for _, cells in rows],
        "tags": to_iob2(tags) if tags and convert and entities else tags,
    }


def check_tag(tag: str, types, place: str, entities: bool = True) -> None:
    """Raises a ValueError where a tag is of another form, or not one of those there may be."""
    if not entities:
        if not tag.strip() or (types is not None and tag not in types):
            rule = "not be empty" if types is None else f"be one of {', '.join(types)}"
            raise ValueError(f"{place}: a tag must {rule}. Received: {tag!r:.80}")
        return
    if not _TAG.fullmatch(tag):
        raise ValueError(
            f"{place}: a tag must be O, or B-, I-, E- or S- and a type without commas. Received: "
            f"{tag!r:.80}"
        )
    if types is not None and tag != "O" and tag[2:] not in types:
        raise ValueError(
            f"{place}: the type of an entity must be one of {', '.join(types)}. Received: {tag!r}"
        )
