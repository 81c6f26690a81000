"""Reads and writes files of tagged words in columns, such as CoNLL-2003 and WNUT 2017."""

import itertools
import os
import re

from keras_spanbert.checks import check_id, check_paths
from keras_spanbert.data.examples import check, check_known, check_not_empty, write_lines
from keras_spanbert.data.text_files import read_lines
from keras_spanbert.metrics.entities import ROLES, read_tags
from keras_spanbert.wording import LOG

_TAG = re.compile(rf"O|[{''.join(ROLES)}]-[^\s,]+")
_DOCUMENT = "-DOCSTART-"


def read(
    paths,
    words_column: int = 0,
    column: int | None = -1,
    needs_labels: bool = True,
    types=None,
    convert: bool = True,
    entities: bool = True,
) -> list[dict]:
    """Reads and checks files with a word and its tag on each line.

    Columns are separated by tabs, or by spaces in a line without tabs. Empty columns at the end of
    a line are ignored. A blank line ends a sentence. So does a line that starts with `-DOCSTART-`
    and has the column `-X-`, as in CoNLL-2003. A sentence of only the word `-DOCSTART-` is skipped.

    Tags are converted to IOB2, as conlleval reads them: an `I-` that continues no
    entity starts one, as in the files of CoNLL-2003. `E-` or `L-` ends an entity,
    and `S-` or `U-` is an entity of one word.

    Args:
        paths: string or list of strings.
        words_column: int. Index of the words' column, counted from 0, or from the end with -1.
            Defaults to `0`, with a warning if this column only numbers the words: 1, 2, 3, ...
        column: int. Index of the tag's column, as for `words_column`. `None` reads only words.
            Defaults to `-1`, the last. In LitBank's entity files, 1 is the outermost layer.
        needs_labels: bool. Whether each word must have a tag if `column` is not
            `None`. If `False`, sentences without tags are accepted. Defaults to `True`.
        types: list of strings. The allowed entity types, such as those of the training
            set. Defaults to `None`, all.
        convert: bool. Whether to convert tags to IOB2. Strict scores of predictions
            need the tags of the file. Defaults to `True`.
        entities: bool. Whether tags mark entities. If `False`, tags can be any
            strings, such as parts of speech, `types` lists the allowed tags, and
            tags are not converted. Defaults to `True`.

    Returns:
        List of dicts, one per sentence: `words`, a list of strings, and `tags`, a
        list of `"O"`, or `"B-"` or `"I-"` with a type, or `None`.

    Raises:
        ValueError: if a line lacks a column, has an empty word, a malformed tag, an unknown type,
            or not as many columns as the first line of the sentence (the message has path, line and
            rule), both columns are the same, or there are no sentences.

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
    check_id("words_column", words_column)
    examples = []
    for path in check_paths("paths", paths):
        rows = ((place, _cells(line, words_column)) for place, line in read_lines(path))
        groups = itertools.groupby(rows, lambda row: row[1] is not None)
        groups = [list(group) for is_sentence, group in groups if is_sentence]
        found = [
            _example(group, words_column, column, needs_labels, types, convert, entities)
            for group in groups
            if len(group) > 1 or not _starts_document(group[0][1], words_column)
        ]
        examples += found
        sentences = [example["words"] for example in found]
        numbers = [str(number) for number in range(1 + max(map(len, sentences), default=0))]
        for start in [0, 1]:
            are_numbers = all(words == numbers[start : start + len(words)] for words in sentences)
            if len(numbers) > 2 and are_numbers:
                LOG.warning(
                    "%s: the column of words only counts 1, 2, 3, ... If the words are in another "
                    "column, give its number: words_column=1 (--words_column=1) is the second one",
                    path,
                )
    return check_not_empty(examples, paths, "sentences")


def has_tags(path: str | os.PathLike, types=()) -> bool:
    """Returns whether a file contains words with tags for `read`, rather than texts.

    It does if each line that is not blank ends with an entity tag after a word, or if any line has
    such a tag, or one of `types`, after a tab. In the second case `read` may reject other lines.
    `L-` and `U-` count only in files that have other tags too, because a text may end in `U-Bahn`.

    Args:
        path: string.
        types: list of strings. Other tags that may occur. Defaults to `()`.

    Raises:
        ValueError: if the file is not UTF-8, or a damaged gzip file.

    Example:
    ```python
    keras_spanbert.data.conll.has_tags("emerging.test.annotated")  # True
    ```
    """
    are_tagged, has_sure_tag = set(), False
    for _, line in read_lines(path):
        cells = _cells(line)
        if cells and _starts_document(cells):
            continue
        if cells and "\t" in line:
            if any(cell in types or _is_sure_tag(cell) for cell in cells[1:]):
                return True
            are_tagged.add(False)
        elif cells:
            are_tagged.add(len(cells) > 1 and bool(_TAG.fullmatch(cells[-1])))
            has_sure_tag = has_sure_tag or _is_sure_tag(cells[-1])
    return are_tagged == {True} and has_sure_tag


def _is_sure_tag(cell):
    return bool(_TAG.fullmatch(cell)) and cell[0] not in "LU"


def tag_names(examples) -> list[str]:
    """Returns the tags that a model needs to train on these examples.

    Args:
        examples: list of dicts from `read`, with tags.

    Returns:
        List of strings: `"O"`, then `B-` and `I-` with each type of entity, in
        alphabetical order. Both are included, even if only one is in `examples`.

    Raises:
        ValueError: if a sentence has no tags.

    Example:
    ```python
    examples = keras_spanbert.data.conll.read("train.txt")
    keras_spanbert.data.conll.tag_names(examples)  # ["O", "B-LOC", "I-LOC", "B-MISC", ...]
    ```
    """
    if any(example["tags"] is None for example in examples):
        raise ValueError("`examples` must all have tags. Received: one without")
    tags = {tag for example in examples for tag in example["tags"]}
    types = sorted({tag.partition("-")[2] for tag in tags - {"O"}})
    return ["O", *(f"{prefix}-{name}" for name in types for prefix in "BI")]


def to_iob2(tags) -> list[str]:
    """Converts the tags of one sentence to IOB2: see `read`.

    Raises:
        ValueError: if a tag is malformed.

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
    """Writes words with predicted tags for the official scorers, atomically.

    A line has the word, the tag of `examples` if any, and the predicted tag. An
    empty line ends a sentence.

    Args:
        path: string.
        examples: list of dicts from `read`.
        predictions: list of lists of tags, one per word.
        delimiter: string. Defaults to a tab, which WNUT's scorer expects. conlleval expects `" "`.
        entities: bool. Whether tags mark entities: see `read`. Defaults to `True`.

    Raises:
        ValueError: if the numbers of tags and words differ, a tag is malformed,
            or a word or tag is empty or contains a delimiter or line end.
        OSError: if the file cannot be written.

    Example:
    ```python
    examples = keras_spanbert.data.conll.read("emerging.test.annotated")
    predictions = [["O"] * len(example["words"]) for example in examples]
    keras_spanbert.data.conll.write_predictions("predictions.txt", examples, predictions)
    ```
    """

    tag_rule = f"a tag must be {'O, or a prefix and a type' if entities else 'a string'}"
    cell_rule = f"words and tags must not be empty or contain {delimiter!r} or line ends"

    def sentence(example, tags, place):
        words = example["words"]
        rule = f"there must be {len(words)} tags, one for each word"
        check(len(tags) == len(words), place, rule, tags, f"{len(tags)} tags: ")
        for word, tag in zip(words, tags):
            is_tag = isinstance(tag, str) and (not entities or _TAG.fullmatch(tag))
            check(is_tag, place, tag_rule, tag)
            for cell in (word, tag):
                is_cell = cell.strip() and not re.search(rf"[\r\n{re.escape(delimiter)}]", cell)
                check(is_cell, place, cell_rule, cell)
        columns = [words, *([example["tags"]] if example.get("tags") else []), tags]
        return "".join(delimiter.join(cells) + "\n" for cells in zip(*columns))

    write_lines(path, examples, predictions, sentence)


def _cells(line, words_column=0):
    """Returns the columns of a line, or `None` if it ends a sentence."""
    if not line.strip(" \t"):
        return None
    cells = line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))
    while not cells[-1].strip(" "):
        cells.pop()
    cells = [cell.strip(" ") for cell in cells]
    return None if "-X-" in cells and _starts_document(cells, words_column) else cells


def _starts_document(cells, words_column=0):
    return _DOCUMENT in (cells[0], *cells[words_column : words_column + 1])


def _example(rows, words_column, column, needs_labels, types, convert, entities):
    place, first = rows[0]
    count = len(first)
    which = f"the {count} columns, 0 to {count - 1}, or -1, -2, ... from the end"
    rule = f"`words_column` (--words_column) must be one of {which}"
    check(-count <= words_column < count, place, rule, words_column, "words_column=")
    words_column %= count
    # If the words are in the last column, the default `column` means that there are no tags.
    lacks_tags = count == 1 or not needs_labels and column == -1 and words_column == count - 1
    is_tagged = column is not None and not lacks_tags
    rule = (
        "a line must be a word and its tag, separated by a tab or spaces. needs_labels=False "
        "accepts words without tags"
    )
    check(is_tagged or column is None or not needs_labels, place, rule, first)
    is_right = not is_tagged or -count <= column < count and column % count != words_column
    rule = f"`column` (--label_column) must be one of {which}, and not that of the words"
    check(is_right, place, f"{rule}, {words_column}", column, "column=")
    rule = f"the lines of a sentence must have the same number of columns, {count} here"
    for place, cells in rows:
        check(len(cells) == count, place, rule, cells)
        check(cells[words_column], place, "a word must not be empty", cells)
        if is_tagged:
            check_tag(cells[column], types, place, entities)
    tags = [cells[column] for _, cells in rows] if is_tagged else None
    return {
        "words": [cells[words_column] for _, cells in rows],
        "tags": to_iob2(tags) if tags and convert and entities else tags,
    }


def check_tag(tag: str, types, place: str, entities: bool = True) -> None:
    """Raises a `ValueError` if a tag is malformed or not allowed."""
    if not entities:
        check(tag.strip(), place, "a tag must not be empty", tag)
        check_known(place, "a tag", tag, types)
        return
    rule = "a tag must be O, or B-, I-, E- or S- and a type without commas (in BILOU L- or U-)"
    check(_TAG.fullmatch(tag), place, rule, tag)
    if types is not None and tag != "O":
        rule = f"the type of an entity must be one of {', '.join(types)}"
        check(tag[2:] in types, place, rule, tag)
