"""Texts that know their linguistic spans, and the marks of the spans' tokens."""

import functools
import unicodedata

import numpy as np

# As the masking schemes are called that draw them.
SPAN_KINDS = ("entity", "noun_phrase")

# The ranges that BERT takes for Chinese, whose characters are words.
_CHINESE = [
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0x2F800, 0x2FA1F),
]  # fmt: skip


class MarkedText(str):
    """A string, a document or a piece of one, with the linguistic spans in it.

    Attributes:
        spans: dict of a kind of `SPAN_KINDS` to int32 `[spans, 2]`, first
            character and the one past the last, sorted and apart. In a piece of
            a document they count from the piece's start and may reach out of it.
        place: string, path and line, for messages.
    """

    def __new__(cls, text: str, spans: dict, place: str = ""):
        marked = super().__new__(cls, text)
        marked.spans = spans
        marked.place = place
        return marked

    def __reduce__(self):
        return MarkedText, (str(self), self.spans, self.place)

    def piece(self, start: int, stop: int) -> "MarkedText":
        """The characters from `start` to before `stop`, with all spans that touch them."""
        spans = {}
        for kind, found in self.spans.items():
            first = np.searchsorted(found[:, 1], start, side="right")
            last = np.searchsorted(found[:, 0], stop, side="left")
            spans[kind] = found[first:last] - np.int32(start)
        return MarkedText(self[start:stop], spans, self.place)


def longest_apart(spans: list) -> np.ndarray:
    """Sorted spans int32 `[spans, 2]`, without those that overlap a longer one.

    Of spans as long, the first stays.
    """
    spans = np.array(sorted(map(tuple, spans)), np.int32).reshape(-1, 2)
    if not (spans[1:, 0] < spans[:-1, 1]).any():
        return spans
    kept = []
    # Groups that hang together are small, whatever the document.
    reach = np.maximum.accumulate(spans[:, 1])
    begins = np.flatnonzero(spans[1:, 0] >= reach[:-1]) + 1
    for group in np.split(spans, begins):
        mine = []
        for start, end in sorted(group.tolist(), key=lambda span: (span[0] - span[1], span)):
            if all(end <= a or b <= start for a, b in mine):
                mine.append((start, end))
        kept += sorted(mine)
    return np.array(kept, np.int32)


def tokenize_with_marks(
    tokenize, texts: list[str]
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Tokens of texts, and where linguistic spans are among them.

    Texts are cut where spans begin and end, which changes no token: cuts are
    moved out to where a word ends.

    Args:
        tokenize: function of strings to token ids int32 `[tokens]` and numbers
            of tokens `[strings]`.
        texts: list of strings, some of them `MarkedText`.

    Returns:
        Token ids int32 `[tokens]`, number of tokens of each text, and for each
        kind of spans marks int32 `[tokens]`, as `SpanMasking` takes them.
    """
    parts, num_parts = [], []
    found = {kind: [] for kind in SPAN_KINDS}
    for text in texts:
        spans = {kind: _whole_words(text, s) for kind, s in getattr(text, "spans", {}).items()}
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
    stops = np.concatenate([[0], np.cumsum(lengths)])  # Of the parts, in tokens.
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
    # A span that goes on from a piece before keeps its 2.
    marks[starts[begins_here > 0]] = 1
    return marks


def _whole_words(text, spans):
    """Spans within a text, each moved out to where the tokenizer may part words."""
    length = len(text)
    code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    is_apart = _stands_apart()[code_points]
    may_cut = np.ones(length + 1, bool)
    may_cut[1:-1] = is_apart[:-1] | is_apart[1:]
    places = np.arange(length + 1, dtype=np.int32)
    before = np.maximum.accumulate(np.where(may_cut, places, 0))
    after = np.minimum.accumulate(np.where(may_cut, places, length)[::-1])[::-1]
    spans = np.clip(spans, 0, length)
    return np.stack([before[spans[:, 0]], after[spans[:, 1]]], axis=1)


@functools.lru_cache(maxsize=1)
def _stands_apart():
    """bool `[code points]`: blanks and what is a word by itself, which part any words.

    A character that is left out by mistake makes a span reach further, to the next one.
    """
    is_apart = np.zeros(0x110000, bool)
    for code in range(len(is_apart)):
        category = unicodedata.category(chr(code))
        is_apart[code] = category == "Zs" or category[0] == "P"
    for first, last in _CHINESE:
        is_apart[first : last + 1] = True
    for character in "\t\n\r$+<=>^`|~":
        is_apart[ord(character)] = True
    return is_apart
