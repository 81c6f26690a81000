"""Rows of one or two texts: `[CLS] first [SEP] second [SEP]`, cut and padded.

Code in `xp` makes the same rows in preprocessors and a SavedModel. Legend: N = rows, L = tokens per
row. All integers are int32.
"""

import numpy as np

from keras_spanbert.layers.array_functions import namespace
from keras_spanbert.text.tokens import Part, in_chunks, token_rows, tokenize_repeated


def encode_pairs(preprocessor, first, second) -> dict:
    """Returns `token_ids`, `segment_ids` and `padding_mask`, int32 `[N, L]`, like `run_glue.py`.

    `first` and `second` are N strings, `""` or `None` for no second text, which then has no
    `[SEP]`. If a pair is too long, tokens are dropped from the end of the longer text, one at a
    time, and from the second text if both have the same length. Equal texts are tokenized once.
    """
    tokenizer, length = preprocessor.tokenizer, preprocessor.sequence_length
    xp = namespace(first)
    if second is None and xp is np:
        second = [""] * len(first)
    elif second is None:
        import tensorflow as tf

        second = tf.zeros_like(first)
    both = [tokenize_repeated(tokenizer, texts) for texts in (first, second)]
    sizes = [tokens.sizes for tokens in both]
    has_second = (np.array(second, object) if xp is np else second) != ""
    room = xp.where(has_second, np.int32(length - 3), np.int32(length - 2))
    preprocessor.log_cut(sizes[0] + sizes[1] > room)
    kept = xp.minimum(sizes[0], xp.maximum(room - sizes[1], -(-room // 2)))
    kept_second = xp.minimum(sizes[1], room - kept)
    counts = [kept, xp.where(kept_second > 0, kept_second, np.int32(-1))]

    def lay_out(rows):
        some = [Part(x.ids, x.starts[rows], n[rows]) for x, n in zip(both, counts)]
        return token_rows(xp, some, length, tokenizer)[0]

    return in_chunks(xp, has_second, lay_out)
