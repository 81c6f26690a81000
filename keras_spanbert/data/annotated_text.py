"""Texts with linguistic spans, and the marks of the spans' tokens."""

import bisect
import functools
import unicodedata

import numpy as np

# The masking schemes for these kinds have the same names.
SPAN_KINDS = ("entity", "noun_phrase")

# Code points that BERT treats as Chinese. Each of these characters is a word.
_CHINESE = [
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0x2F800, 0x2FA1F),
]  # fmt: skip


class AnnotatedText(str):
    """A string with its linguistic spans: a document, at the `place` in a file, or a piece of one.

    `spans` is a dict from kinds in `SPAN_KINDS` to int32 `[spans, 2]`: start and end (excluded) in
    characters, sorted and without overlaps. In a piece of a document they are relative to the piece
    and may extend beyond it.
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
    """Returns sorted spans int32 `[spans, 2]`, without those that overlap a longer one."""
    kept = []  # Sorted, without overlaps.
    # The longest comes first, and of equally long spans the first.
    for span in sorted(map(tuple, spans), key=lambda span: (span[0] - span[1], span)):
        i = bisect.bisect(kept, span)
        is_free = not i or kept[i - 1][1] <= span[0]
        if is_free and (i == len(kept) or span[1] <= kept[i][0]):
            kept.insert(i, span)
    return np.array(kept, np.int32).reshape(-1, 2)


def tokenize_with_span_marks(
    tokenize, texts: list[str]
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Tokenizes texts, some of them `AnnotatedText`, and marks the tokens of linguistic spans.

    `tokenize` is a function of strings. It returns the token ids of all, int32 `[tokens]`, and the
    number of tokens of each. Returns the same for the texts, and a dict from kinds of spans to
    marks int32 `[tokens]`: see `SpanMasking`.
    """
    parts, num_parts = [], []
    found = {kind: [] for kind in SPAN_KINDS}
    for text in texts:
        # The text is cut where spans start and end. Whole words keep their tokens.
        spans = {kind: _expand_to_words(text, s) for kind, s in getattr(text, "spans", {}).items()}
        cuts = [np.array([0, len(text)]), *(whole.ravel() for whole in spans.values())]
        cuts = np.unique(np.concatenate(cuts))
        for kind, whole in spans.items():
            begins_here = text.spans[kind][:, :1] >= 0
            place = len(parts) + np.searchsorted(cuts, whole)
            found[kind].append(np.concatenate([place, begins_here], axis=1))
        num_parts.append(max(len(cuts) - 1, 1))
        edges = cuts.tolist()
        parts += [text[a:b] for a, b in zip(edges, edges[1:])] or [text]
    values, lengths = tokenize(parts)
    stops = np.concatenate([[0], np.cumsum(lengths)])  # Ends of the parts, in tokens.
    marks = {}
    for kind, spans in found.items():
        if spans:
            start, stop, begins_here = np.concatenate(spans).T
            marks[kind] = _marks(len(values), stops[start], stops[stop], begins_here)
    last_part = np.cumsum(num_parts)
    return values, np.diff(stops[last_part], prepend=0), marks


def _marks(num_tokens, starts, stops, begins_here):
    has_tokens = starts < stops
    starts, stops, begins_here = (x[has_tokens] for x in (starts, stops, begins_here))
    change = np.zeros(num_tokens + 1, np.int32)
    np.add.at(change, starts, 1)
    np.add.at(change, stops, -1)
    marks = np.where(np.cumsum(change[:-1]) > 0, np.int32(2), np.int32(0))
    # The first token of a span that began in the previous piece is marked 2, not 1.
    marks[starts[begins_here > 0]] = 1
    return marks


def _expand_to_words(text, spans):
    """Returns spans limited to a text and extended to whole words of the tokenizer."""
    length = len(text)
    code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    is_apart = _separators()[code_points]
    may_cut = np.ones(length + 1, bool)
    may_cut[1:-1] = is_apart[:-1] | is_apart[1:]
    places = np.arange(length + 1, dtype=np.int32)
    before = np.maximum.accumulate(np.where(may_cut, places, 0))
    after = np.minimum.accumulate(np.where(may_cut, places, length)[::-1])[::-1]
    spans = np.clip(spans, 0, length)
    return np.stack([before[spans[:, 0]], after[spans[:, 1]]], axis=1)


@functools.lru_cache(maxsize=1)
def _separators():
    """Returns bool `[code points]`: whether a character is a blank or a word of its own."""
    # If one is missing here, spans only extend further, to the next separator.
    is_apart = np.zeros(0x110000, bool)
    for code in range(len(is_apart)):
        category = unicodedata.category(chr(code))
        is_apart[code] = category == "Zs" or category[0] == "P"
    for first, last in _CHINESE:
        is_apart[first : last + 1] = True
    for character in "\t\n\r$+<=>^`|~":
        is_apart[ord(character)] = True
    return is_apart
