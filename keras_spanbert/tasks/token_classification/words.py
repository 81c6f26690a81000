"""Tokenizes words and texts that consist of words.

Uses only the part of the NumPy API that `numpy` and
`tensorflow.experimental.numpy` share.

Legend: N = texts, T = tokens of all texts, S = words of all texts. All integers are
int32.
"""

import collections

import numpy as np

from keras_spanbert.layers.array_functions import append_end, int32, namespace, take
from keras_spanbert.models.tokens import expand, tokenize_repeated, tokenize_texts

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
    tokens = tokenize_repeated(tokenizer, words)
    up_to = _cumulative_counts(xp, tokens.sizes)  # Number of tokens up to each word.
    word, token = expand(xp, tokens.starts, tokens.sizes)
    ends = xp.cumsum(num_words, dtype=np.int32)
    starts = take(xp, up_to, ends - num_words)
    return Words(
        append_end(xp, take(xp, tokens.ids, token), np.int32(0)),
        append_end(xp, word, np.int32(0)),
        append_end(xp, token == take(xp, tokens.starts, word), False),
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
        is_continuation: bool `[V]`, whether each token of the vocabulary continues a
            word.
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
