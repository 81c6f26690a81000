"""Reads and writes CoNLL-2012 files, and reads CorefUD: CoNLL-U with coreference in `Entity`."""

import collections
import os
import re

from keras_spanbert import files
from keras_spanbert.data.coreference_documents import check_document, pair_with_clusters
from keras_spanbert.data.examples import check, warn_left_out
from keras_spanbert.data.text_files import read_lines

# Columns: document, part, word number, word, five with syntax and senses, speaker, named entity,
# one for each predicate, coreference.
_WORD, _SPEAKER = 3, 9
_MIN_COLUMNS = 12
# Values that mean "none" in OntoNotes and in LitBank.
_NONE = ("-", "_", "")

BEGIN = re.compile(r"#\s*begin document \((.*)\);?(?:\s*part (\d{1,9}))?\s*")
_END = re.compile(r"#\s*end document\b.*")
_MARK_RULE = (
    "a line that starts with # must be `#begin document (id); part 000` between documents, or "
    "`#end document` at the end of one"
)
_BRACKET = re.compile(r"\(\d+\)?|\d+\)")
_CELL = re.compile(r"[^ \t\r\n](?:[^\t\r\n]*[^ \t\r\n])?")


class _Document:
    """A document that is being read. `keys` are those that not all formats have."""

    def __init__(self, name, **keys):
        self.keys = {"doc_key": name, **keys}
        self.sentences, self.speakers = [], []
        self.clusters = {}
        self.size = 0  # Number of words.
        self.is_in_sentence = False
        self.is_open = []  # (cluster, first word, place) of each open mention.

    def add_word(self, word, speaker="-"):
        if not self.is_in_sentence:
            self.sentences.append([])
            self.speakers.append([])
            self.is_in_sentence = True
        self.sentences[-1].append(word)
        self.speakers[-1].append(speaker)
        self.size += 1

    def close(self, cluster, bracket, place):
        """Closes the last open mention of a cluster. Returns its first word and its place."""
        numbers = [i for i, (name, *_) in enumerate(self.is_open) if name == cluster]
        check(numbers, place, "a mention must open before it closes", bracket)
        return self.is_open.pop(numbers[-1])[1:]

    def check_closed(self, place, part):
        if self.is_open:
            cluster, _, begin = self.is_open[-1]
            raise ValueError(
                f"{place}: a mention must close before its {part} ends. Received: "
                f"'({cluster}', opened at {begin}"
            )

    def to_dict(self):
        return {
            **self.keys,
            "sentences": self.sentences,
            "speakers": self.speakers,
            "clusters": [sorted(mentions) for mentions in self.clusters.values()],
        }


def read_conll(path: str | os.PathLike) -> list[dict]:
    """Reads a file with CoNLL-2012's columns: see `keras_spanbert.data.coreference.read`."""
    documents, document = [], None
    for place, line in read_lines(path):
        if document is None and (begin := BEGIN.fullmatch(line)):
            name, part = begin.groups()
            document = _Document(name if part is None else f"{name}_{int(part)}", part=part)
            start = place
        elif document is not None and _END.fullmatch(line):
            document.check_closed(place, "document")
            documents.append(document.to_dict())
            document = None
        else:
            check(not line.startswith("#"), place, _MARK_RULE, line)
            is_blank = not line.strip(" \t")
            rule = "words must be between `#begin document (id); part 000` and `#end document`"
            check(document is not None or is_blank, place, rule, line)
            if not is_blank:
                _add_conll_word(document, line, place)
            elif document is not None:
                document.is_in_sentence = False
    if document is not None:
        raise ValueError(
            f"{place}: a document must end with `#end document`. Received: the end of the file "
            f"in the document that starts at {start}"
        )
    return documents


def _add_conll_word(document, line, place):
    """Adds a line with a word, and opens and closes its mentions."""
    # As in the official scorer, tabs and blanks at the end of a line are ignored.
    text = line.strip(" \t")
    cells = line.rstrip(" \t").split("\t") if "\t" in text else re.split(" +", text)
    rule = f"a line must have CoNLL-2012's columns, at least {_MIN_COLUMNS}, in tabs or spaces"
    check(len(cells) >= _MIN_COLUMNS, place, rule, line, f"{len(cells)}, ")
    word, speaker, mentions = (cells[i].strip(" ") for i in (_WORD, _SPEAKER, -1))
    check(word, place, "a word must not be empty", line)
    brackets = [] if mentions in _NONE else mentions.split("|")
    rule = "the last column must be `-`, or brackets such as `(1`, `1)` or `(1)`, separated by |"
    check(all(map(_BRACKET.fullmatch, brackets)), place, rule, mentions)
    # The official scorer reads first `(1)`, then `(1`, then `1)`.
    for bracket in sorted(brackets, key=lambda b: (b[0] + b[-1] != "()", b[0] != "(")):
        cluster = bracket.strip("()")
        found = document.clusters.setdefault(cluster, [])
        if bracket.startswith("("):
            document.is_open.append((cluster, document.size, place))
        if bracket.endswith(")"):
            first, _ = document.close(cluster, bracket, place)
            found.append([first, document.size])
    document.add_word(word, "-" if speaker in _NONE else speaker)


def write_conll(path: str | os.PathLike, documents, predicted_clusters=None) -> None:
    """Writes documents in the columns of CoNLL-2012, atomically.

    There are 13 columns separated by tabs. Document, part, word number, word,
    speaker and coreference are filled in, and the others are `_`. The official
    scorer matches documents by their `#begin` lines. These keep the name and the
    part that were read. A `doc_key` from another format that ends in `_0` gets `part 000`.

    Args:
        path: string.
        documents: list of documents in words, not subtokens, as
            `keras_spanbert.data.coreference.read` returns them. `clusters` may be missing.
        predicted_clusters: list of clusters for each document, as lists of
            `[start, end]` in words. Defaults to `None`, the documents' `clusters`.

    Raises:
        ValueError: if a document is in subtokens or malformed; a word or name is empty, or has
            tabs, line ends, or blanks at its ends; a document's name starts with `#`; or two
            mentions of one cluster cross, or one ends at the word where the other begins. The
            columns cannot express such mentions. Use `write_jsonlines` to keep them, or
            `nested_clusters` to leave some out.
        OSError: if the file cannot be written.

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
    texts = [
        _document_text({**document, "clusters": clusters}, f"documents[{i}]")
        for i, (document, clusters) in enumerate(pair_with_clusters(documents, predicted_clusters))
    ]
    with files.atomic_write(os.fspath(path)) as file:
        file.writelines(texts)


def _document_text(document, place):
    size = check_document(document, place)
    name, part = document["doc_key"], document.get("part")
    rule = "documents must be in words, with clusters from `clusters_in_words`"
    check("subtoken_map" not in document, place, rule, "subtoken_map", f"{name} with ")
    if part is not None:
        rule = "`part` must be a number of up to nine digits"  # See `BEGIN`.
        check(re.fullmatch(r"\d{1,9}", str(part)), place, rule, part)
        name = name.removesuffix(f"_{int(part)}")
    elif "part" not in document and (found := re.fullmatch(r"(.*)_(0|[1-9]\d{0,8})", name)):
        name, part = found[1], f"{int(found[2]):03d}"
    _check_cell(name, place)
    rule = (
        "a document's name must not start with `#`, because every line starts with the name, and "
        "lines with `#` begin or end a document"
    )
    check(not name.startswith("#"), place, rule, name)
    column = _coreference_column(document["clusters"], size, f"{place}, {document['doc_key']!r}")
    lines = [f"#begin document ({name});" + ("" if part is None else f" part {part}")]
    for s, sentence in enumerate(document["sentences"]):
        for number, word in enumerate(sentence):
            speaker = (document["speakers"][s][number] if "speakers" in document else "") or "-"
            for cell in [word, speaker]:
                _check_cell(cell, place)
            cells = [name, str(int(part or 0)), str(number), word, *"_____", speaker, "_", "_"]
            lines.append("\t".join([*cells, next(column)]))
        lines.append("")
    return "\n".join([*lines, "#end document", ""])


def _check_cell(cell, place):
    rule = (
        "words and names must not be empty, have blanks at their ends, or contain tabs or line ends"
    )
    check(_CELL.fullmatch(cell), place, rule, cell)


def _coreference_column(clusters, size, place):
    """Yields the cells of the last column: closing brackets, single words, opening brackets."""
    brackets = [[] for _ in range(size)]  # (kind, order, bracket) at each word.
    for c, mentions in enumerate(clusters):
        for start, end, other_start, other_end in _split_nested(mentions)[1]:
            raise ValueError(
                f"{place}, cluster {c}: two mentions of a cluster must not cross, and one must not "
                "end at the word where the other begins, because in CoNLL columns a bracket closes "
                "the last open one. Write .jsonlines to keep such mentions, or leave some out with "
                f"`nested_clusters`. Received: [{start}, {end}] and [{other_start}, {other_end}]"
            )
        for start, end in mentions:
            if start == end:
                brackets[start].append((1, 0, f"({c})"))
            else:
                # The mention that started last closes first, and the longest opens first.
                brackets[start].append((2, -end, f"({c}"))
                brackets[end].append((0, -start, f"{c})"))
    for some in brackets:
        ordered = sorted(some, key=lambda item: item[:2])
        yield "|".join(bracket for *_, bracket in ordered) or "-"


def _split_nested(mentions):
    """Returns the mentions of a cluster that columns can express, and pairs that they cannot."""
    held, pairs = [], []
    outer = []  # Mentions that may contain the next one, the outermost first.
    for start, end in sorted(mentions, key=lambda mention: (mention[0], -mention[1])):
        while outer and outer[-1][1] < start:
            outer.pop()
        # The official scorer reads brackets that open at a word before those that close there.
        if start < end and outer and outer[-1][1] < end:
            pairs.append((*outer[-1], start, end))
        else:
            outer.append((start, end))
            held.append([start, end])
    return held, pairs


def nested_clusters(clusters: list) -> list:
    """Leaves out mentions so that `write_conll` can write the clusters of a document.

    If two mentions of a cluster cross, or one ends at the word where the other begins, only the
    first is kept. A cluster with only one mention left is removed.

    Args:
        clusters: list of clusters, each a list of mentions `[start, end]`.

    Returns:
        List of clusters.

    Example:
    ```python
    keras_spanbert.data.coreference.nested_clusters([[[0, 1], [1, 2], [4, 4]], [[5, 5], [7, 7]]])
    # [[[0, 1], [4, 4]], [[5, 5], [7, 7]]]
    ```
    """
    held = [_split_nested(cluster)[0] for cluster in clusters]
    return [h for h, cluster in zip(held, clusters) if len(h) > 1 or len(h) == len(cluster)]


# === CorefUD ===
_COLUMNS = 10  # Columns of CoNLL-U.
_FORM, _MISC = 1, 9
# The number of a word, of a multiword token (3-4), or of an empty node (8.1).
_NUMBER = re.compile(r"(?P<word>\d+)|\d+-\d+|\d+\.\d+")
_COMMENT = re.compile(r"#\s*(newdoc|newpar|global\.|sent_id|text)\b")
_NEW_DOCUMENT = re.compile(r"#\s*newdoc\b(?:\s+id\s*=\s*(.*\S))?\s*")
_ATTRIBUTES = re.compile(r"#\s*global\.Entity\s*=\s*(\S+)\s*")
# Names of the attribute with the cluster, in CorefUD and in GUM.
_CLUSTER = ("eid", "GRP")
_ENTITIES = re.compile(r"(?:\([^()]+\)?|[^()]+\))+")
_ENTITY = re.compile(r"\([^()]+\)?|[^()]+\)")
# The cluster of a part of a mention that is not contiguous, such as e1[1/2].
_PART = re.compile(r".*\[(\d+)/\d+\]")


def is_conllu(line: str) -> bool:
    """Returns whether a file's first line is one of CoNLL-U: a comment, or a word."""
    cells = line.split("\t")
    is_word = len(cells) == _COLUMNS and _NUMBER.fullmatch(cells[0])
    return bool(_COMMENT.match(line) or is_word)


def read_conllu(path: str | os.PathLike) -> list[dict]:
    """Reads a file of CorefUD: see `keras_spanbert.data.coreference.read`."""
    documents, attributes, place = [], None, path
    left_out = collections.defaultdict(list)  # The places of mentions, by reason.
    stem = os.path.basename(os.fspath(path)).partition(".")[0]
    for place, line in read_lines(path):
        if found := _ATTRIBUTES.fullmatch(line):
            attributes = found[1].split("-")
        elif found := _NEW_DOCUMENT.fullmatch(line):
            documents.append(_Document(found[1] or f"{stem}_{len(documents)}"))
        elif line.startswith("#"):
            continue
        elif line.strip(" \t"):
            if not documents:  # A file without `# newdoc` has one document.
                documents.append(_Document(stem))
            _add_conllu_line(documents[-1], line, place, attributes, left_out)
        elif documents:
            documents[-1].is_in_sentence = False
            documents[-1].check_closed(place, "sentence")
    for document in documents:
        document.check_closed(place, "sentence")
    if attributes is None:
        raise ValueError(
            f"{path}: CoNLL-U must be CorefUD's, 1.0 or later, with a line `# global.Entity = "
            "eid-...` that names the attributes of mentions. Received: none"
        )
    for reason, places in left_out.items():
        warn_left_out([f"at {place}" for place in places], "mention", reason)
    return [document.to_dict() for document in documents]


def _add_conllu_line(document, line, place, attributes, left_out):
    """Adds a line with a word, a multiword token or an empty node."""
    cells = line.split("\t")
    number = _NUMBER.fullmatch(cells[0])
    rule = f"a line must have the {_COLUMNS} columns of CoNLL-U, separated by tabs"
    check(len(cells) == _COLUMNS and number and cells[_FORM], place, rule, line)
    first = document.size  # A mention that starts at an empty node starts at the next word.
    if number["word"]:
        document.add_word(cells[_FORM])
    found = [value for value in cells[_MISC].split("|") if value.startswith("Entity=")]
    if not found:
        return
    rule = "`# global.Entity` must name eid, the cluster, before the first `Entity`"
    index = next((i for i, name in enumerate(attributes or ()) if name in _CLUSTER), None)
    check(index is not None, place, rule, attributes)
    cell = found[0].removeprefix("Entity=")
    rule = "`Entity` must be brackets, such as `(e1-person`, `e1)` or `(e1-person)`"
    check(_ENTITIES.fullmatch(cell), place, rule, cell)
    for bracket in _ENTITY.findall(cell):
        cluster = bracket.strip("()")
        if bracket.startswith("("):
            values = cluster.split("-")
            check(index < len(values), place, "a mention must name its cluster", bracket)
            cluster = values[index]
            document.is_open.append((cluster, first, place))
        if not bracket.endswith(")"):
            continue
        start, begin = document.close(cluster, bracket, place)
        if part := _PART.fullmatch(cluster):
            if part[1] == "1":
                left_out["in several parts"].append(begin)
        elif start >= document.size:
            left_out["of empty nodes only"].append(begin)
        else:
            document.clusters.setdefault(cluster, []).append([start, document.size - 1])
