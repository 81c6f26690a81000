"""Tokenizes words, and lays out the windows that show them.

Uses only the part of the NumPy API that `numpy` and
`tensorflow.experimental.numpy` share.

Legend: N = texts, T = tokens of all texts, S = words of all texts, W = windows,
L = tokens per window. All integers are int32.
"""

import collections

import numpy as np

from keras_spanbert.layers.array_functions import (
    append_end,
    int32,
    namespace,
    range_like,
    repeat,
    take,
)
from keras_spanbert.models.tokens import tokenize_texts, unique_texts
from keras_spanbert.models.windows import is_max_context

Words = collections.namedtuple(
    "Words",
    [
        "ids",  # [T + 1], with one more element for an index that is not used
        "word",  # [T + 1], each token's word, counted over all texts
        "is_first",  # bool [T + 1], whether it is the word's first token
        "starts",  # [N], index of each text's first token
        "sizes",  # [N], number of tokens of each text
        "num_words",  # [N]
        "bounds",  # [S, 2], start and end of each word in its text; `None` for lists of words
    ],
)


def tokenize_words(tokenizer, words, num_words) -> Words:
    """Tokenizes texts that are lists of words. Equal words are tokenized once.

    Args:
        tokenizer: `SpanBertTokenizer`.
        words: list of the words of all texts, or string tensor of a graph `[S]`.
        num_words: `[N]`, number of words of each text.
    """
    xp = namespace(words)
    unique, number = unique_texts(words)
    tokens = tokenize_texts(tokenizer, unique)
    sizes = take(xp, tokens.sizes, number)
    up_to = _cumulative_counts(xp, sizes)  # Number of tokens up to each word.
    word = repeat(xp, range_like(xp, number), sizes)
    within = range_like(xp, word) - take(xp, up_to, word)
    token = take(xp, take(xp, tokens.starts, number), word) + within
    ends = xp.cumsum(num_words, dtype=np.int32)
    starts = take(xp, up_to, ends - num_words)
    return Words(
        append_end(xp, take(xp, tokens.ids, token), np.int32(0)),
        append_end(xp, word, np.int32(0)),
        append_end(xp, within == 0, False),
        starts,
        take(xp, up_to, ends) - starts,
        num_words,
        None,
    )


def tokenize_strings(tokenizer, texts, is_continuation: np.ndarray) -> Words:
    """Tokenizes texts that are strings. The tokenizer splits them into words.

    Args:
        tokenizer: `SpanBertTokenizer`.
        texts: list of strings, or string tensor of a graph `[N]`.
        is_continuation: see `continuations`.
    """
    xp = namespace(texts)
    tokens = tokenize_texts(tokenizer, texts, with_offsets=True)
    is_first = ~take(xp, is_continuation, tokens.ids[:-1])
    # A word ends where its last token does.
    is_last = append_end(xp, is_first, True)[1:]
    firsts, lasts = (xp.nonzero(x)[0] for x in (is_first, is_last))
    up_to = _cumulative_counts(xp, int32(xp, is_first))  # Number of words up to each token.
    first_word = take(xp, up_to, tokens.starts)
    return Words(
        tokens.ids,
        append_end(xp, up_to[1:] - 1, np.int32(0)),
        append_end(xp, is_first, False),
        tokens.starts,
        tokens.sizes,
        take(xp, up_to, tokens.starts + tokens.sizes) - first_word,
        xp.stack(
            [take(xp, tokens.offsets[:, 0], firsts), take(xp, tokens.offsets[:, 1], lasts)], axis=1
        ),
    )


def _cumulative_counts(xp, counts):
    """Returns 0 and the cumulative sums."""
    return xp.concatenate([np.zeros(1, np.int32), xp.cumsum(counts, dtype=np.int32)], axis=0)


def continuations(tokenizer) -> np.ndarray:
    """Returns whether each token of a vocabulary continues a word: bool `[V]`."""
    suffix = tokenizer.suffix_indicator
    return np.array([token.startswith(suffix) for token in tokenizer.get_vocabulary()], bool)


def window_rows(xp, words: Words, spans, length: int, stride: int, tokenizer) -> dict:
    """Lays out windows as rows: `[CLS] span [SEP]`.

    Args:
        xp: `numpy` or `tensorflow.experimental.numpy`.
        words: `Words`.
        spans: `keras_spanbert.models.windows.DocSpans`.
        length: int, L.
        stride: see `is_max_context`.
        tokenizer: `SpanBertTokenizer`.

    Returns:
        Dict of `[W, L]`: int `token_ids`, `segment_ids`, `padding_mask`; `word`,
        each token's word, counted over all texts, -1 for none; bool `is_label`,
        whether it is the first token of a word in the window that shows it best.
    """
    position = xp.arange(length, dtype=np.int32)[None, :]
    count = spans.count[:, None]
    is_in_span = (position >= 1) & (position <= count)
    token = (take(xp, words.starts, spans.example) + spans.first)[:, None] + position - 1
    token = xp.where(is_in_span, token, np.int32(0))
    ids = xp.where(is_in_span, take(xp, words.ids, token), np.int32(tokenizer.pad_token_id))
    ids = xp.where(position == count + 1, np.int32(tokenizer.sep_token_id), ids)
    ids = xp.where(position == 0, np.int32(tokenizer.cls_token_id), ids)
    is_shown = is_max_context(xp, spans, length, stride)
    return {
        "token_ids": ids,
        "segment_ids": xp.zeros_like(ids),
        "padding_mask": xp.asarray(position <= count + 1, dtype=np.int32),
        "word": xp.where(is_in_span, take(xp, words.word, token), np.int32(-1)),
        "is_label": is_in_span & take(xp, words.is_first, token) & is_shown,
    }
