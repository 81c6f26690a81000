"""Files with coreference: the released jsonlines, CoNLL-2012 and LitBank."""

import os

from keras_spanbert import files
from keras_spanbert.data.coreference_conll import read_conll, write_conll
from keras_spanbert.data.coreference_documents import (
    check_document,
    clusters_in_words,
    pair_with_clusters,
)
from keras_spanbert.data.examples import as_list
from keras_spanbert.data.text_files import read_json_lines

__all__ = [
    "check_document",
    "clusters_in_words",
    "read",
    "write_conll",
    "write_jsonlines",
]

_JSONLINES = (".jsonlines", ".jsonl")
_CONLL = (".conll", "_conll")


def read(paths) -> list[dict]:
    """Reads and checks documents with coreference, of any of the formats.

    A document is a dict that JSON can hold, of one meaning in all formats:

    - `doc_key`: string. A document's id, and `_` with the number of its part
      where a CoNLL file has parts. Its first two letters may name the genre.
    - `sentences`: list of lists of strings: words, or in `.jsonlines` of the
      released scripts subtokens, of which a list is a segment.
    - `speakers`: parallel to `sentences`, `"-"` for none.
    - `clusters`: list of clusters, each a list of mentions `[start, end]`, both
      within it, that count the strings of all `sentences`. A mention that
      stands twice in the file does so here.

    Those in subtokens have `sentence_map` and `subtoken_map` too, the sentence
    and the word of each. JSON lines stay as they are: what they do not have,
    such as `clusters` of text to predict, is not added, and more is kept. CoNLL
    documents also have `part`, the number as it was written.

    Args:
        paths: string or list of strings. `.jsonlines` and `.jsonl` hold a JSON
            object a line. `.conll` and what ends in `_conll`, as OntoNotes' files
            do, have the columns of CoNLL-2012 between spaces or tabs, with
            coreference in the last one, where `-`, `_` or nothing is no mention;
            LitBank's are such files.

    Returns:
        List of documents.

    Raises:
        ValueError: where a file is of no such name, not UTF-8, not of its form
            (path, line and rule are named), or there are no documents.

    Example:
    ```python
    documents = keras_spanbert.data.coreference.read("litbank/coref/conll/158_emma_brat.conll")
    gold = [document["clusters"] for document in documents]
    keras_spanbert.metrics.coreference(gold, gold)["average_f1"]  # 100.0
    ```

    Reference:
        [Pradhan et al. 2012](https://aclanthology.org/W12-4501/);
        [Bamman et al. 2020](https://aclanthology.org/2020.lrec-1.6/);
        [Joshi et al. 2019](https://arxiv.org/abs/1908.09091).
    """
    documents = []
    for path in as_list(paths):
        if os.fspath(path).endswith(_JSONLINES):
            documents.extend(_read_jsonlines(path))
        elif os.fspath(path).endswith(_CONLL):
            documents.extend(read_conll(path))
        else:
            raise ValueError(
                f"A file with coreference must end in {', '.join([*_JSONLINES, *_CONLL])}. "
                f"Received: {path}"
            )
    if not documents:
        raise ValueError(f"{paths} must hold documents. Received: none")
    return documents


def _read_jsonlines(path):
    for place, document in read_json_lines(path):
        check_document(document, place)
        yield document


def write_jsonlines(path: str | os.PathLike, documents, predicted_clusters=None) -> None:
    """Writes documents as JSON lines, whole or not at all.

    Args:
        path: string.
        documents: list of dicts, as `keras_spanbert.data.coreference.read` gives.
        predicted_clusters: list of clusters for each document, as lists of
            `[start, end]`, which are written as `predicted_clusters`, as in the
            released code. Defaults to `None`: the documents as they are.

    Raises:
        ValueError: where a document is not of the form, or a mention not in it.
        OSError: where the file cannot be written.

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
