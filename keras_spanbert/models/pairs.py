"""Lays out one or two texts as a row: `[CLS] first [SEP] second [SEP]`, cut and padded.

Uses only the part of the NumPy API that `numpy` and
`tensorflow.experimental.numpy` share, so that preprocessors and a SavedModel
make the same rows.

Legend: N = rows, L = tokens per row. All integers are int32.
"""

import numpy as np

from keras_spanbert.layers.array_functions import namespace, take
from keras_spanbert.models.tokens import Tokens, in_chunks, tokenize_texts, unique_texts


def pair_rows(xp, first: Tokens, second: Tokens, has_second, length: int, tokenizer) -> dict:
    """Returns rows of pairs or of single texts.

    If a pair is too long, tokens are dropped from the end of the longer text, one
    at a time, and from the second text if both have the same length. An empty
    second text has no `[SEP]`.

    Args:
        xp: `numpy` or `tensorflow.experimental.numpy`.
        first: `Tokens` of N texts.
        second: `Tokens` of N texts.
        has_second: bool `[N]`. Whether the row reserves a place for the second
            `[SEP]`. False if the second text is empty.
        length: int, L.
        tokenizer: `SpanBertTokenizer`.

    Returns:
        Dict of `token_ids`, `segment_ids` and `padding_mask`, int32 `[N, L]`.

    Reference:
        Behaves like the released SpanBERT's `run_glue.py`.
    """
    room = xp.where(has_second, np.int32(length - 3), np.int32(length - 2))
    kept_first = xp.minimum(first.sizes, xp.maximum(room - second.sizes, -(-room // 2)))
    kept_second = xp.minimum(second.sizes, room - kept_first)
    size = kept_first + 2 + xp.where(kept_second > 0, kept_second + 1, np.int32(0))

    kept_first, kept_second, size = kept_first[:, None], kept_second[:, None], size[:, None]
    position = xp.arange(length, dtype=np.int32)[None, :]
    from_second = position - kept_first - 2
    in_first = (position >= 1) & (position <= kept_first)
    in_second = (from_second >= 0) & (from_second < kept_second)
    is_separator = (position == kept_first + 1) | (position == size - 1)
    nothing = np.int32(0)
    ids_of_first = take(
        xp, first.ids, xp.where(in_first, first.starts[:, None] + position - 1, nothing)
    )
    ids_of_second = take(
        xp, second.ids, xp.where(in_second, second.starts[:, None] + from_second, nothing)
    )
    ids = xp.where(in_first, ids_of_first, np.int32(tokenizer.pad_token_id))
    ids = xp.where(in_second, ids_of_second, ids)
    ids = xp.where(is_separator, np.int32(tokenizer.sep_token_id), ids)
    ids = xp.where(position == 0, np.int32(tokenizer.cls_token_id), ids)
    padding_mask = position < size
    return {
        "token_ids": ids,
        "segment_ids": xp.asarray((from_second >= 0) & padding_mask, dtype=np.int32),
        "padding_mask": xp.asarray(padding_mask, dtype=np.int32),
    }


def encode_pairs(preprocessor, first, second) -> dict:
    """Returns rows of texts or of pairs of texts. Equal texts are tokenized once.

    Args:
        preprocessor: `SpanBertPreprocessor` with `sequence_length` L. It logs how
            many rows are cut.
        first: list of N strings, or string tensor of a graph `[N]`.
        second: N strings as in `first`, `""` for no second text, or `None`.

    Returns:
        See `pair_rows`.
    """
    tokenizer, length = preprocessor.tokenizer, preprocessor.sequence_length
    xp = namespace(first)
    if second is None:
        second = _empty_texts(first)
    both = []
    for texts in [first, second]:
        unique, index = unique_texts(texts)
        tokens = tokenize_texts(tokenizer, unique)
        starts, sizes = (take(xp, x, index) for x in (tokens.starts, tokens.sizes))
        both.append(tokens._replace(starts=starts, sizes=sizes))
    has_second = is_not_empty(second)
    size = both[0].sizes + both[1].sizes
    preprocessor.log_cut(size > xp.where(has_second, np.int32(length - 3), np.int32(length - 2)))

    def lay_out(rows):
        parts = [x._replace(starts=x.starts[rows], sizes=x.sizes[rows]) for x in both]
        return pair_rows(xp, *parts, has_second[rows], length, tokenizer)

    return in_chunks(xp, has_second, lay_out)


def _empty_texts(texts):
    """Returns the same number of texts, all empty."""
    if namespace(texts) is np:
        return [""] * len(texts)
    import tensorflow as tf

    return tf.zeros_like(texts)


def is_not_empty(texts):
    """Returns whether each text is not empty: bool `[N]`."""
    if namespace(texts) is np:
        return np.array([text != "" for text in texts], bool)
    import tensorflow as tf

    return tf.strings.length(texts) > 0
