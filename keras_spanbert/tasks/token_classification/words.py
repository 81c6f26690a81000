"""Words with their tokens, and the windows that show them.

The body of `window_rows` keeps to the part of the NumPy API that `numpy` and
`tensorflow.experimental.numpy` share, so that `windows` and a SavedModel make the
same rows.

Legend: N = texts, T = tokens of all texts, S = words of all texts, W = windows,
L = tokens a window. All integers are int32.
"""

import collections

import numpy as np

from keras_spanbert.models.pairs import take
from keras_spanbert.models.token_lists import TokenLists
from keras_spanbert.models.windows import is_max_context

Words = collections.namedtuple(
    "Words",
    [
        "ids",  # [T + 1], one more for an index that leads nowhere
        "word",  # [T + 1], each token's word, counted over all texts
        "is_first",  # bool [T + 1], whether it is the word's first token
        "starts",  # [N], each text's first token
        "sizes",  # [N], and how many
        "num_words",  # [N]
        "bounds",  # [S, 2], where each word starts and ends in its text; `None` of lists of words
    ],
)


def words_of_lists(tokenizer, texts: list[list[str]]) -> Words:
    """The tokens of texts that are lists of words; equal words are tokenised once."""
    num_words = np.array([len(words) for words in texts], np.int32)
    unique = {}
    numbers = [unique.setdefault(word, len(unique)) for words in texts for word in words]
    lists = TokenLists(tokenizer, list(unique))
    number = np.array(numbers, np.int32)
    sizes = lists.sizes[number]
    word = np.repeat(np.arange(len(number), dtype=np.int32), sizes)
    first = np.cumsum(sizes, dtype=np.int32) - sizes  # Each word's first token.
    within = np.arange(len(word), dtype=np.int32) - first[word]
    ends = np.cumsum(num_words, dtype=np.int32)
    token_ends = np.append(np.int32(0), np.cumsum(sizes, dtype=np.int32))
    starts = token_ends[ends - num_words]
    return Words(
        np.append(lists.ids[lists.starts[number[word]] + within], np.int32(0)),
        np.append(word, np.int32(0)),
        np.append(within == 0, False),
        starts,
        token_ends[ends] - starts,
        num_words,
        None,
    )


def words_of_strings(tokenizer, texts: list[str], is_continuation: np.ndarray) -> Words:
    """The tokens of texts that are strings, whose words are what the tokenizer splits.

    Args:
        tokenizer: `SpanBertTokenizer`.
        texts: list of strings.
        is_continuation: see `continuations`.
    """
    tokens = TokenLists(tokenizer, texts, with_offsets=True)
    is_first = ~is_continuation[tokens.ids[:-1]]
    text = np.repeat(np.arange(len(texts)), tokens.sizes)
    # A word ends where its last token does.
    firsts = np.flatnonzero(is_first)
    lasts = np.append(firsts[1:], len(is_first))[: len(firsts)] - 1
    bounds = np.stack([tokens.offsets[firsts, 0], tokens.offsets[lasts, 1]], axis=1)
    return Words(
        tokens.ids,
        np.append(np.cumsum(is_first, dtype=np.int32) - 1, np.int32(0)),
        np.append(is_first, False),
        tokens.starts,
        tokens.sizes,
        np.bincount(text[is_first], minlength=len(texts)).astype(np.int32),
        bounds,
    )


def continuations(tokenizer) -> np.ndarray:
    """Whether each token of a vocabulary continues a word: bool `[V]`."""
    suffix = tokenizer.suffix_indicator
    return np.array([token.startswith(suffix) for token in tokenizer.get_vocabulary()], bool)


def window_rows(xp, words: Words, parts, length: int, stride: int, reach: int, tokenizer) -> dict:
    """Windows as rows: `[CLS] part [SEP]`.

    Args:
        xp: `numpy` or `tensorflow.experimental.numpy`.
        words: `Words`.
        parts: `keras_spanbert.models.windows.Parts`.
        length: int, L.
        stride, reach: see `is_max_context`.
        tokenizer: `SpanBertTokenizer`.

    Returns:
        Dict of `[W, L]`: int `token_ids`, `segment_ids`, `padding_mask`; `word`,
        each token's word, counted over all texts, -1 for none; bool `is_label`,
        whether it is the first token of a word in the window that shows it best.
    """
    place = xp.arange(length, dtype=np.int32)[None, :]
    count = parts.count[:, None]
    is_part = (place >= 1) & (place <= count)
    token = (take(xp, words.starts, parts.example) + parts.first)[:, None] + place - 1
    token = xp.where(is_part, token, np.int32(0))
    ids = xp.where(is_part, take(xp, words.ids, token), np.int32(tokenizer.pad_token_id))
    ids = xp.where(place == count + 1, np.int32(tokenizer.sep_token_id), ids)
    ids = xp.where(place == 0, np.int32(tokenizer.cls_token_id), ids)
    is_shown = is_max_context(xp, parts, length, stride, reach)
    return {
        "token_ids": ids,
        "segment_ids": xp.zeros_like(ids),
        "padding_mask": xp.asarray(place <= count + 1, dtype=np.int32),
        "word": xp.where(is_part, take(xp, words.word, token), np.int32(-1)),
        "is_label": is_part & take(xp, words.is_first, token) & is_shown,
    }
