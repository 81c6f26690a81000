"""Reads CorefUD: CoNLL-U with the coreference in `Entity`, a value of the last column."""

import collections
import os
import re

from keras_spanbert.data.examples import check, warn_left_out
from keras_spanbert.data.text_files import read_lines

_COLUMNS = 10  # Columns of CoNLL-U.
_FORM, _MISC = 1, 9
# The number of a word, of a multiword token (3-4), or of an empty node (8.1).
_NUMBER = re.compile(r"(?P<word>\d+)|\d+-\d+|\d+\.\d+")
_COMMENT = re.compile(r"#\s*(newdoc|newpar|global\.|sent_id|text)\b")
_NEW_DOCUMENT = re.compile(r"#\s*newdoc\b(?:\s+id\s*=\s*(.*\S))?\s*")
_ATTRIBUTES = re.compile(r"#\s*global\.Entity\s*=\s*(\S+)\s*")
# Names of the attribute with the cluster, in CorefUD and in GUM.
_CLUSTER = ("eid", "GRP")
_BRACKETS = re.compile(r"(?:\([^()]+\)?|[^()]+\))+")
_BRACKET = re.compile(r"\([^()]+\)?|[^()]+\)")
# The cluster of a part of a mention that is not contiguous, such as e1[1/2].
_PART = re.compile(r".*\[(\d+)/\d+\]")


def is_conllu(line: str) -> bool:
    """Returns whether a file's first line is one of CoNLL-U: a comment, or a word."""
    cells = line.split("\t")
    is_word = len(cells) == _COLUMNS and _NUMBER.fullmatch(cells[0])
    return bool(_COMMENT.match(line) or is_word)


def read_conllu(path: str | os.PathLike) -> list[dict]:
    """Reads a file of CorefUD: see `keras_spanbert.data.coreference.read`."""
    documents, attributes = [], None
    left_out = collections.defaultdict(list)  # The places of mentions, by reason.
    document = None
    place = path
    for place, line in read_lines(path):
        if found := _ATTRIBUTES.fullmatch(line):
            attributes = found[1].split("-")
        elif found := _NEW_DOCUMENT.fullmatch(line):
            document = _Document(found[1] or f"{_stem(path)}_{len(documents)}", left_out)
            documents.append(document)
        elif line.startswith("#"):
            continue
        elif not line.strip(" \t"):
            if document is not None:
                document.end_sentence(place)
        else:
            if document is None:  # A file without `# newdoc` has one document.
                document = _Document(_stem(path), left_out)
                documents.append(document)
            document.add(line, place, attributes)
    for document in documents:
        document.end_sentence(place)
    if attributes is None:
        raise ValueError(
            f"{path}: CoNLL-U must be CorefUD's, 1.0 or later, with a line `# global.Entity = "
            "eid-...` that names the attributes of mentions. Received: none"
        )
    for reason, places in left_out.items():
        warn_left_out([f"at {place}" for place in places], "mention", reason)
    return [
        {
            "doc_key": document.name,
            "sentences": document.sentences,
            "speakers": [["-"] * len(sentence) for sentence in document.sentences],
            "clusters": [sorted(mentions) for mentions in document.clusters.values()],
        }
        for document in documents
    ]


def _stem(path):
    return os.path.basename(os.fspath(path)).partition(".")[0]


class _Document:
    def __init__(self, name, left_out):
        self.name = name
        self.left_out = left_out
        self.sentences = []
        self.clusters = {}
        self.size = 0  # Number of words.
        self.is_in_sentence = False
        self.is_open = []  # (cluster, first word, place) of each open mention's start.

    def add(self, line, place, attributes):
        """Adds a line with a word, a multiword token or an empty node."""
        cells = line.split("\t")
        number = _NUMBER.fullmatch(cells[0])
        rule = f"a line must have the {_COLUMNS} columns of CoNLL-U, separated by tabs"
        check(len(cells) == _COLUMNS and number and cells[_FORM], place, rule, line)
        if not self.is_in_sentence:
            self.sentences.append([])
            self.is_in_sentence = True
        if number["word"]:
            self.sentences[-1].append(cells[_FORM])
            self.size += 1
        found = [value for value in cells[_MISC].split("|") if value.startswith("Entity=")]
        if found:
            rule = "`# global.Entity` must name eid, the cluster, before the first `Entity`"
            index = next((i for i, n in enumerate(attributes or ()) if n in _CLUSTER), None)
            check(index is not None, place, rule, attributes)
            # A word that follows is the first of a mention that starts at an empty node.
            first = self.size - 1 if number["word"] else self.size
            self._add_mentions(found[0].removeprefix("Entity="), first, index, place)

    def _add_mentions(self, cell, first, index, place):
        rule = "`Entity` must be brackets, such as `(e1-person`, `e1)` or `(e1-person)`"
        check(_BRACKETS.fullmatch(cell), place, rule, cell)
        for bracket in _BRACKET.findall(cell):
            cluster = bracket.strip("()")
            if bracket.startswith("("):
                values = cluster.split("-")
                check(index < len(values), place, "a mention must name its cluster", bracket)
                cluster = values[index]
                self.is_open.append((cluster, first, place))
            if not bracket.endswith(")"):
                continue
            numbers = [i for i, (name, *_) in enumerate(self.is_open) if name == cluster]
            check(numbers, place, "a mention must open before it closes", bracket)
            _, start, begin = self.is_open.pop(numbers[-1])
            if part := _PART.fullmatch(cluster):
                if part[1] == "1":
                    self.left_out["in several parts"].append(begin)
            elif start >= self.size:
                self.left_out["of empty nodes only"].append(begin)
            else:
                self.clusters.setdefault(cluster, []).append([start, self.size - 1])

    def end_sentence(self, place):
        self.is_in_sentence = False
        if self.is_open:
            cluster, _, begin = self.is_open[-1]
            raise ValueError(
                f"{place}: mentions must close before their sentence ends. Received: '({cluster}' "
                f"at {begin}, without `{cluster})`"
            )
