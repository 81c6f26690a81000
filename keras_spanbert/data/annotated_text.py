"""Texts with linguistic spans, and the marks of the spans' tokens."""

import numpy as np

# The masking schemes for these kinds have the same names.
SPAN_KINDS = ("entity", "noun_phrase")


class AnnotatedText(str):
    """A string with its linguistic spans: a document or a piece of one.

    Attributes:
        spans: dict from kinds in `SPAN_KINDS` to int32 `[spans, 2]`: start and
            end (excluded) in characters, sorted and without overlaps. In a piece
            of a document they are relative to the piece and may extend beyond it.
        place: string. Path and line of the document, for messages.
    """

    def __new__(cls, text: str, spans: dict, place: str = ""):
        marked = super().__new__(cls, text)
        marked.spans = spans
        marked.place = place
        return marked

    def __reduce__(self):
        return AnnotatedText, (str(self), self.spans, self.place)

    def piece(self, start: int, stop: int) -> "AnnotatedText":
        """Returns the characters from `start` up to `stop`, with the spans that overlap them."""
        spans = {}
        for kind, found in self.spans.items():
            first = np.searchsorted(found[:, 1], start, side="right")
            last = np.searchsorted(found[:, 0], stop, side="left")
            spans[kind] = found[first:last] - np.int32(start)
        return AnnotatedText(self[start:stop], spans, self.place)


def filter_spans(spans: list) -> np.ndarray:
    """Returns sorted spans int32 `[spans, 2]`, without those that overlap a longer one.

    If overlapping spans have the same length, the first is kept.
    """
    spans = np.array(sorted(map(tuple, spans)), np.int32).reshape(-1, 2)
    if not (spans[1:, 0] < spans[:-1, 1]).any():
        return spans
    kept = []
    # Spans are compared only within groups that overlap, which are small.
    reach = np.maximum.accumulate(spans[:, 1])
    begins = np.flatnonzero(spans[1:, 0] >= reach[:-1]) + 1
    for group in np.split(spans, begins):
        mine = []
        for start, end in sorted(group.tolist(), key=lambda span: (span[0] - span[1], span)):
            if all(end <= a or b <= start for a, b in mine):
                mine.append((start, end))
        kept += sorted(mine)
    return np.array(kept, np.int32)


def tokenize_with_span_marks(
    tokenizer, texts: list[str], continuation_ids: list[int]
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Tokenizes texts and marks the tokens of linguistic spans.

    The tokens of a span are those of all words that it touches.

    Args:
        tokenizer: `SpanBertTokenizer`.
        texts: list of strings, some of them `AnnotatedText`.
        continuation_ids: ints. Ids of tokens that continue a word.

    Returns:
        Token ids int32 `[tokens]`, the number of tokens of each text, and a dict
        from kinds of spans to marks int32 `[tokens]`: see `SpanMasking`.
    """
    token_ids, offsets = tokenizer.tokenize_batch(texts, with_offsets=True)
    lengths = np.array([len(ids) for ids in token_ids])
    first_characters = np.cumsum([0, *map(len, texts)])
    values = np.concatenate(token_ids)
    # Positions count the characters of all texts, one after another.
    offsets = np.concatenate([o + first for o, first in zip(offsets, first_characters)])
    words = np.flatnonzero(~np.isin(values, continuation_ids))
    marks = {}
    for kind in SPAN_KINDS:
        found = [
            (np.clip(text.spans[kind], 0, len(text)) + first, text.spans[kind][:, 0] >= 0)
            for text, first in zip(texts, first_characters)
            if kind in getattr(text, "spans", ())
        ]
        if found:
            spans, begins_here = map(np.concatenate, zip(*found))
            marks[kind] = _marks(offsets, words, spans, begins_here)
    return values, lengths, marks


def _marks(offsets, words, spans, begins_here):
    """Returns the marks of tokens `[tokens]`. `words` are the numbers of words' first tokens."""
    first = np.searchsorted(offsets[:, 1], spans[:, 0], side="right")
    stop = np.searchsorted(offsets[:, 0], spans[:, 1], side="left")
    has_tokens = first < stop
    first, stop, begins_here = (x[has_tokens] for x in (first, stop, begins_here))
    first = words[np.searchsorted(words, first, side="right") - 1]
    stop = np.append(words, len(offsets))[np.searchsorted(words, stop, side="left")]
    change = np.zeros(len(offsets) + 1, np.int32)
    np.add.at(change, first, 1)
    np.add.at(change, stop, -1)
    marks = np.where(np.cumsum(change[:-1]) > 0, np.int32(2), np.int32(0))
    # The first token of a span that began in the previous piece is marked 2, not 1.
    marks[first[begins_here]] = 1
    return marks
