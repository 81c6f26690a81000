"""Text to text with its entities and noun phrases, which `entity` and `noun_phrase` masking take.

```python
nlp = spacy.load("en_core_web_sm")
keras_spanbert.data.linguistic_spans.write(keras_spanbert.Corpus("texts/*.txt"), "texts.jsonl", nlp)
```
"""

import collections
import gzip
import io
import itertools
import json
import os
from collections.abc import Iterable, Iterator

from keras_spanbert import files
from keras_spanbert.data.corpus import Corpus
from keras_spanbert.data.document_lines import is_document_lines

# What spaCy's pipelines find in this way is a number: SpanBERT's paper leaves it out.
NUMERICAL = ("CARDINAL", "ORDINAL", "PERCENT", "MONEY", "QUANTITY", "DATE", "TIME")

# Pipelines take so many characters at once: longer documents are cut, between paragraphs where
# there are some.
_PART_CHARACTERS = 50_000
_SEPARATORS = ("\n\n", "\n", ". ", " ")


def write(documents, path: str | os.PathLike, nlp, batch_size: int = 32) -> None:
    """Finds the linguistic spans of documents and writes both, a JSON object a line.

    A spaCy pipeline gives entities, but for numerical ones (`NUMERICAL`), and
    noun chunks, which come from its dependency parser, in place of the
    constituency parser that the paper names; the released code takes these
    too. What the pipeline does not find is left out. This library's
    `SpanBertTokenClassifier` gives entities alone.

    Args:
        documents: `Corpus`, or iterable of strings.
        path: string or `os.PathLike`, a file to write: `.jsonl` or `.jsonl.gz`.
            `Corpus` and `--train_data` read it.
        nlp: spaCy pipeline, or `SpanBertTokenClassifier` of entities.
        batch_size: int. Texts that `nlp` takes at once. Defaults to `32`.

    Raises:
        ValueError: where `path` ends in something else, or `nlp` finds neither
            entities nor noun chunks.
        OSError: where it cannot be written.

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
        pieces = documents.documents("all")
    else:
        pieces = ((text, True) for text in documents)
    write_pieces(pieces, path, nlp, batch_size)


def write_pieces(
    pieces: Iterable[tuple[str, bool]], path: str | os.PathLike, nlp, batch_size: int = 32
) -> None:
    """`write` of `(text, ends_document)`, as `Corpus.documents` yields them."""
    path = os.fspath(path)
    if not is_document_lines(path):
        raise ValueError(f"`path` must end in .jsonl or .jsonl.gz. Received: path={path}")
    with files.replacing(path, "wb") as file:
        with gzip.open(file, "wb") if path.endswith(".gz") else file as packed:
            with io.TextIOWrapper(packed, encoding="utf-8", newline="") as lines:
                _write(pieces, lines, nlp, batch_size)


def _write(pieces, lines, nlp, batch_size):
    waiting = collections.deque()  # What `nlp` has taken and not given back yet.

    def parts():
        for text, ends_document in pieces:
            for part, is_last in _parts(text):
                waiting.append((part, ends_document and is_last))
                yield part

    kinds, spans, length = None, None, 0
    for found in find(parts(), nlp, batch_size):
        part, ends_document = waiting.popleft()
        if kinds is None and found:
            kinds = list(found)
        if spans is None:
            lines.write('{"text": "')
            spans = collections.defaultdict(list)
        lines.write(json.dumps(part)[1:-1])
        for kind, places in found.items():
            spans[kind] += [[start + length, end + length] for start, end in places]
        length += len(part)
        if ends_document:
            spans = {kind: spans[kind] for kind in kinds or ()}
            lines.write(f'", "spans": {json.dumps(spans)}}}\n')
            spans, length = None, 0
    if not kinds:
        raise ValueError(
            "A pipeline must find entities or noun chunks, as of spaCy one with a parser, an `ner` "
            f"or an `entity_ruler`. Received: {getattr(nlp, 'pipe_names', nlp)}"
        )


def _parts(text):
    """Yields `(part, is_last)`."""
    start = 0
    while len(text) - start > _PART_CHARACTERS:
        window = text[start : start + _PART_CHARACTERS]
        ends = [window.rfind(mark) + len(mark) for mark in _SEPARATORS]
        size = next((end for end in ends if end > _PART_CHARACTERS // 2), _PART_CHARACTERS)
        yield window[:size], False
        start += size
    yield text[start:], True


def find(texts: Iterable[str], nlp, batch_size: int = 32) -> Iterator[dict]:
    """Yields for each text a dict of kinds of spans to lists of `(start, end)`, in characters.

    Args:
        texts: iterable of strings.
        nlp, batch_size: see `write`.
    """
    if hasattr(nlp, "tag"):
        if not nlp.is_of_entities:
            raise ValueError(
                "`nlp` must have labels of entities. Received: a model with labels "
                f"{', '.join(nlp.labels)[:80]}"
            )
        texts = iter(texts)
        while batch := list(itertools.islice(texts, batch_size)):
            for entities in nlp.tag(batch, batch_size=batch_size):
                found = [(e["start"], e["end"], e["label"]) for e in entities]
                yield {"entity": _names(found)}
        return
    for doc in nlp.pipe(texts, batch_size=batch_size):
        found = {}
        # Without a token, each annotation would count as there.
        if len(doc) and doc.has_annotation("ENT_IOB"):
            ents = [(e.start_char, e.end_char, e.label_) for e in doc.ents]
            found["entity"] = _names(ents)
        if len(doc) and doc.has_annotation("DEP"):
            chunks = [(chunk.start_char, chunk.end_char) for chunk in doc.noun_chunks]
            found["noun_phrase"] = chunks
        yield found


def _names(entities):
    return [(start, end) for start, end, label in entities if label.upper() not in NUMERICAL]
