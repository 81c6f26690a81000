"""Documents' text to blocks of tokens."""

from collections.abc import Iterable, Iterator

import numpy as np

from keras_spanbert.data.marked_text import SPAN_KINDS, MarkedText, tokenize_with_marks
from keras_spanbert.optional import import_tensorflow

# Marks of linguistic spans, 2 bits a kind, travel above the ids, so that whatever takes, shuffles
# or keeps blocks takes these with them.
_ID_BITS = 27
# Text handed to the tokenizer at once, in characters.
_TOKENIZE_CHARACTERS = 1 << 18


class PieceGroups:
    """Groups pieces of documents into parts for the tokenizer.

    Args:
        cross_documents: bool. Whether blocks go on from a document to the next
            one of its file.
    """

    def __init__(self, cross_documents: bool):
        self.cross_documents = cross_documents
        self._waiting = None  # A piece, until it is known whether its file goes on.
        self._group = ([], [], [])
        self._size = 0

    def push(self, text: str, ends_document: bool, file: int) -> Iterator[tuple]:
        """Takes a piece; yields `(texts, ends, goes_on)`, three lists, when a part is full."""
        if not self.cross_documents:
            yield from self._add(text, ends_document, False)
            return
        if self._waiting is not None:
            yield from self._add_waiting(ends_file=self._waiting[2] != file)
        self._waiting = (text, ends_document, file)

    def flush(self) -> Iterator[tuple]:
        """Yields the last part."""
        if self._waiting is not None:
            yield from self._add_waiting(ends_file=True)
            self._waiting = None
        if self._group[0]:
            yield self._group
            self._group, self._size = ([], [], []), 0

    def _add_waiting(self, ends_file):
        text, ends_document, _ = self._waiting
        yield from self._add(text, ends_file, ends_document and not ends_file)

    def _add(self, text, ends, goes_on):
        for values, value in zip(self._group, (text, ends, goes_on)):
            values.append(value)
        self._size += len(text)
        if self._size >= _TOKENIZE_CHARACTERS:
            yield self._group
            self._group, self._size = ([], [], []), 0


def group_pieces(pieces: Iterable[tuple[str, bool, int]], cross_documents: bool) -> Iterator[tuple]:
    """The parts of `(text, ends_document, file)`: see `PieceGroups`."""
    groups = PieceGroups(cross_documents)
    for piece in pieces:
        yield from groups.push(*piece)
    yield from groups.flush()


class BlockCutter:
    """Tokenises parts of text and cuts them into blocks.

    Args:
        tokenizer: `SpanBertTokenizer`.
        sequence_length: int. See `Corpus.blocks`.
        min_tokens: int. See `Corpus.blocks`.
        rest: int32 `[tokens]`, what an earlier cutter left of an unfinished
            document. Defaults to `()`.

    Attributes:
        rest: int32 `[tokens]`, likewise what this one leaves.
    """

    def __init__(self, tokenizer, sequence_length: int, min_tokens: int, rest=()):
        self.tokenizer = tokenizer
        self.sequence_length = sequence_length
        self.min_tokens = min_tokens
        self.rest = np.asarray(rest, np.int32)

    def blocks(self, texts: list[str], ends: list[bool], goes_on: list[bool]) -> np.ndarray:
        """Blocks int32 `[blocks, sequence_length]` of the next part: see `PieceGroups`."""
        if any(isinstance(text, MarkedText) for text in texts):
            values, lengths, marks = tokenize_with_marks(self._tokenize, texts)
            values = add_marks(values, marks)
        else:
            values, lengths = self._tokenize(texts)
        if any(goes_on):
            separator = self.tokenizer.sep_token_id
            values = np.insert(values, np.cumsum(lengths)[goes_on], separator)
            lengths += goes_on
        values = np.concatenate([self.rest, values])
        lengths[0] += len(self.rest)
        blocks, self.rest = cut(values, lengths, ends, self.sequence_length - 2, self.min_tokens)
        return pack(blocks, self.tokenizer)

    def _tokenize(self, texts):
        tf = import_tensorflow("A corpus")

        tokens = self.tokenizer.traced(tf.constant(texts))  # Several times as fast as eagerly.
        return tokens.flat_values.numpy(), tokens.row_lengths().numpy()


def add_marks(token_ids: np.ndarray, marks: dict) -> np.ndarray:
    """Ids int32 with the marks of the kinds of `SPAN_KINDS`: see `span_marks`."""
    for i, kind in enumerate(SPAN_KINDS):
        if kind in marks:
            token_ids = token_ids | marks[kind] << (_ID_BITS + 2 * i)
    return token_ids


def without_marks(blocks):
    """The ids alone of a NumPy array or a tensor of `tf.data`."""
    return blocks % 2**_ID_BITS


def span_marks(blocks, kind: str):
    """The marks of a kind, likewise: see `SpanMasking`."""
    return blocks // 2 ** (_ID_BITS + 2 * SPAN_KINDS.index(kind)) % 4


class TokenCounts:
    """Counts the tokens of blocks.

    Args:
        tokenizer: `SpanBertTokenizer`.
    """

    def __init__(self, tokenizer):
        self._special = tokenizer.special_token_ids
        self._counts = np.zeros(tokenizer.vocabulary_size(), np.int64)
        self._num_blocks = 0

    def add(self, blocks: np.ndarray) -> None:
        """Counts the tokens of int `[blocks, L]`, with marks or without."""
        blocks = without_marks(blocks)
        self._counts += np.bincount(blocks.ravel(), minlength=len(self._counts))
        self._num_blocks += len(blocks)

    def result(self) -> tuple[np.ndarray, int]:
        """Counts of each token, int64 `[V]`, special ones left out, and the number of blocks."""
        counts = self._counts.copy()
        counts[self._special] = 0
        return counts, self._num_blocks


def cut(
    values: np.ndarray, lengths: np.ndarray, ends, block_length: int, min_tokens: int
) -> tuple[np.ndarray, np.ndarray]:
    """Cuts documents into blocks.

    Args:
        values: int32 `[tokens]` of all pieces.
        lengths: int `[pieces]`.
        ends: bool `[pieces]`. Whether the piece ends its document.
        block_length: int.
        min_tokens: int.

    Returns:
        `[blocks, block_length]`, padded with -1, and the tokens left of an
        unfinished document.
    """
    stops = np.cumsum(lengths)
    stops = stops[np.asarray(ends) | (np.arange(len(ends)) == len(ends) - 1)]
    starts = np.concatenate([[0], stops[:-1]])
    counts = -(-(stops - starts) // block_length)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    begin = np.repeat(starts, counts) + (np.arange(counts.sum()) - first) * block_length
    size = np.minimum(np.repeat(stops, counts) - begin, block_length)
    keep = size >= min(min_tokens, block_length)
    rest = values[:0]
    if not ends[-1]:
        in_last = begin >= starts[-1]
        waits = in_last & (size < block_length)
        rest = values[begin[waits][0] :] if waits.any() else rest
        keep &= ~waits
    begin, size = begin[keep], size[keep]
    column = np.arange(block_length)
    index = np.minimum(begin[:, None] + column, max(len(values) - 1, 0))
    blocks = values[index] if len(begin) else np.zeros((0, block_length), np.int32)
    return np.where(column < size[:, None], blocks, -1), rest


def pack(blocks, tokenizer) -> np.ndarray:
    """`[CLS]` tokens `[SEP]` and padding, from blocks padded with -1."""
    packed = np.full((len(blocks), blocks.shape[1] + 2), tokenizer.pad_token_id, np.int32)
    packed[:, 0] = tokenizer.cls_token_id
    packed[:, 1:-1][blocks >= 0] = blocks[blocks >= 0]
    packed[np.arange(len(blocks)), 1 + (blocks >= 0).sum(axis=1)] = tokenizer.sep_token_id
    return packed
