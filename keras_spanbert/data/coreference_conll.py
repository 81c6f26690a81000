"""Files of CoNLL-2012 and LitBank, with coreference in their last column."""

import collections
import os
import re

from keras_spanbert import files
from keras_spanbert.data.coreference_documents import check_document, pair_with_clusters
from keras_spanbert.data.text_files import read_lines

# Document, part, number, word, five of syntax, speaker, entities, coreference; predicates, of
# which a sentence may have none, stand before the last.
_WORD, _SPEAKER = 3, 9
_FEWEST_COLUMNS = 12
# What stands for "none" in OntoNotes and in LitBank.
_NONE = ("-", "_", "")

_BEGIN = re.compile(r"#\s*begin document \((.*)\);?(?:\s*part (\d{1,9}))?\s*")
_END = re.compile(r"#\s*end document\b.*")
_BRACKET = r"(?:\(\d+\)?|\d+\))"
_BRACKETS = re.compile(rf"{_BRACKET}(?:\|{_BRACKET})*")

_CELL = re.compile(r"[^ \t\r\n](?:[^\t\r\n]*[^ \t\r\n])?")


def read_conll(path: str | os.PathLike) -> list[dict]:
    """Reads a file of CoNLL-2012's columns; see `keras_spanbert.data.coreference.read`."""
    documents = []
    document = None
    place = str(path)
    for place, line in read_lines(path):
        if line.startswith("#"):
            begin = _BEGIN.fullmatch(line)
            if begin and document is None:
                document = _DocumentReader(*begin.groups(), place)
            elif document is not None and _END.fullmatch(line):
                documents.append(document.finish(place))
                document = None
            else:
                raise ValueError(
                    f"{place}: a line of # must be `#begin document (id); part 000`, once the last "
                    f"document has ended, or `#end document`. Received: {line!r:.80}"
                )
        elif not line.strip(" \t"):
            if document is not None:
                document.end_sentence()
        elif document is None:
            raise ValueError(
                f"{place}: words must stand between `#begin document (id); part 000` and "
                f"`#end document`. Received: {line!r:.80}"
            )
        else:
            document.add_word(line, place)
    if document is not None:
        raise ValueError(
            f"{place}: a document must close with `#end document`. Received: the end of the file, "
            f"while that of {document.place} is open"
        )
    return documents


class _DocumentReader:
    """Collects the lines of a document that begins at `place`."""

    def __init__(self, name, part, place):
        self.place = place
        self._name = name
        self._part = part
        self._sentences = []
        self._speakers = []
        self._columns = None  # Of the sentence that is open.
        self._size = 0
        self._clusters = {}
        self._open = collections.defaultdict(list)  # Where mentions start, as (word, place).

    def end_sentence(self):
        self._columns = None

    def add_word(self, line, place):
        # A cell between tabs may be empty.
        cells = line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))
        cells = [cell.strip(" ") for cell in cells]
        if len(cells) < _FEWEST_COLUMNS:
            raise ValueError(
                f"{place}: a line must have {_FEWEST_COLUMNS} columns or more, between tabs or "
                f"spaces. Received: {len(cells)}, {line!r:.80}"
            )
        if self._columns is None:
            self._columns = len(cells)
            self._sentences.append([])
            self._speakers.append([])
        if len(cells) != self._columns:
            raise ValueError(
                f"{place}: the lines of a sentence must have one number of columns, "
                f"{self._columns} here. Received: {len(cells)}, {line!r:.80}"
            )
        if not cells[_WORD]:
            raise ValueError(f"{place}: a word must not be empty. Received: {line!r:.80}")
        self._sentences[-1].append(cells[_WORD])
        self._speakers[-1].append("-" if cells[_SPEAKER] in _NONE else cells[_SPEAKER])
        if cells[-1] not in _NONE:
            self._add_mentions(cells[-1], place)
        self._size += 1

    def _add_mentions(self, cell, place):
        if not _BRACKETS.fullmatch(cell):
            raise ValueError(
                f"{place}: the last column must be `-` or of `(1`, `1)` and `(1)` with | between. "
                f"Received: {cell!r:.80}"
            )
        brackets = cell.split("|")
        # The order in which the official scorer meets clusters, on which the scores of mentions
        # that stand twice depend: first those of one word.
        for bracket in sorted(brackets, key=lambda bracket: not bracket.endswith(")")):
            if bracket.startswith("("):
                self._clusters.setdefault(bracket.strip("()"), [])
        for bracket in brackets:
            cluster = bracket.strip("()")
            if bracket.startswith("("):
                self._open[cluster].append((self._size, place))
            if bracket.endswith(")"):
                if not self._open[cluster]:
                    raise ValueError(
                        f"{place}: a mention must open before it closes. Received: {bracket!r} in "
                        f"{cell!r:.80} without `({cluster}`"
                    )
                # The last one opened: mentions of a cluster may be nested.
                start, _ = self._open[cluster].pop()
                self._clusters[cluster].append([start, self._size])

    def finish(self, place):
        for cluster, starts in self._open.items():
            if starts:
                raise ValueError(
                    f"{place}: mentions must close before the document ends. Received: "
                    f"'({cluster}' of {starts[-1][1]}, without `{cluster})`"
                )
        part = {} if self._part is None else {"part": self._part}
        return {
            "doc_key": self._name + "".join(f"_{int(number)}" for number in part.values()),
            **part,
            "sentences": self._sentences,
            "speakers": self._speakers,
            "clusters": [sorted(mentions) for mentions in self._clusters.values()],
        }


def write_conll(path: str | os.PathLike, documents, predicted_clusters=None) -> None:
    """Writes documents in the columns of CoNLL-2012, whole or not at all.

    There are 13 columns between tabs, of which document, part, number, word,
    speaker and coreference are filled, as the official scorer reads them. It
    matches documents by their `#begin` lines: these are as they were read, and
    `part 000` where a `doc_key` that was not read from such a file ends in `_0`.

    Args:
        path: string.
        documents: list of dicts in words, as
            `keras_spanbert.data.coreference.read` gives; `clusters` may be missing.
        predicted_clusters: list of clusters for each document, as lists of
            `[start, end]` in words. Defaults to `None`, the documents' `clusters`.

    Raises:
        ValueError: where a document is in subtokens, or not of the form; a word
            or name has tabs, line ends or blanks at its ends; or two mentions of a
            cluster cross, which the format cannot say.
        OSError: where the file cannot be written.

    Example:
    ```python
    documents = keras_spanbert.data.coreference.read("emma.conll")
    without_singletons = [
        [cluster for cluster in document["clusters"] if len(cluster) > 1] for document in documents
    ]
    keras_spanbert.data.coreference.write_conll("gold.conll", documents, without_singletons)
    ```

    Reference:
        [Pradhan et al. 2012](https://aclanthology.org/W12-4501/).
    """
    if predicted_clusters is None:
        predicted_clusters = [document.get("clusters", []) for document in documents]
    pairs = pair_with_clusters(documents, predicted_clusters)
    texts = [
        _document_text({**document, "clusters": clusters}, f"documents[{i}]")
        for i, (document, clusters) in enumerate(pairs)
    ]
    with files.replacing(os.fspath(path)) as file:
        file.writelines(texts)


def _document_text(document, place):
    size = check_document(document, place)
    if "subtoken_map" in document:
        raise ValueError(
            f"{place}: documents must be in words, with clusters from `clusters_in_words`. "
            f"Received: {document['doc_key']}, with a `subtoken_map`"
        )
    name, part = _name_and_part(document)
    _check_cell(name, place)
    column = _coreference_column(document["clusters"], size, place)
    lines = [f"#begin document ({name});" + (f" part {part}" if part else "")]
    at = 0
    for s, sentence in enumerate(document["sentences"]):
        for number, word in enumerate(sentence):
            speaker = (document["speakers"][s][number] if "speakers" in document else "") or "-"
            for cell in [word, speaker]:
                _check_cell(cell, place)
            cells = [name, str(int(part or 0)), str(number), word, *"_____", speaker, "_", "_"]
            lines.append("\t".join([*cells, column[at]]))
            at += 1
        lines.append("")
    return "\n".join([*lines, "#end document", ""])


def _check_cell(cell, place):
    if not _CELL.fullmatch(cell):
        raise ValueError(
            f"{place}: words and names must have no tabs or line ends, nor blanks at their ends, "
            f"and not be empty. Received: {cell!r:.80}"
        )


def _name_and_part(document):
    key, part = document["doc_key"], document.get("part")
    if part is None:
        found = re.fullmatch(r"(.*)_(0|[1-9]\d*)", key)
        return (found[1], f"{int(found[2]):03d}") if found else (key, None)
    return key.removesuffix(f"_{int(part)}"), part


def _coreference_column(clusters, size, place):
    """The last column's cells: what closes, what is of one word, then what opens."""
    closing, single, opening = ([[] for _ in range(size)] for _ in range(3))
    for c, mentions in enumerate(clusters):
        _check_nested(mentions, f"{place}, cluster {c}")
        for start, end in mentions:
            if start == end:
                single[start].append(f"({c})")
            else:
                opening[start].append((end, f"({c}"))
                closing[end].append((start, f"{c})"))
    cells = []
    for closed, of_one, opened in zip(closing, single, opening):
        # What began last closes first, and what is longest opens first.
        closed, opened = (
            [bracket for _, bracket in sorted(some, key=lambda item: -item[0])]
            for some in [closed, opened]
        )
        cells.append("|".join([*closed, *of_one, *opened]) or "-")
    return cells


def _check_nested(mentions, place):
    ends = []  # Of the mentions that the next one may be in, the outermost first.
    for start, end in sorted(mentions, key=lambda mention: (mention[0], -mention[1])):
        # At the word where one ends another may begin: what closes stands first.
        while ends and ends[-1] <= start:
            ends.pop()
        if ends and ends[-1] < end:
            raise ValueError(
                f"{place}: mentions of a cluster must not cross, since a bracket closes the last "
                f"one opened. Received: {[start, end]}, which crosses one that ends at {ends[-1]}"
            )
        ends.append(end)
