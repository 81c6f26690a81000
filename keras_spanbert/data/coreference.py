"""Reads coreference files of several formats, and writes the released jsonlines and CoNLL-2012."""

import itertools
import os

from keras_spanbert import files
from keras_spanbert.checks import check_paths, is_integer
from keras_spanbert.data.coreference_conll import (
    BEGIN,
    is_conllu,
    nested_clusters,
    read_conll,
    read_conllu,
    write_conll,
)
from keras_spanbert.data.coreference_documents import (
    check_document,
    clusters_in_words,
    merge_clusters,
    pair_with_clusters,
    with_speakers,
)
from keras_spanbert.data.examples import check, check_not_empty, field
from keras_spanbert.data.text_files import read_json_lines, read_lines

__all__ = [
    "check_document",
    "clusters_in_words",
    "merge_clusters",
    "nested_clusters",
    "read",
    "write_conll",
    "write_jsonlines",
]

_JSONLINES = (".jsonlines", ".jsonl")
_CONLL = (".conll", "_conll", ".conllu")


def read(paths) -> list[dict]:
    """Reads and checks documents with coreference, in any of the formats below.

    A document is a dict with JSON values. Its keys mean the same in all formats:

    - `doc_key`: string. The document's id, followed by `_` and the number of its
      part if a CoNLL file has parts. Its first two letters may name the genre.
    - `sentences`: list of lists of strings: the words of each sentence, or, in the
      released scripts' `.jsonlines`, the subtokens of each segment.
    - `speakers`: parallel to `sentences`, `"-"` for none. In files of words it may be
      a list of strings, one per sentence.
    - `clusters`: list of clusters, each a list of mentions `[start, end]`. These
      are positions in the concatenated `sentences`, and the end is included. A
      mention that occurs twice in the file occurs twice here.

    Documents in subtokens also have `sentence_map` and `subtoken_map`, the
    sentence and the word of each subtoken. JSON lines in this form are not
    changed: missing keys, such as the `clusters` of text to predict, are not added, and other keys
    are kept. CoNLL-2012 documents also have `part`, the number as written in the file, or `None`.

    The format of a file is recognized by its content:

    - JSON lines: documents as above, PreCo (`mention_clusters`) or wl-coref
      (`cased_words`; `span_clusters`, or `clusters` before its conversion to
      heads). Ends of mentions that are excluded in the file are included here.
      fastcoref's JSON is refused, because it has no sentences of words.
    - CoNLL-2012, as in OntoNotes and LitBank: at least 12 columns separated by spaces or tabs. The
      last that is not empty has the coreference, with `-` or `_` for no mention. A cell is read as
      by the official scorer v8.01: first mentions of one word such as `(1)`, then all brackets that
      open, then all that close, each the last open mention of its cluster. So `1)|(1` is a mention
      of one word, and does not end an earlier mention.
    - CorefUD 1.0 and later, and GUM: CoNLL-U with `# global.Entity`. `# newdoc` starts a document.
      Multiword tokens and empty nodes are not words. Mentions of empty nodes only or in several
      parts are left out, and their number is logged. Bridging and split antecedents are ignored.

    Args:
        paths: string or list of strings. Files with JSON lines end in `.jsonlines` or `.jsonl`, and
            the others in `.conll`, `_conll` or `.conllu`. `.gz` can follow.

    Returns:
        List of documents.

    Raises:
        ValueError: if a file's name has another ending, a file is not UTF-8, malformed or of
            another format (the message has path, line and rule), or there are no documents.

    Example:
    ```python
    documents = keras_spanbert.data.coreference.read("litbank/coref/conll/158_emma_brat.conll")
    gold = [document["clusters"] for document in documents]
    keras_spanbert.metrics.coreference(gold, gold)["average_f1"]  # 100.0
    ```

    Reference:
        [Pradhan et al. 2012](https://aclanthology.org/W12-4501/);
        [Bamman et al. 2020](https://aclanthology.org/2020.lrec-1.6/);
        [Joshi et al. 2019](https://arxiv.org/abs/1908.09091);
        [Chen et al. 2018](https://aclanthology.org/D18-1016/), PreCo;
        [Dobrovolskii 2021](https://aclanthology.org/2021.emnlp-main.605/), wl-coref;
        [Nedoluzhko et al. 2022](https://aclanthology.org/2022.lrec-1.520/), CorefUD.
    """
    documents = []
    for path in check_paths("paths", paths):
        name = os.fspath(path).lower().removesuffix(".gz")
        if name.endswith(_JSONLINES):
            for place, document in read_json_lines(path):
                document = _to_document(document, place)
                check_document(document, place)
                documents.append(document)
        elif name.endswith(_CONLL):
            # The first line says whether this is CoNLL-2012 or CoNLL-U.
            first = next((line for _, line in read_lines(path) if line.strip()), "")
            may_be_conllu = name.endswith(".conllu") or is_conllu(first)
            is_old = BEGIN.fullmatch(first) or not may_be_conllu
            documents.extend(read_conll(path) if is_old else read_conllu(path))
        else:
            raise ValueError(
                f"A file with coreference must end in {', '.join([*_JSONLINES, *_CONLL])}. "
                f"Received: {path}"
            )
    return check_not_empty(documents, paths, "documents")


def write_jsonlines(path: str | os.PathLike, documents, predicted_clusters=None) -> None:
    """Writes documents as JSON lines, atomically.

    Args:
        path: string.
        documents: list of dicts from `keras_spanbert.data.coreference.read`.
        predicted_clusters: list of clusters for each document, as lists of
            `[start, end]`, to write as `predicted_clusters`. Defaults to `None`.

    Raises:
        ValueError: if a document is malformed, or a mention is not in its document.
        OSError: if the file cannot be written.

    Example:
    ```python
    documents = keras_spanbert.data.coreference.read("documents.jsonlines")
    keras_spanbert.data.coreference.write_jsonlines("predicted.jsonlines", documents, [[]])
    ```
    """
    if predicted_clusters is not None:
        documents = [
            {**document, "predicted_clusters": clusters}
            for document, clusters in pair_with_clusters(documents, predicted_clusters)
        ]
    for i, document in enumerate(documents):
        check_document(document, f"documents[{i}]")
    files.write_json_lines(os.fspath(path), documents)


# === JSON of other coreference systems ===
def _to_document(row, place):
    """Converts an object of another system's format to a document. Others do not change."""
    keys = row.keys() if isinstance(row, dict) else set()
    if {"doc_key", "sentences"} <= keys:
        return with_speakers(row)
    if {"sentences", "mention_clusters"} <= keys:
        return _from_preco(row, f"{place} (PreCo)")
    if {"cased_words", "sent_id"} <= keys:
        return _from_wl_coref(row, f"{place} (wl-coref's JSON)")
    if "clusters" in keys and not keys.isdisjoint(["text", "tokens"]):
        raise ValueError(
            f"{place}: a document must have `doc_key`, `sentences` of words, and `clusters` of "
            f"mentions in words. Received: fastcoref's JSON, with the keys {', '.join(row)}. It "
            "does not say which words and sentences its text has"
        )
    return row


def _from_preco(row, place):
    sentences = field(row, "sentences", place, list)
    rule = "`sentences` must be lists of words"
    check(all(isinstance(sentence, list) for sentence in sentences), place, rule, sentences)
    sizes = [*map(len, sentences)]
    shape = "[sentence, begin, end], inside the sentence"
    return {
        "doc_key": field(row, "id", place, str),
        "sentences": sentences,
        "speakers": [["-"] * size for size in sizes],
        "clusters": _clusters(row, "mention_clusters", sizes, 3, shape, place),
    }


def _from_wl_coref(row, place):
    words = field(row, "cased_words", place, list)
    numbers = field(row, "sent_id", place, list)
    speakers = field(row, "speaker", place, list) if "speaker" in row else ["-"] * len(words)
    sizes = [len(words), len(numbers), len(speakers)]
    rule = "`cased_words`, `sent_id` and `speaker` must have the same length"
    check(len(set(sizes)) == 1, place, rule, sizes)
    are_ordered = all(map(is_integer, numbers)) and numbers == sorted(numbers)
    check(are_ordered, place, "`sent_id` must be integers that do not decrease", numbers)
    ends = [len([*group]) for _, group in itertools.groupby(numbers)]
    cuts = [*itertools.pairwise([0, *itertools.accumulate(ends)])]
    name = field(row, "document_id", place, str)
    document = {
        "doc_key": f"{name}_{field(row, 'part_id', place, int)}" if "part_id" in row else name,
        "sentences": [words[start:end] for start, end in cuts],
        "speakers": [speakers[start:end] for start, end in cuts],
    }
    # Files before and after the conversion to heads. Text to predict has neither.
    if key := next((key for key in ["span_clusters", "clusters"] if key in row), None):
        document["clusters"] = _clusters(row, key, sizes[:1], 2, "[begin, end] in words", place)
    return document


def _clusters(row, key, sizes, num_integers, shape, place):
    """Returns clusters of mentions in words. `sizes` are those of the parts that they count in."""
    first_words = [0, *itertools.accumulate(sizes)]

    def mention(given):
        is_right = isinstance(given, list) and len(given) == num_integers
        is_right = is_right and all(map(is_integer, given))
        part, begin, end = [0, *given][-3:] if is_right else [0, 0, 0]
        is_right = 0 <= part < len(sizes) and 0 <= begin < end <= sizes[part]
        check(is_right, place, f"a mention must be {shape}, with the end excluded", given)
        return [first_words[part] + begin, first_words[part] + end - 1]

    clusters = field(row, key, place, list)
    rule = f"`{key}` must be lists of mentions"
    check(all(isinstance(cluster, list) for cluster in clusters), place, rule, clusters)
    return [[mention(given) for given in cluster] for cluster in clusters]
