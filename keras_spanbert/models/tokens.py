"""Tokenizes many texts and lays out rows of tokens, eagerly and in graph code.

Legend: N = texts, T = tokens of all texts.
"""

import collections
import concurrent.futures
from collections.abc import Callable, Iterable

import numpy as np

from keras_spanbert.layers.array_functions import is_symbolic
from keras_spanbert.models.graph_tokens import tokenize_with_offsets

# The tokens of all texts, one text after another. All arrays are int32.
Tokens = collections.namedtuple(
    "Tokens",
    [
        "ids",  # [T + 1], with one more element for an index that is not used
        "starts",  # [N], index of each text's first token
        "sizes",  # [N], number of tokens of each text
        "offsets",  # [T + 1, 2], in characters of the text, or `None` if they are not needed
    ],
)

# Numbers of texts to tokenize and of rows to lay out at once. They limit the memory.
_TOKENIZE_BATCH = 1024
_ROWS_AT_ONCE = 256
# NumPy and the tokenizer release the interpreter lock, so threads help.
_THREADS = 2


def unique_texts(texts) -> tuple:
    """Returns the unique texts in order of first use, and the index of each text among them.

    Args:
        texts: list of strings, or string tensor of a graph `[N]`.
    """
    if is_symbolic(texts):
        import tensorflow as tf

        return tf.unique(texts)
    unique = {}
    index = [unique.setdefault(text, len(unique)) for text in texts]
    return list(unique), np.array(index, np.int32)


def tokenize_texts(tokenizer, texts, with_offsets: bool = False) -> Tokens:
    """Tokenizes texts.

    Args:
        tokenizer: `SpanBertTokenizer`.
        texts: list of strings, or string tensor of a graph `[N]`, valid UTF-8.
        with_offsets: bool. Whether to return the offsets of the tokens.
            Defaults to `False`.
    """
    if is_symbolic(texts):
        return _tokenize_in_graph(tokenizer, texts, with_offsets)
    ids, offsets = [], []

    def tokenize(begin):
        return tokenizer.tokenize_batch(texts[begin : begin + _TOKENIZE_BATCH], with_offsets)

    for batch in _in_threads(tokenize, range(0, len(texts), _TOKENIZE_BATCH)):
        ids += batch[0] if with_offsets else batch
        offsets += batch[1] if with_offsets else []
    sizes = np.array([len(x) for x in ids], np.int32)
    return Tokens(
        np.concatenate([*ids, np.zeros(1, np.int32)]),
        np.cumsum(sizes, dtype=np.int32) - sizes,
        sizes,
        np.concatenate([*offsets, np.zeros((1, 2), np.int32)]) if with_offsets else None,
    )


def _tokenize_in_graph(tokenizer, texts, with_offsets):
    import tensorflow as tf

    if not with_offsets:
        rows = tokenizer.traced(texts)
        ids, sizes = tf.cast(rows.values, tf.int32), tf.cast(rows.row_lengths(), tf.int32)
    else:
        ids, sizes, offsets = tokenize_with_offsets(tokenizer, texts)
        offsets = tf.pad(tf.cast(offsets, tf.int32), [[0, 1], [0, 0]])
    starts = tf.cumsum(sizes, exclusive=True)
    return Tokens(tf.pad(ids, [[0, 1]]), starts, sizes, offsets if with_offsets else None)


def in_chunks(xp, like, lay_out: Callable) -> dict:
    """Lays out rows of arrays. NumPy does so in chunks, to limit memory, and in threads.

    Args:
        xp: `numpy` or `tensorflow.experimental.numpy`.
        like: array with a value for each row.
        lay_out: function that takes a slice of the rows and returns a dict of
            their arrays.
    """
    if xp is not np:
        return lay_out(slice(None))
    first = lay_out(slice(0, _ROWS_AT_ONCE))
    rows = {name: np.empty((len(like), *x.shape[1:]), x.dtype) for name, x in first.items()}

    def fill(begin):
        chunk = slice(begin, begin + _ROWS_AT_ONCE)
        for name, array in (lay_out(chunk) if begin else first).items():
            rows[name][chunk] = array

    _in_threads(fill, range(0, len(like), _ROWS_AT_ONCE))
    return rows


def _in_threads(function: Callable, items: Iterable) -> list:
    """Returns the results of a function for items, in order. Runs it in threads."""
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(function, items))
