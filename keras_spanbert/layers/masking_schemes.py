"""Masking schemes: their names, span lengths and argument checks."""

import keras
import numpy as np

from keras_spanbert.checks import check_in, to_lists
from keras_spanbert.layers import span_masks
from keras_spanbert.layers.array_functions import int32

LINGUISTIC_SCHEMES = ("entity", "noun_phrase")
SCHEMES = ("span", "whole_word", "subword", "random_span", *LINGUISTIC_SCHEMES)


def length_probabilities(scheme: str, geometric_p: float, max_span_words: int) -> np.ndarray:
    """Returns the probabilities of span lengths 1, 2, ... in words, for random spans."""
    if scheme == "random_span":
        return np.full(max_span_words, 1.0 / max_span_words)
    return span_masks.span_length_distribution(
        geometric_p, max_span_words if scheme == "span" else 1
    )


def has_integers(x) -> bool:
    """Returns whether an array of NumPy or a tensor of TensorFlow has integers."""
    dtype = getattr(x.dtype, "as_numpy_dtype", x.dtype)  # TensorFlow's dtypes.
    return np.issubdtype(dtype, np.integer)


def as_array(xp, name: str, value):
    """Returns an argument as an array of `xp`. Raises `ValueError` if its rows differ in length."""
    if hasattr(value, "nested_row_splits"):
        raise ValueError(
            f"The rows of `{name}` must have the same length: pad them. Received: a ragged tensor"
        )
    if xp is not np:
        import tensorflow as tf

        return tf.convert_to_tensor(value)
    try:
        return keras.ops.convert_to_numpy(to_lists(value))
    except (TypeError, ValueError):
        rows = value if isinstance(value, (list, tuple)) else []
        lengths = sorted({len(row) for row in rows if hasattr(row, "__len__")})
        if len(lengths) > 1:
            raise ValueError(
                f"The rows of `{name}` must have the same length: pad them. Received: rows of "
                f"lengths {', '.join(map(str, lengths)):.80}"
            ) from None
        return check_in(name, value, False, "an array of numbers")


def as_marks(xp, span_marks, token_ids):
    """Returns int32 marks for `token_ids`. Checks values if they are known."""
    span_marks = as_array(xp, "span_marks", span_marks)
    is_right = has_integers(span_marks) and span_marks.shape[1:] == token_ids.shape[1:]
    if is_right and xp is np:
        is_right = span_marks.shape == token_ids.shape and np.isin(span_marks, (0, 1, 2)).all()
    if not is_right:
        raise ValueError(
            "`span_marks` must be integers 0, 1 or 2 with the shape of `token_ids`, "
            f"{tuple(token_ids.shape)}. Received: {span_marks}"
        )
    return int32(xp, span_marks)


def continuations(tokenizer) -> list[int]:
    """Returns the ids of tokens that continue a word: see `SpanMasking.from_tokenizer`."""
    special = set(tokenizer.special_token_ids)
    tokens = [str(tokenizer.id_to_token(i)) for i in range(tokenizer.vocabulary_size())]
    prefix = getattr(tokenizer, "suffix_indicator", None)
    if prefix is None:
        starts = "▁" if any(t.startswith("▁") for t in tokens) else "Ġ"
        continues = [not token.startswith(starts) for token in tokens]
    else:
        continues = [token.startswith(prefix) for token in tokens]
    return [i for i, flag in enumerate(continues) if flag and i not in special]


def unigram_stops(counts, maskable: np.ndarray) -> np.ndarray:
    """Returns the cumulative distribution of maskable tokens, float64 `[V]`, ending at 1."""
    counts = as_array(np, "unigram_counts", counts)
    check_in("unigram_counts", counts, counts.dtype.kind in "biuf", "an array of numbers")
    counts = counts.astype(np.float64)
    is_right = counts.shape == maskable.shape and np.all(counts >= 0)
    stops = np.cumsum(np.where(maskable, counts, 0.0)) if is_right else np.zeros(1)
    if not 0.0 < stops[-1] < np.inf:
        raise ValueError(
            f"`unigram_counts` must be {len(maskable):,} counts, none negative, with a count "
            f"above 0 for a maskable token. Received: shape {counts.shape}, values from "
            f"{np.min(counts, initial=np.inf)} to {np.max(counts, initial=-np.inf)}"
        )
    return stops / stops[-1]
