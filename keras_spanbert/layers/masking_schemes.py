"""What masking schemes draw: the schemes' names, lengths and arguments."""

import keras
import numpy as np

from keras_spanbert.layers import span_masks
from keras_spanbert.layers.array_functions import int32

LINGUISTIC_SCHEMES = ("entity", "noun_phrase")
SCHEMES = ("span", "whole_word", "subword", "random_span", *LINGUISTIC_SCHEMES)


def length_probabilities(scheme: str, geometric_p: float, max_span_words: int) -> np.ndarray:
    """Probabilities of the lengths 1, 2, ... of a scheme's random spans, in words."""
    if scheme == "random_span":
        return np.full(max_span_words, 1.0 / max_span_words)
    return span_masks.span_length_distribution(
        geometric_p, max_span_words if scheme == "span" else 1
    )


def check_span_marks(span_marks, scheme: str) -> None:
    """Raises a ValueError where a call has marks that its scheme does not take, or lacks them."""
    if scheme in LINGUISTIC_SCHEMES and span_marks is None:
        raise ValueError(
            f"`scheme='{scheme}'` takes `span_marks` of linguistic spans, which a corpus of JSON "
            "lines brings with its text: `keras_spanbert.data.linguistic_spans.write` makes one. "
            "Received: span_marks=None"
        )
    if scheme not in LINGUISTIC_SCHEMES and span_marks is not None:
        raise ValueError(
            f"`span_marks` are for scheme={' or '.join(map(repr, LINGUISTIC_SCHEMES))}. "
            f"Received: span_marks with scheme={scheme!r}"
        )


def as_marks(xp, span_marks, token_ids):
    """int32 marks for `token_ids`, checked as far as they are known, or `None`."""
    if span_marks is None:
        return None
    if xp is np:
        span_marks = keras.ops.convert_to_numpy(span_marks)
        is_right = np.issubdtype(span_marks.dtype, np.integer)
        is_right = is_right and span_marks.shape == token_ids.shape
        is_right = is_right and np.isin(span_marks, (0, 1, 2)).all()
    else:
        import tensorflow as tf

        span_marks = tf.convert_to_tensor(span_marks)
        is_right = span_marks.dtype.is_integer and span_marks.shape[1:] == token_ids.shape[1:]
    if not is_right:
        raise ValueError(
            "`span_marks` must be 0, 1 or 2, integers of the shape of `token_ids`, "
            f"{tuple(token_ids.shape)}. Received: {span_marks}"
        )
    return int32(xp, span_marks)


def check_in(is_in, rule: str, **argument) -> None:
    """Raises a ValueError where an argument is not in what the rule says."""
    ((name, value),) = argument.items()
    if not is_in:
        raise ValueError(f"`{name}` must be in {rule}. Received: {name}={value}")


def check_choice(choices, **argument) -> None:
    """Raises a ValueError where an argument is none of the choices."""
    ((name, value),) = argument.items()
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {choices}. Received: {name}={value!r}")


def continuations(tokenizer) -> list[int]:
    """Ids of a tokenizer's tokens that continue a word: see `SpanMasking.from_tokenizer`."""
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
    """Where the shares of maskable tokens end in [0, 1], float64 `[V]`."""
    counts = np.asarray(counts, np.float64)
    is_right = counts.shape == maskable.shape and np.all(counts >= 0)
    stops = np.cumsum(np.where(maskable, counts, 0.0)) if is_right else np.zeros(1)
    if not 0.0 < stops[-1] < np.inf:
        raise ValueError(
            f"`unigram_counts` must be {len(maskable):,} counts, none of them negative and one of "
            f"a maskable token above 0. Received: shape {counts.shape}, values from "
            f"{np.min(counts, initial=np.inf)} to {np.max(counts, initial=-np.inf)}"
        )
    return stops / stops[-1]
