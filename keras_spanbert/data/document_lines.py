"""Reads and checks JSON lines of documents with linguistic spans."""

import os
from collections.abc import Iterator

from keras_spanbert.data.annotated_text import SPAN_KINDS, AnnotatedText, filter_spans
from keras_spanbert.data.examples import check_text
from keras_spanbert.data.file_ranges import WHOLE_FILE, ByteRange
from keras_spanbert.data.text_files import cut_into_pieces, read_json_lines
from keras_spanbert.models.strings import replace_surrogates

_ENDINGS = (".jsonl", ".jsonl.gz")


def is_document_lines(path: str | os.PathLike) -> bool:
    """Returns whether a file has one document per line, judging by its name."""
    return os.fspath(path).endswith(_ENDINGS)


def read_document_lines(
    path: str, encoding_errors: str, within: ByteRange = WHOLE_FILE
) -> Iterator[tuple[AnnotatedText, bool]]:
    """Yields `(text, ends_document)`. Long documents come in pieces, and blank ones are skipped.

    A line is `{"text": "...", "spans": [[start, end], ...]}`. Positions count
    characters from 0, and the end is excluded. A list of spans is used for both
    kinds. To give each kind its own, use `"spans": {"entity": [...],
    "noun_phrase": [...]}`. `spans` is optional. If spans overlap, the longest is
    kept.

    Raises:
        ValueError: if a line has another format. The message names the path and line.
    """
    for place, row in read_json_lines(path, encoding_errors, within):
        text = row.get("text") if isinstance(row, dict) else None
        if not isinstance(text, str):
            raise ValueError(
                f'{place}: a document must be {{"text": "...", "spans": [[start, end], ...]}}. '
                f"Received: {row!r:.80}"
            )
        if encoding_errors == "replace":
            text = replace_surrogates(text)
        check_text(place, text=[text])
        document = AnnotatedText(text, _spans(row.get("spans"), text, place), place)
        if text.strip():
            for start, stop in cut_into_pieces(text):
                yield document.piece(start, stop), stop == len(text)


def _spans(given, text, place):
    """Returns checked spans by kind."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        found = _check_spans(given, text, place)
        return dict.fromkeys(SPAN_KINDS, found)
    for kind in given:
        if kind not in SPAN_KINDS:
            raise ValueError(
                f"{place}: kinds of `spans` must be {' or '.join(SPAN_KINDS)}. Received: {kind!r}"
            )
    return {kind: _check_spans(spans, text, place) for kind, spans in given.items()}


def _check_spans(spans, text, place):
    for span in spans if isinstance(spans, list) else [spans]:
        is_pair = isinstance(span, list) and [type(x) for x in span] == [int, int]
        if not is_pair or not 0 <= span[0] < span[1] <= len(text):
            raise ValueError(
                f"{place}: `spans` must be a list of [start, end] in characters, with 0 <= start "
                f"< end <= {len(text)}, the length of the text. Received: {span!r:.80}"
            )
    return filter_spans(spans)
