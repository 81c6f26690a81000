"""Span masking as a Keras preprocessing layer."""

import math

import keras
import numpy as np

from keras_spanbert.checks import (
    check_counts,
    check_id,
    check_ids,
    check_in,
    check_positive,
    check_range,
)
from keras_spanbert.layers import span_masks
from keras_spanbert.layers.array_functions import int32, take
from keras_spanbert.layers.sublayers import config_of
from keras_spanbert.layers.token_layer import (
    TokenLayer,
    as_array,
    has_integers,
    row_uniform,
    uniform,
)

REPLACEMENTS = ("span", "token")
LINGUISTIC_SCHEMES = ("entity", "noun_phrase")
SCHEMES = ("span", "whole_word", "subword", "random_span", *LINGUISTIC_SCHEMES)

# Kinds of tokens.
_WORD_START, _CONTINUATION, _SPECIAL = 0, 1, 2


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanMasking(TokenLayer):
    """Masks contiguous spans of tokens for span-level pretraining.

    By default the layer samples masks as the released SpanBERT does: exactly `ceil(mask_rate * n)`
    of a sequence's `n` maskable tokens are masked, in spans of whole words whose lengths follow a
    truncated geometric distribution. Spans that overlap or touch become one span, and special
    tokens end spans. Each span is replaced by mask tokens (80%), replaced by random tokens (10%),
    or kept (10%).

    The same `token_ids` and `seed` give the same output eagerly and inside `tf.data`, on every
    backend. Without TensorFlow installed, the draws differ but have the same distribution.

    Args:
        vocabulary_size: int. Size of the token vocabulary.
        mask_token_id: int. Id of the mask token.
        continuation_token_ids: ints. Ids of tokens that continue a word, such
            as `##ing`. Defaults to `()`: each token is a word.
        special_token_ids: ints. Ids that are never masked, including padding. Defaults to `(0,)`.
        mask_rate: float in (0, 1]. Share of maskable tokens to mask. Defaults to `0.15`.
        max_predictions: int. Number M of slots for masked tokens, and the
            maximum per sequence. Defaults to `None`, `ceil(mask_rate * L)`.
        geometric_p: float in (0, 1]. Parameter of the span lengths'
            distribution. Defaults to `0.2`.
        max_span_words: int. Longest drawn span, in words. Defaults to `10`.
        max_span_tokens: int. Tokens of a span at this offset or later get no
            SBO target. Defaults to `15`.
        mask_token_rate: float. Share replaced by the mask token. Defaults to `0.8`.
        random_token_rate: float. Share replaced by random tokens. The rest is
            kept. Defaults to `0.1`.
        replacement: "span" or "token". Whether to choose the replacement once
            per span (SpanBERT) or per token (BERT). Defaults to `"span"`.
        scheme: "span", "whole_word" (single words), "subword" (single tokens),
            "random_span" (lengths uniform in 1..`max_span_words`), "entity" or
            "noun_phrase". With the last two, half of the candidates are the
            sequence's linguistic spans, if it has any, drawn uniformly, and the
            others single words, as in the paper's ablation (section 6.1). Defaults to `"span"`.
        seed: int. Determines the masks of calls without a `seed`. Defaults to
            `None`: drawn at creation, as `keras.utils.set_random_seed` sets it.
        pad_predictions_to: int. Empty slots round M up to a multiple of this number, without
            changing the masks. TPUs copy `[B, M, V]` if M is not a multiple of 8. Defaults to `1`.
        num_mask_copies: int. Number of static mask sets per sequence, as in BERT's duplicated data.
            The ids and the layer's `seed` determine them, and each call draws one. Random
            replacement tokens still come from the batch, unless `unigram_counts` are given.
            Defaults to `None`: masks are dynamic.
        **kwargs: see `keras.layers.Layer`.

    Call arguments:
        token_ids: int `[B, L]` or `[L]`, with special tokens and padding. In
            `tf.data`, L must be static.
        seed: int or two ints. Determines the masks. Without it each call draws new masks,
            reproducible if the layer has a `seed` and the calls a fixed order. A parallel `map`
            needs a seed per element, for example from `tf.data.Dataset.random`.
        span_marks: int, of the shape of `token_ids`, for the schemes "entity" and "noun_phrase": 0
            outside of linguistic spans, 1 for the first token of a span, 2 for its other tokens. A
            2 after a 0 or a special token starts a span that was cut. Spans are extended to whole
            words. Defaults to `None`.
        first_row: int. The number of the first row in the data. With
            `unigram_counts`, a row's masks depend only on its ids, its number
            and `seed`, not on the other rows. Defaults to `0`.
        unigram_counts: `[V]`, not negative. Weights for drawing random tokens. Defaults to `None`:
            draw from the batch's maskable tokens, which follow the corpus's unigram distribution.

    Returns:
        A dict with `token_ids` int32 `[B, L]`, the sequence after masking, and these arrays
        `[B, M]` of the masked tokens, ascending and padded with 0: int32 `mask_positions`,
        `mask_ids` (the original ids), `span_left` and `span_right` (positions just outside the
        span) and `span_offsets` (offset in the span, from 0), and float32 `mask_weights` (1 for a
        masked token) and `span_weights` (1 for a token with an SBO target: 0 in spans that touch
        the first or last maskable token, and for offsets of `max_span_tokens` or more).

    Raises:
        ValueError: if an argument is out of its range, an id is not in the vocabulary, `span_marks`
            are missing or the scheme does not use them, or `unigram_counts` are not valid weights.

    Example:
    ```python
    masking = keras_spanbert.SpanMasking(
        vocabulary_size=100, mask_token_id=4, special_token_ids=(0, 2, 3, 4)
    )
    masks = masking([[2, 51, 52, 53, 54, 55, 56, 57, 3, 0]], seed=1)
    dataset = dataset.batch(256).map(masking)
    ```

    Reference:
        [Joshi et al. 2020](https://arxiv.org/abs/1907.10529), sections 3.1, 5.1
        and 6.1. The sampling follows the released code.
    """

    ranks = (1, 2)
    shape_rule = (
        "of shape [B, L] or [L], with a static L above 0. With `padded_batch`, set "
        "`padded_shapes=[L]`"
    )

    def __init__(
        self,
        vocabulary_size: int,
        mask_token_id: int,
        continuation_token_ids=(),
        special_token_ids=(0,),
        mask_rate: float = 0.15,
        max_predictions: int | None = None,
        geometric_p: float = 0.2,
        max_span_words: int = 10,
        max_span_tokens: int = 15,
        mask_token_rate: float = 0.8,
        random_token_rate: float = 0.1,
        replacement: str = "span",
        scheme: str = "span",
        seed=None,
        pad_predictions_to: int = 1,
        num_mask_copies: int | None = None,
        **kwargs,
    ):
        super().__init__(check_positive("vocabulary_size", vocabulary_size), seed, **kwargs)
        self.mask_token_id = check_id("mask_token_id", mask_token_id)
        self.continuation_token_ids = check_ids("continuation_token_ids", continuation_token_ids)
        self.special_token_ids = check_ids("special_token_ids", special_token_ids)
        check_range("(0, 1]", mask_rate=mask_rate, geometric_p=geometric_p)
        self.mask_rate = mask_rate
        self.geometric_p = geometric_p
        self.max_span_words = check_positive("max_span_words", max_span_words)
        self.max_span_tokens = check_positive("max_span_tokens", max_span_tokens)
        check_range("[0, 1]", mask_token_rate=mask_token_rate, random_token_rate=random_token_rate)
        if mask_token_rate + random_token_rate > 1.0 + 1e-9:
            raise ValueError(
                "`mask_token_rate` and `random_token_rate` must not exceed 1 together. "
                f"Received: mask_token_rate={mask_token_rate}, "
                f"random_token_rate={random_token_rate}"
            )
        self.mask_token_rate = mask_token_rate
        self.random_token_rate = random_token_rate
        self.replacement = check_in(
            "replacement", replacement, replacement in REPLACEMENTS, f"one of {REPLACEMENTS}"
        )
        self.scheme = check_in("scheme", scheme, scheme in SCHEMES, f"one of {SCHEMES}")
        self.pad_predictions_to = check_positive("pad_predictions_to", pad_predictions_to)
        self.max_predictions = _positive_or_none("max_predictions", max_predictions)
        self.num_mask_copies = _positive_or_none("num_mask_copies", num_mask_copies)
        self.set_kinds(
            mask_token_id=_WORD_START,
            # With "subword" each token counts as a word.
            continuation_token_ids=_WORD_START if scheme == "subword" else _CONTINUATION,
            special_token_ids=_SPECIAL,
        )
        self.length_probabilities = span_masks.span_length_distribution(
            0.0 if scheme == "random_span" else geometric_p,
            self.max_span_words if scheme in ("span", "random_span") else 1,
        )

    @classmethod
    def from_tokenizer(cls, tokenizer, **kwargs):
        """Builds the layer for a tokenizer's vocabulary.

        Args:
            tokenizer: a `keras_hub.tokenizers.Tokenizer` with a mask token:
                WordPiece (words continue with `##`), SentencePiece (words start
                with `▁`) or byte-level BPE (words start with `Ġ`).
            **kwargs: the other arguments of the constructor.

        Returns:
            A `SpanMasking` layer.

        Raises:
            ValueError: if the tokenizer has no mask token.
        """
        if getattr(tokenizer, "mask_token_id", None) is None:
            raise ValueError(
                f"The tokenizer must have a mask token. Received: tokenizer={tokenizer}"
            )
        return cls(
            vocabulary_size=tokenizer.vocabulary_size(),
            mask_token_id=tokenizer.mask_token_id,
            continuation_token_ids=continuations(tokenizer),
            special_token_ids=sorted(set(tokenizer.special_token_ids)),
            **kwargs,
        )

    def call(self, token_ids, seed=None, span_marks=None, first_row=0, unigram_counts=None):
        is_linguistic = self.scheme in LINGUISTIC_SCHEMES
        if is_linguistic and span_marks is None:
            raise ValueError(
                f"`scheme='{self.scheme}'` requires `span_marks` of linguistic spans. A corpus of "
                "JSON lines has them: `keras_spanbert.data.linguistic_spans.write` writes one. "
                "Received: span_marks=None"
            )
        if not is_linguistic and span_marks is not None:
            raise ValueError(
                f"`span_marks` require scheme={' or '.join(map(repr, LINGUISTIC_SCHEMES))}. "
                f"Received: span_marks with scheme={self.scheme!r}"
            )
        if unigram_counts is not None:
            unigram_counts = unigram_stops(unigram_counts, self.kinds != _SPECIAL)
        return self.run(self._masks, token_ids, seed, first_row, span_marks, unigram_counts)

    def num_predictions(self, sequence_length: int) -> int:
        """Returns the number M of slots for masked tokens in a sequence of this length."""
        check_counts(sequence_length=sequence_length)
        _, num_drawn, _ = self._sizes(sequence_length)
        return num_drawn + -num_drawn % self.pad_predictions_to

    def drawn_span_lengths(
        self, batch_size: int, sequence_length: int, seed, first_row: int = 0
    ) -> np.ndarray:
        """Returns the lengths of the random spans that a call draws, before they are merged or cut.

        Args:
            batch_size, sequence_length: ints. B and L of the call.
            seed: int or two ints. Seed of the call. With `num_mask_copies`, draws depend
                on the ids, and this method returns others of their distribution.
            first_row: int. `first_row` of the call. Defaults to `0`.

        Returns:
            int32 array `[B, K]`, in words.
        """
        check_counts(batch_size=batch_size, sequence_length=sequence_length)
        num_candidates, _, num_draws = self._sizes(sequence_length)
        draws = uniform(seed, batch_size, num_draws, first_row=first_row)
        draws = draws[:, num_candidates + 1 : 2 * num_candidates + 1]
        return span_masks.span_lengths(np, draws, self.length_probabilities)

    def _sizes(self, length):
        """Returns a sequence's numbers of candidate spans, masked tokens and uniform draws."""
        mean_length = self.length_probabilities @ np.arange(1, len(self.length_probabilities) + 1)
        # With a fraction f already masked, a draw masks about (1 - f) * (1 - f) * mean_length new
        # tokens. The integral over f from 0 to the rate is the odds of the rate.
        odds = self.mask_rate / max(1.0 - self.mask_rate, 1.0 / length)
        expected = length * odds / mean_length
        # The number needed has a standard deviation of at most about 0.8 sqrt(its mean). So fewer
        # than 1 in 10,000 sequences do not fill their budget. Two more candidates then fill it.
        num_candidates = min(math.ceil(expected + 3.5 * math.sqrt(expected)), length)
        num_drawn = self.max_predictions or math.ceil(self.mask_rate * length)
        per_candidate = 4 if self.scheme in LINGUISTIC_SCHEMES else 2
        return num_candidates, num_drawn, per_candidate * num_candidates + 1 + 2 * num_drawn

    def _masks(self, xp, token_ids, seed, first_row, span_marks, stops):
        if span_marks is not None:
            span_marks = as_marks(xp, span_marks, token_ids)
        if len(token_ids.shape) == 1:
            span_marks = None if span_marks is None else span_marks[None]
            masks = self._masks(xp, token_ids[None], seed, first_row, span_marks, stops)
            return {name: value[0] for name, value in masks.items()}
        _, num_drawn, num_draws = self._sizes(token_ids.shape[1])
        kinds = take(xp, self.kinds, token_ids)
        batch_size = xp.size(token_ids) // token_ids.shape[1]
        if self.num_mask_copies is None:
            draws = uniform(seed, batch_size, num_draws, first_row=first_row)
        else:
            draws = uniform(seed, batch_size, 1, first_row=first_row)
            copy = xp.floor(draws * self.num_mask_copies)
            draws = row_uniform(xp, token_ids, copy, self.base_seed, num_draws)
        masks = span_masks.span_masks(
            xp,
            token_ids,
            kinds != _SPECIAL,
            kinds == _CONTINUATION,
            draws,
            mask_rate=self.mask_rate,
            max_predictions=num_drawn,
            length_probabilities=self.length_probabilities,
            max_span_tokens=self.max_span_tokens,
            mask_token_id=self.mask_token_id,
            mask_token_rate=self.mask_token_rate,
            random_token_rate=self.random_token_rate,
            replacement=self.replacement,
            span_marks=span_marks,
            unigram_stops=stops,
        )
        empty = -num_drawn % self.pad_predictions_to
        if empty:
            for name in set(masks) - {"token_ids"}:
                masks[name] = xp.pad(masks[name], [[0, 0], [0, empty]], "constant")
        return masks

    def get_config(self):
        return {**super().get_config(), **config_of(self, SpanMasking)}


def _positive_or_none(name, value):
    return None if value is None else check_positive(name, value)


def as_marks(xp, span_marks, token_ids):
    """Returns int32 marks for `token_ids`. Checks values if they are known."""
    span_marks = as_array(xp, "span_marks", span_marks)
    is_right = has_integers(span_marks) and span_marks.shape[1:] == token_ids.shape[1:]
    if is_right and xp is np:
        is_right = span_marks.shape == token_ids.shape and np.isin(span_marks, (0, 1, 2)).all()
    rule = f"integers 0, 1 or 2 with the shape of `token_ids`, {tuple(token_ids.shape)}"
    check_in("span_marks", span_marks, is_right, rule)
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
