"""One text or two as a row of tokens: `[CLS] first [SEP] second [SEP]`, cut and padded.

The body keeps to the part of the NumPy API that `numpy` and
`tensorflow.experimental.numpy` share, so that preprocessors and a SavedModel
make the same rows.

Legend: N = rows, L = tokens a row. All integers are int32.
"""

import collections

import numpy as np

from keras_spanbert.models.token_lists import TokenLists, in_threads

# The tokens of each row's text: `ids` `[tokens + 1]` of all texts, one after another and one more,
# so that an index for nothing leads somewhere; `starts` and `sizes` `[N]`.
Texts = collections.namedtuple("Texts", ["ids", "starts", "sizes"])

_ROWS_AT_ONCE = 1024  # A bound on memory.


def take(xp, x, indices):
    """`x[indices]`, along the first axis."""
    if xp is np:
        return x[indices]
    import tensorflow as tf

    return tf.gather(x, indices)


def pair_rows(xp, first: Texts, second: Texts, has_second, length: int, tokenizer) -> dict:
    """Rows of pairs, or of single texts.

    What is too long loses tokens at the end, one at a time, from the longer of
    both, from the second where they are equally long. A second text of no tokens
    has no `[SEP]` of its own.

    Args:
        xp: `numpy` or `tensorflow.experimental.numpy`.
        first: `Texts`.
        second: `Texts`.
        has_second: bool `[N]`. Whether a row has room for the second `[SEP]`: not
            where the second text is empty.
        length: int, L.
        tokenizer: `SpanBertTokenizer`.

    Returns:
        Dict of `token_ids`, `segment_ids` and `padding_mask`, int32 `[N, L]`.

    Reference:
        The released SpanBERT's `run_glue.py`, by its behaviour.
    """
    room = xp.where(has_second, np.int32(length - 3), np.int32(length - 2))
    kept_first = xp.minimum(first.sizes, xp.maximum(room - second.sizes, -(-room // 2)))
    kept_second = xp.minimum(second.sizes, room - kept_first)
    size = kept_first + 2 + xp.where(kept_second > 0, kept_second + 1, np.int32(0))

    kept_first, kept_second, size = kept_first[:, None], kept_second[:, None], size[:, None]
    place = xp.arange(length, dtype=np.int32)[None, :]
    from_second = place - kept_first - 2
    in_first = (place >= 1) & (place <= kept_first)
    in_second = (from_second >= 0) & (from_second < kept_second)
    is_separator = (place == kept_first + 1) | (place == size - 1)
    nothing = np.int32(0)
    ids_of_first = take(
        xp, first.ids, xp.where(in_first, first.starts[:, None] + place - 1, nothing)
    )
    ids_of_second = take(
        xp, second.ids, xp.where(in_second, second.starts[:, None] + from_second, nothing)
    )
    ids = xp.where(in_first, ids_of_first, np.int32(tokenizer.pad_token_id))
    ids = xp.where(in_second, ids_of_second, ids)
    ids = xp.where(is_separator, np.int32(tokenizer.sep_token_id), ids)
    ids = xp.where(place == 0, np.int32(tokenizer.cls_token_id), ids)
    padding_mask = place < size
    return {
        "token_ids": ids,
        "segment_ids": xp.asarray((from_second >= 0) & padding_mask, dtype=np.int32),
        "padding_mask": xp.asarray(padding_mask, dtype=np.int32),
    }


def encode_pairs(tokenizer, first: list[str], second: list[str] | None, length: int) -> dict:
    """Rows of texts, or of pairs of texts; equal ones are tokenised once.

    Args:
        tokenizer: `SpanBertTokenizer`.
        first: list of N strings.
        second: list of N strings, `""` for none; or `None`.
        length: int, L.

    Returns:
        See `pair_rows`.
    """
    second = [""] * len(first) if second is None else second
    unique = {}
    of = [
        np.array([unique.setdefault(t, len(unique)) for t in x], np.int32) for x in (first, second)
    ]
    texts = TokenLists(tokenizer, list(unique))
    has_second = np.array([text != "" for text in second], bool)
    names = ["token_ids", "segment_ids", "padding_mask"]
    inputs = {name: np.empty((len(first), length), np.int32) for name in names}

    def lay_out(begin):
        rows = slice(begin, begin + _ROWS_AT_ONCE)
        both = [Texts(texts.ids, texts.starts[x[rows]], texts.sizes[x[rows]]) for x in of]
        for name, array in pair_rows(np, *both, has_second[rows], length, tokenizer).items():
            inputs[name][rows] = array

    in_threads(lay_out, range(0, len(first), _ROWS_AT_ONCE))
    return inputs
