"""Finds entities and noun phrases in text, for `entity` and `noun_phrase` masking."""

import collections
import gzip
import io
import itertools
import json
import os
from collections.abc import Iterable, Iterator

from keras_spanbert import files
from keras_spanbert.checks import check_counts, check_in, check_path
from keras_spanbert.data.corpus import Corpus
from keras_spanbert.data.text_files import is_document_lines

# spaCy's labels of numerical entities, which SpanBERT's paper leaves out.
NUMERICAL = ("CARDINAL", "ORDINAL", "PERCENT", "MONEY", "QUANTITY", "DATE", "TIME")
# Maximum number of characters that a pipeline gets at once.
_CHUNK_CHARACTERS = 50_000
_SEPARATORS = ("\n\n", "\n", ". ", " ")


def write(documents, path: str | os.PathLike, nlp, batch_size: int = 32) -> None:
    """Writes documents with their linguistic spans, one JSON object per line.

    spaCy pipelines find entities, without numerical ones (`NUMERICAL`), and noun chunks, or one of
    the two. Noun chunks come from the dependency parser, as in the released code, although the
    paper names a constituency parser. This library's `SpanBertTokenClassifier` finds only entities.

    Args:
        documents: `Corpus`, or iterable of strings or of the pieces that `Corpus.documents` yields.
        path: string or `os.PathLike`. File to write, `.jsonl` or `.jsonl.gz`, which
            `Corpus` and `--train_data` can read.
        nlp: spaCy pipeline, or `SpanBertTokenClassifier` of entities.
        batch_size: int. Number of texts per batch of `nlp`. Defaults to `32`.

    Raises:
        ValueError: if `path` has another ending, or `nlp` finds neither entities nor noun chunks.
        OSError: if the file cannot be written.

    Example:
    ```python
    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "GPE", "pattern": "New York"}])
    keras_spanbert.data.linguistic_spans.write(["Ann left New York."], "spans.jsonl", nlp)
    ```

    Reference:
        [Joshi et al. 2020](https://arxiv.org/abs/1907.10529), section 6.1.
    """
    if isinstance(documents, Corpus):
        documents = documents.documents("all")
    pieces = ((item, True) if isinstance(item, str) else item for item in documents)
    path = check_path("path", path)
    check_counts(batch_size=batch_size)
    if not is_document_lines(path):
        raise ValueError(f"`path` must end in .jsonl or .jsonl.gz. Received: path={path}")
    with files.atomic_write(path, "wb") as file:
        with gzip.open(file, "wb") if path.lower().endswith(".gz") else file as packed:
            with io.TextIOWrapper(packed, encoding="utf-8", newline="") as lines:
                _write(pieces, lines, nlp, batch_size)


def _chunks(pieces):
    """Yields pieces, the long ones in parts that are cut between paragraphs if possible."""
    for text, ends_document in pieces:
        start = 0
        while len(text) - start > _CHUNK_CHARACTERS:
            window = text[start : start + _CHUNK_CHARACTERS]
            ends = [window.rfind(mark) + len(mark) for mark in _SEPARATORS]
            half = _CHUNK_CHARACTERS // 2
            size = next((end for end in ends if end > half), _CHUNK_CHARACTERS)
            yield window[:size], False
            start += size
        yield str(text[start:]), ends_document  # spaCy refuses subclasses.


def _write(pieces, lines, nlp, batch_size):
    chunks, again = itertools.tee(_chunks(pieces))
    kinds, text, spans = (), "", collections.defaultdict(list)
    results = find((chunk for chunk, _ in chunks), nlp, batch_size)
    for (chunk, ends_document), found in zip(again, results):
        kinds = kinds or list(found)
        for kind, places in found.items():
            spans[kind] += [[start + len(text), end + len(text)] for start, end in places]
        text += chunk
        if ends_document:
            document = {"text": text, "spans": {kind: spans[kind] for kind in kinds}}
            lines.write(json.dumps(document) + "\n")
            text, spans = "", collections.defaultdict(list)
    if not kinds:
        raise ValueError(
            "`nlp` must find entities or noun chunks. A spaCy pipeline needs an `ner`, an "
            f"`entity_ruler` or a parser. Received: {getattr(nlp, 'pipe_names', nlp)}"
        )


def find(texts: Iterable[str], nlp, batch_size: int = 32) -> Iterator[dict]:
    """Yields the spans of each text: a dict from kind to a list of `(start, end)` in characters.

    Args:
        texts: iterable of strings.
        nlp, batch_size: see `write`.
    """
    if hasattr(nlp, "tag"):
        check_in("nlp.labels", nlp.labels, nlp.is_of_entities, "labels of entities")
        texts = iter(texts)
        while batch := list(itertools.islice(texts, batch_size)):
            for entities in nlp.tag(batch, batch_size=batch_size):
                names = [entity for entity in entities if _is_name(entity["label"])]
                yield {"entity": [(name["start"], name["end"]) for name in names]}
        return
    for doc in nlp.pipe(texts, batch_size=batch_size):
        found = {}
        # spaCy says that a doc without tokens has every annotation.
        if len(doc) and doc.has_annotation("ENT_IOB"):
            names = [entity for entity in doc.ents if _is_name(entity.label_)]
            found["entity"] = [(name.start_char, name.end_char) for name in names]
        if len(doc) and doc.has_annotation("DEP"):
            chunks = doc.noun_chunks
            found["noun_phrase"] = [(chunk.start_char, chunk.end_char) for chunk in chunks]
        yield found


def _is_name(label):
    return label.upper() not in NUMERICAL
