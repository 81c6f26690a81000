"""Pairs of segments for next-sentence prediction, made from a batch of sequences."""

import keras
import numpy as np

from keras_spanbert.checks import check_id, check_ids, check_positive, check_range
from keras_spanbert.layers.array_functions import cumsum, draw_below, int32, take, true_indices
from keras_spanbert.layers.span_masking import SpanMasking
from keras_spanbert.layers.sublayers import config_of
from keras_spanbert.layers.token_layer import TokenLayer, as_array, uniform
from keras_spanbert.optional import tf

# Characters that end a sentence, in many scripts, and those that can follow and belong to it.
SENTENCE_ENDS = ".!?…‼⁇⁈⁉‽。．｡！？؟۔।॥։።፧။។៕།༎᠃᠉"
CLOSINGS = "\"'”’»›)]}」』】〉》〕）］｝＂＇"

# Keeps the draws apart from those of the masks, which use the same seed.
_STREAM = 0x2545F4914F6CDD1D
_NUM_DRAWS = 5

# Kinds of tokens.
_OTHER, _END, _CLOSING, _CONTINUATION = 0, 1, 2, 3


def next_sentence_pairs(
    xp, token_ids, kinds, draws, *, short_rate, sep_token_id, pad_token_id, span_marks=None
):
    """Cuts sequences in two and exchanges the second segments of half of them.

    `token_ids` are int32, `kinds` int8 and `span_marks` int32 `[B, L]`, and `draws` are uniform,
    float64 `[B, 5]`. Returns the dict of `NextSentencePairs`. A position is a column of the batch.
    """
    length = token_ids.shape[1]
    position = np.arange(length, dtype=np.int32)[None, :]
    is_separator = token_ids == sep_token_id
    ahead = _count(xp, cumsum(xp, is_separator, axis=1) == 0)
    size = xp.where(ahead < length, ahead - 1, np.int32(0))  # [B, 1], tokens of text
    row = cumsum(xp, xp.ones_like(size), axis=0) - 1  # [B, 1]
    u_label, u_short, u_target, u_cut, u_shift = (draws[:, i : i + 1] for i in range(_NUM_DRAWS))

    target = np.int32(length - 3)
    short = 2 + draw_below(xp, u_target, length - 4)
    target = xp.where(u_short < short_rate, short, target)  # [B, 1], tokens of A and B

    # === End of A ===
    sentences, words = _starts(xp, kinds, (position >= 2) & (position <= size))
    kept = position <= xp.minimum(size, target)  # B has at least one token.
    cuts = _sentence_or_word_starts(xp, sentences & kept, words & kept)
    num_cuts = _count(xp, cuts)
    chosen = cuts & (cumsum(xp, cuts, axis=1) == 1 + draw_below(xp, u_cut, num_cuts))
    cut = xp.sum(xp.where(chosen, position, 0), axis=1, keepdims=True, dtype=np.int32)

    # === Source of B ===
    # Rows with text are numbered 0..R-1. Each takes B from the row 1..R-1 numbers further.
    has_text = size > 0
    rows = xp.concatenate([true_indices(xp, has_text), [np.int32(0)]], axis=0)  # [R + 1]
    num_rows = xp.sum(has_text, dtype=np.int32)
    shift = 1 + draw_below(xp, u_shift, num_rows - 1)
    number = cumsum(xp, has_text, axis=0) - 1 + shift
    number = xp.where(number < num_rows, number, number - num_rows)
    other = take(xp, rows, xp.minimum(xp.maximum(number, 0), num_rows))  # [B, 1]
    others = xp.reshape(other, (-1,))
    starts = _sentence_or_word_starts(xp, take(xp, sentences, others), take(xp, words, others))
    size_there = take(xp, xp.reshape(size, (-1,)), other)

    # A random B is as long as the row's own B. If the own B reaches the end of its text, the
    # random B ends with the sentence whose end is nearest to that length.
    size_a = cut - 1
    room = target - size_a
    wanted = xp.minimum(size - size_a, room)
    latest = xp.minimum(cut, size_there + 1 - wanted)
    start = _last(xp, starts & (position <= latest), position)
    ends = (starts | (position == size_there + 1)) & (position > start) & (position <= start + room)
    distance = xp.where(ends, abs(position - start - wanted), length)
    nearest = xp.min(distance, axis=1, keepdims=True)
    nearest_end = _last(xp, ends & (distance == nearest), position)
    to_an_end = (size <= target) & (nearest < length)
    size_b = xp.where(to_an_end, nearest_end - start, wanted)
    size_b = xp.minimum(size_b, size_there + 1 - start)

    is_pair = (num_cuts > 0) & (num_rows > 1)
    is_random = is_pair & (u_label < 0.5)
    source_row = xp.where(is_random, other, row)
    start = xp.where(is_random, start, cut)
    size_b = xp.where(is_random, size_b, wanted)

    # === The pairs ===
    from_b = position - size_a - 2
    in_b = (from_b >= 0) & (from_b < size_b)
    in_a = (position >= 1) & (position <= size_a)
    is_text = in_a | in_b
    source = xp.where(in_b, length * source_row + start + from_b, length * row + position)

    def gather(values, elsewhere):
        there = take(xp, xp.reshape(values, (-1,)), source)
        return xp.where(is_pair, xp.where(is_text, there, elsewhere), values)

    separates = (position == size_a + 1) | (from_b == size_b)
    specials = xp.where(separates, np.int32(sep_token_id), np.int32(pad_token_id))
    pairs = {
        "token_ids": gather(token_ids, xp.where(position == 0, token_ids, specials)),
        "segment_ids": int32(xp, is_pair & (from_b >= 0) & (from_b <= size_b)),
        "is_random": xp.reshape(int32(xp, is_random), (-1,)),
        "pair_weights": xp.reshape(xp.asarray(is_pair, dtype=np.float32), (-1,)),
    }
    if span_marks is not None:
        pairs["span_marks"] = gather(span_marks, np.int32(0))
    return pairs


def _starts(xp, kinds, inner):
    """Returns whether a sentence, and whether a word, starts at each of the `inner` positions."""
    # Closing tokens belong to the sentence before them, so a sentence ends if the last token that
    # is not closing ends one. These tokens are numbered through the batch. Each row has at least
    # `[CLS]`.
    is_last = xp.reshape(kinds != _CLOSING, (-1,))
    lasts = xp.concatenate([true_indices(xp, is_last), [np.int32(0)]], axis=0)
    last = take(xp, lasts, xp.maximum(cumsum(xp, is_last) - 1, 0))
    is_end = xp.reshape(take(xp, xp.reshape(kinds == _END, (-1,)), last), (-1, kinds.shape[1]))
    follows = xp.concatenate([xp.zeros_like(is_end[:, :1]), is_end[:, :-1]], axis=1)
    words = inner & (kinds != _CONTINUATION)
    return words & follows & ~is_end, words


def _last(xp, flags, position):
    """Returns the last position with a flag, or 1 without flags."""
    return int32(xp, xp.max(xp.where(flags, position, 1), axis=1, keepdims=True))


def _sentence_or_word_starts(xp, sentences, words):
    """Returns a row's sentence starts, or its word starts if it has no sentence start."""
    return xp.where(_count(xp, sentences) > 0, sentences, words)


def _count(xp, x):
    return xp.sum(x, axis=1, keepdims=True, dtype=np.int32)


@keras.saving.register_keras_serializable(package="keras_spanbert")
class NextSentencePairs(TokenLayer):
    """Makes pairs for BERT's next-sentence prediction from a batch of packed sequences.

    `[CLS] text [SEP] padding` becomes `[CLS] A [SEP] B [SEP] padding`. A is the text up to a
    sentence end, drawn uniformly. In half of the sequences, chosen at random, B is the text that
    follows A. In the others, B comes from another sequence of the batch. A and B have at most L - 3
    tokens together. With probability `short_rate` the limit is drawn uniformly from 2 to L - 3. B
    is cut at its end if it would exceed the limit.

    Neither the length nor the end of B shows whether B is random. A random B starts with the last
    sentence that starts at or before the position of the cut, or with an earlier one if too little
    text follows. It is as long as the B that it replaces. If that B reaches the end of its text,
    the random B ends with the sentence whose end is nearest to that length. Otherwise it is shorter
    only if the whole other text is shorter.

    A sentence ends with a token of `sentence_end_token_ids` and the `closing_token_ids` that follow
    it. A sequence without a sentence end is cut at the start of a random word. Sequences of one
    word, rows of padding, and the only row of a batch with text do not change and get weight 0.

    The layer differs from the released BERT:

    - A random B comes from the batch, which a corpus's stream shuffles. BERT draws
      it from the other documents of the file and fills the row with it.
    - Text that a short sequence or a random B leaves over is not used in this
      epoch. BERT moves it to the next sequence.
    - The end is cut. BERT drops tokens from either end at random.
    - Sentences end with punctuation, including that of abbreviations. BERT's are lines of the text.

    Works eagerly and inside `tf.data`, on every backend, as `SpanMasking` does.

    Args:
        vocabulary_size: int. Size of the token vocabulary.
        sep_token_id: int. Id of `[SEP]`.
        pad_token_id: int. Defaults to `0`.
        sentence_end_token_ids: ints. Ids of tokens such as `.`. Defaults to
            `()`: texts are cut at the starts of words.
        closing_token_ids: ints. Ids of closing quotes and brackets. Defaults to `()`.
        continuation_token_ids: ints. Ids of tokens that continue a word. Defaults to `()`.
        short_rate: float in [0, 1]. Share of shorter pairs. Defaults to `0.1`.
        seed: int. Determines the pairs of calls without a `seed`. Defaults to
            `None`, drawn at creation.
        **kwargs: see `keras.layers.Layer`.

    Call arguments:
        token_ids: int `[B, L]`, with B of at least 2 and L of at least 5. The
            text ends with the first `[SEP]`. In `tf.data`, L must be static.
        seed: int or two ints. Determines the pairs. The masks may have the same
            seed, since they draw different numbers from it.
        span_marks: int `[B, L]`, numbers that move with their tokens, 0 at
            special tokens. Defaults to `None`.
        first_row: int. The number of the first row in the data, which with the
            seed determines a row's draws. Defaults to `0`.

    Returns:
        A dict of int32 `token_ids` and `segment_ids` `[B, L]` (0 up to the first `[SEP]`, 1 up to
        the second, 0 after it), int32 `is_random` `[B]` (1 if B comes from another sequence, as in
        BERT's labels), float32 `pair_weights` `[B]` (0 for a row without a pair), and `span_marks`
        if they are given.

    Raises:
        ValueError: if an argument is out of its range, or a batch has only one row.

    Example:
    ```python
    pairs = keras_spanbert.NextSentencePairs(vocabulary_size=100, sep_token_id=3)(
        [[2, 51, 52, 53, 54, 55, 3], [2, 61, 62, 63, 64, 65, 3]], seed=1
    )
    ```

    Reference:
        [Devlin et al. 2019](https://arxiv.org/abs/1810.04805), section 3.1 and
        appendix A.2, and the released `create_pretraining_data.py`.
    """

    least_rows, least_length = 2, 5
    shape_rule = (
        "of shape [B, L], with a static L of at least 5 and B of at least 2, because half of the "
        "rows take their second segment from another row"
    )

    def __init__(
        self,
        vocabulary_size: int,
        sep_token_id: int,
        pad_token_id: int = 0,
        sentence_end_token_ids=(),
        closing_token_ids=(),
        continuation_token_ids=(),
        short_rate: float = 0.1,
        seed=None,
        **kwargs,
    ):
        super().__init__(check_positive("vocabulary_size", vocabulary_size), seed, **kwargs)
        check_range("[0, 1]", short_rate=short_rate)
        self.short_rate = short_rate
        self.sep_token_id = check_id("sep_token_id", sep_token_id)
        self.pad_token_id = check_id("pad_token_id", pad_token_id)
        self.sentence_end_token_ids = check_ids("sentence_end_token_ids", sentence_end_token_ids)
        self.closing_token_ids = check_ids("closing_token_ids", closing_token_ids)
        self.continuation_token_ids = check_ids("continuation_token_ids", continuation_token_ids)
        self.set_kinds(
            continuation_token_ids=_CONTINUATION,
            closing_token_ids=_CLOSING,
            sentence_end_token_ids=_END,
            sep_token_id=_OTHER,
            pad_token_id=_OTHER,
        )

    @classmethod
    def from_tokenizer(cls, tokenizer, **kwargs):
        """Builds the layer for a tokenizer's vocabulary.

        Sentences end with `.`, `!`, `?` and their equivalents in other scripts, and
        the closing quotes and brackets after them.

        Args:
            tokenizer: a tokenizer that `SpanMasking.from_tokenizer` accepts.
            **kwargs: arguments of the constructor, which override those from the tokenizer.

        Returns:
            A `NextSentencePairs` layer.
        """
        masking = SpanMasking.from_tokenizer(tokenizer, seed=0)
        ends, closings = [], []
        for i in range(masking.vocabulary_size):
            text = str(tokenizer.id_to_token(i)).lstrip("▁Ġ")
            if text and not set(text) - set(SENTENCE_ENDS):
                ends.append(i)
            elif text and not set(text) - set(CLOSINGS):
                closings.append(i)
        arguments = {
            "vocabulary_size": masking.vocabulary_size,
            "sep_token_id": tokenizer.sep_token_id,
            "pad_token_id": tokenizer.pad_token_id,
            "sentence_end_token_ids": ends,
            "closing_token_ids": closings,
            "continuation_token_ids": masking.continuation_token_ids,
        }
        return cls(**{**arguments, **kwargs})

    def call(self, token_ids, seed=None, span_marks=None, first_row=0):
        return self.run(self._pairs, token_ids, seed, first_row, span_marks)

    def _pairs(self, xp, token_ids, seed, first_row, span_marks):
        if token_ids.shape[0] is None:
            several = tf.debugging.assert_greater(
                tf.shape(token_ids)[0],
                1,
                "A batch for next-sentence prediction must have at least 2 rows. If the last batch "
                "has only one row, use drop_remainder=True",
            )
            with tf.control_dependencies([several]):
                token_ids = tf.identity(token_ids)
        if span_marks is not None:
            span_marks = int32(xp, as_array(xp, "span_marks", span_marks))
        return next_sentence_pairs(
            xp,
            token_ids,
            take(xp, self.kinds, token_ids),
            uniform(seed, xp.size(token_ids) // token_ids.shape[1], _NUM_DRAWS, _STREAM, first_row),
            short_rate=self.short_rate,
            sep_token_id=self.sep_token_id,
            pad_token_id=self.pad_token_id,
            span_marks=span_marks,
        )

    def get_config(self):
        return {**super().get_config(), **config_of(self, NextSentencePairs)}
