"""JSON lines of documents with linguistic spans, read and checked."""

import os
from collections.abc import Iterator

from keras_spanbert.data.examples import check_text
from keras_spanbert.data.file_ranges import WHOLE_FILE, ByteRange
from keras_spanbert.data.marked_text import SPAN_KINDS, MarkedText, longest_apart
from keras_spanbert.data.text_files import cut_into_pieces, read_json_lines
from keras_spanbert.models.strings import well_formed

_ENDINGS = (".jsonl", ".jsonl.gz")


def is_document_lines(path: str | os.PathLike) -> bool:
    """Whether a file has a document a line, by its name."""
    return os.fspath(path).endswith(_ENDINGS)


def read_document_lines(
    path: str, encoding_errors: str, within: ByteRange = WHOLE_FILE
) -> Iterator[tuple[MarkedText, bool]]:
    """Yields `(text, ends_document)`; long documents come in pieces, blank ones not at all.

    A line is `{"text": "...", "spans": [[start, end], ...]}`, in characters from
    0 with the end excluded, or with `"spans": {"entity": [...], "noun_phrase":
    [...]}`. A list serves for either kind, and there may be none. Of spans that
    overlap the longest stays.

    Args:
        path: string.
        encoding_errors: "strict", or "replace" to read on behind bytes that are
            not UTF-8.
        within: `ByteRange` to read. Defaults to the whole file.

    Raises:
        ValueError: where a line is something else (path and line are named).
    """
    for place, row in read_json_lines(path, encoding_errors, within):
        text = row.get("text") if isinstance(row, dict) else None
        if not isinstance(text, str):
            raise ValueError(
                f'{place}: a document must be {{"text": "...", "spans": [[start, end], ...]}}. '
                f"Received: {row!r:.80}"
            )
        if encoding_errors == "replace":
            text = well_formed(text)
        check_text(place, text=[text])
        document = MarkedText(text, _spans(row.get("spans"), text, place), place)
        if text.strip():
            for start, stop in cut_into_pieces(text):
                yield document.piece(start, stop), stop == len(text)


def _spans(given, text, place):
    """Spans by their kinds, checked."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        found = _checked(given, text, place)
        return dict.fromkeys(SPAN_KINDS, found)
    for kind in given:
        if kind not in SPAN_KINDS:
            raise ValueError(
                f"{place}: kinds of `spans` must be of {', '.join(SPAN_KINDS)}. Received: {kind!r}"
            )
    return {kind: _checked(spans, text, place) for kind, spans in given.items()}


def _checked(spans, text, place):
    for span in spans if isinstance(spans, list) else [spans]:
        is_pair = isinstance(span, list) and [type(x) for x in span] == [int, int]
        if not is_pair or not 0 <= span[0] < span[1] <= len(text):
            raise ValueError(
                f"{place}: `spans` must be a list of [start, end] in characters, 0 <= start < end "
                f"<= {len(text)}, the text's length. Received: {span!r:.80}"
            )
    return longest_apart(spans)
