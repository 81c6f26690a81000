"""Converts the text of documents to blocks of tokens, with marks of linguistic spans."""

import bisect
import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from keras_spanbert.optional import require

# The masking schemes for these kinds have the same names.
SPAN_KINDS = ("entity", "noun_phrase")

# Marks of linguistic spans use 2 bits per kind above the id bits, so that one array has both and
# is stored and read like ids.
_ID_BITS = 27
# Number of characters that are tokenized at once.
_TOKENIZE_CHARACTERS = 1 << 18


# === Blocks ===
def chunk_pieces(pieces: Iterable[tuple[str, bool, int]], cross_documents: bool) -> Iterator[tuple]:
    """Groups pieces `(text, ends_document, index of the range)` into chunks for the tokenizer.

    Yields three lists: texts, whether a block must end after each, and whether a `[SEP]` follows
    it, because the block continues with the next document of the same range.
    """
    group, size = ([], [], []), 0
    # Blocks that cross documents end with their range. Only the next piece shows where.
    for (text, ends, within), following in itertools.pairwise(itertools.chain(pieces, [None])):
        continues = False
        if cross_documents:
            ends_range = following is None or following[2] != within
            ends, continues = ends_range, ends and not ends_range
        for values, value in zip(group, (text, ends, continues)):
            values.append(value)
        size += len(text)
        if size >= _TOKENIZE_CHARACTERS:
            yield group
            group, size = ([], [], []), 0
    if group[0]:
        yield group


class BlockBuilder:
    """Tokenizes chunks of text and cuts them into blocks: see `Corpus.blocks`."""

    def __init__(self, tokenizer, sequence_length: int, min_tokens: int):
        self.tokenizer = tokenizer
        self.sequence_length = sequence_length
        self.min_tokens = min_tokens
        self._rest = np.zeros(0, np.int32)  # The tokens of a document that is not complete.

    def blocks(self, texts: list[str], ends: list[bool], continues: list[bool]) -> np.ndarray:
        """Returns blocks int32 `[blocks, sequence_length]` of a chunk: see `chunk_pieces`."""
        texts, spans = list(map(str, texts)), [getattr(text, "spans", {}) for text in texts]
        if any(spans):
            values, lengths, marks = tokenize_with_span_marks(self.tokenizer, texts, spans)
            for i, kind in enumerate(SPAN_KINDS):
                values = values | marks[kind] << (_ID_BITS + 2 * i)
        else:
            tf = require("tensorflow", "A corpus")
            tokens = self.tokenizer.traced(tf.constant(texts))  # Several times faster than eagerly.
            values, lengths = tokens.flat_values.numpy(), tokens.row_lengths().numpy()
        if any(continues):
            separator = self.tokenizer.sep_token_id
            values = np.insert(values, np.cumsum(lengths)[continues], separator)
            lengths += continues
        values = np.concatenate([self._rest, values])
        lengths[0] += len(self._rest)
        blocks, start, size = [], 0, self.sequence_length - 2
        for stop, must_end in zip(np.cumsum(lengths).tolist(), ends):
            # Until a document ends, only full blocks are cut.
            while stop - start >= size or (must_end and stop > start):
                blocks.append(values[start : min(start + size, stop)])
                start += len(blocks[-1])
        self._rest = values[start:]
        blocks = [block for block in blocks if len(block) >= min(self.min_tokens, size)]
        packed = np.full((len(blocks), size + 2), self.tokenizer.pad_token_id, np.int32)
        packed[:, 0] = self.tokenizer.cls_token_id
        for row, block in zip(packed, blocks):
            row[1 : 1 + len(block)] = block
            row[1 + len(block)] = self.tokenizer.sep_token_id
        return packed


def tokenizer_settings(source) -> dict:
    """Returns the arguments of a tokenizer, or those of the tokenizer of a `PreparedCorpus`."""
    names = ["vocabulary", "lowercase", "added_tokens", "special_tokens_in_strings"]
    settings = {name: getattr(source, name) for name in names}
    # A NumPy bool is no JSON.
    return {**settings, "special_tokens_in_strings": bool(source.special_tokens_in_strings)}


def remove_span_marks(blocks):
    """Returns only the ids of a NumPy array or a tensor of `tf.data`."""
    return blocks % 2**_ID_BITS


def extract_span_marks(blocks, kind: str):
    """Returns only the marks of one kind, in the form that `SpanMasking` takes."""
    return blocks // 2 ** (_ID_BITS + 2 * SPAN_KINDS.index(kind)) % 4


# === Linguistic spans ===
class AnnotatedText(str):
    """A document or a piece of one, with its `place` in a file and its linguistic spans.

    `spans` is a dict from kinds to int32 `[spans, 2]`: start and end (excluded) in characters of
    this text, sorted and without overlaps. The spans of a piece may extend beyond it.
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
    tokenizer, texts: list[str], spans: list[dict]
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Tokenizes texts and marks the words of their spans: see `AnnotatedText`.

    Returns the token ids of all texts, int32 `[tokens]`, the number of tokens of each text, and a
    dict from kinds of spans to marks int32 `[tokens]`: see `SpanMasking`.
    """
    ids, offsets = tokenizer.tokenize_batch(texts, with_offsets=True)
    suffix, vocabulary = tokenizer.suffix_indicator, tokenizer.get_vocabulary()
    continues = np.array([token.startswith(suffix) for token in vocabulary])
    marks = {kind: [np.zeros(len(tokens), np.int32) for tokens in ids] for kind in SPAN_KINDS}
    for i, by_kind in enumerate(spans):
        starts, ends = offsets[i].T
        words = np.append(np.flatnonzero(~continues[ids[i]]), len(ids[i]))  # Their first tokens.
        for kind, places in by_kind.items():
            first = np.searchsorted(ends, places[:, 0], side="right")
            stop = np.searchsorted(starts, places[:, 1], side="left")
            places, first, stop = (x[first < stop] for x in (places, first, stop))
            first = words[np.searchsorted(words, first, side="right") - 1]
            for a, b in zip(first, words[np.searchsorted(words, stop, side="left")]):
                marks[kind][i][a:b] = 2
            # The first token of a span that began in the previous piece is marked 2, not 1.
            marks[kind][i][first[places[:, 0] >= 0]] = 1
    lengths = np.array([*map(len, ids)])
    return np.concatenate(ids), lengths, {kind: np.concatenate(x) for kind, x in marks.items()}
