"""Pairs of segments for next-sentence prediction, made of a batch of sequences."""

import random

import keras
import numpy as np

from keras_spanbert.keras_private import take_tensors_of_tensorflow
from keras_spanbert.layers.array_functions import cumsum, draw_below, int32, take, true_indices
from keras_spanbert.layers.draws import CallSeeds, check_seed, tensorflow, uniform
from keras_spanbert.layers.span_masking import SpanMasking

# What ends a sentence, in many scripts, and what may stand behind that and belong to it.
SENTENCE_ENDS = ".!?…‼⁇⁈⁉‽。．｡！？؟۔।॥։።፧။។៕།༎᠃᠉"
CLOSINGS = "\"'”’»›)]}」』】〉》〕）］｝＂＇"

# Draws by the seed of a call are others than those of its masks.
_STREAM = 0x2545F4914F6CDD1D
_NUM_DRAWS = 5

# Kinds of tokens.
_OTHER, _END, _CLOSING, _CONTINUATION = 0, 1, 2, 3


def next_sentence_pairs(
    xp, token_ids, kinds, draws, *, short_rate, sep_token_id, pad_token_id, span_marks=None
):
    """Cuts sequences in two and exchanges the second segments of half of them.

    The body keeps to the part of the NumPy API that `numpy` and
    `tensorflow.experimental.numpy` share, as `span_masks` does.

    Legend: B = batch, L = sequence length, A and B the segments of a pair. A
    place is a column of the batch, 0 that of `[CLS]`.

    Args:
        xp: `numpy` or `tensorflow.experimental.numpy`.
        token_ids: int32 `[B, L]`.
        kinds: int8 `[B, L]`. Kinds of the tokens.
        draws: float64 `[B, 5]`, uniform in [0, 1).
        short_rate: float. Share of the sequences that are cut short.
        sep_token_id: int.
        pad_token_id: int.
        span_marks: int32 `[B, L]`, numbers that go where their tokens go.
            Defaults to `None`, none.

    Returns:
        Dict, see `NextSentencePairs`.
    """
    length = token_ids.shape[1]
    place = np.arange(length, dtype=np.int32)[None, :]
    is_separator = token_ids == sep_token_id
    ahead = _count(xp, cumsum(xp, is_separator, axis=1) == 0)
    size = xp.where(ahead < length, ahead - 1, np.int32(0))  # [B, 1], tokens of text
    row = cumsum(xp, xp.ones_like(size), axis=0) - 1  # [B, 1]
    u_label, u_short, u_target, u_cut, u_shift = (draws[:, i : i + 1] for i in range(_NUM_DRAWS))

    target = np.int32(length - 3)
    short = 2 + draw_below(xp, u_target, length - 4)
    target = xp.where(u_short < short_rate, short, target)  # [B, 1], tokens of A and B

    # === Where A ends ===
    sentences, words = _starts(xp, kinds, (place >= 2) & (place <= size))
    kept = place <= xp.minimum(size, target)  # B has a token or more.
    cuts = _preferred(xp, sentences & kept, words & kept)
    num_cuts = _count(xp, cuts)
    chosen = cuts & (cumsum(xp, cuts, axis=1) == 1 + draw_below(xp, u_cut, num_cuts))
    cut = xp.sum(xp.where(chosen, place, 0), axis=1, keepdims=True, dtype=np.int32)

    # === Where B comes from ===
    # Rows of text are numbered 0..R-1, and each looks 1..R-1 rows on.
    has_text = size > 0
    rows = xp.concatenate([true_indices(xp, has_text), [np.int32(0)]], axis=0)  # [R + 1]
    num_rows = xp.sum(has_text, dtype=np.int32)
    shift = 1 + draw_below(xp, u_shift, num_rows - 1)
    number = cumsum(xp, has_text, axis=0) - 1 + shift
    number = xp.where(number < num_rows, number, number - num_rows)
    other = take(xp, rows, xp.minimum(xp.maximum(number, 0), num_rows))  # [B, 1]
    others = xp.reshape(other, (-1,))
    starts = _preferred(xp, take(xp, sentences, others), take(xp, words, others))
    size_there = take(xp, xp.reshape(size, (-1,)), other)

    # A random B is as long as the row's own, or as near to that as the end of a sentence is where
    # that one ends with its text.
    size_a = cut - 1
    room = target - size_a
    wanted = xp.minimum(size - size_a, room)
    latest = xp.minimum(cut, size_there + 1 - wanted)
    start = _last(xp, starts & (place <= latest), place)
    ends = (starts | (place == size_there + 1)) & (place > start) & (place <= start + room)
    distance = xp.where(ends, abs(place - start - wanted), length)
    nearest = xp.min(distance, axis=1, keepdims=True)
    nearest_end = _last(xp, ends & (distance == nearest), place)
    to_an_end = (size <= target) & (nearest < length)
    size_b = xp.where(to_an_end, nearest_end - start, wanted)
    size_b = xp.minimum(size_b, size_there + 1 - start)

    is_pair = (num_cuts > 0) & (num_rows > 1)
    is_random = is_pair & (u_label < 0.5)
    source_row = xp.where(is_random, other, row)
    start = xp.where(is_random, start, cut)
    size_b = xp.where(is_random, size_b, wanted)

    # === The pairs ===
    from_b = place - size_a - 2
    in_b = (from_b >= 0) & (from_b < size_b)
    in_a = (place >= 1) & (place <= size_a)
    is_text = in_a | in_b
    source = xp.where(in_b, length * source_row + start + from_b, length * row + place)

    def moved(values, elsewhere):
        there = take(xp, xp.reshape(values, (-1,)), source)
        return xp.where(is_pair, xp.where(is_text, there, elsewhere), values)

    separates = (place == size_a + 1) | (from_b == size_b)
    specials = xp.where(separates, np.int32(sep_token_id), np.int32(pad_token_id))
    pairs = {
        "token_ids": moved(token_ids, xp.where(place == 0, token_ids, specials)),
        "segment_ids": int32(xp, is_pair & (from_b >= 0) & (from_b <= size_b)),
        "is_random": xp.reshape(int32(xp, is_random), (-1,)),
        "pair_weights": xp.reshape(xp.asarray(is_pair, dtype=np.float32), (-1,)),
    }
    if span_marks is not None:
        pairs["span_marks"] = moved(span_marks, np.int32(0))
    return pairs


def _starts(xp, kinds, inner):
    """Whether a sentence, and whether a word, starts at each of the `inner` places."""
    # What closes belongs to the sentence that has ended: then the last token that closes nothing
    # ends one. These tokens are numbered through the batch; each row has one, `[CLS]`, in front.
    is_last = xp.reshape(kinds != _CLOSING, (-1,))
    lasts = xp.concatenate([true_indices(xp, is_last), [np.int32(0)]], axis=0)
    last = take(xp, lasts, xp.maximum(cumsum(xp, is_last) - 1, 0))
    is_end = xp.reshape(take(xp, xp.reshape(kinds == _END, (-1,)), last), (-1, kinds.shape[1]))
    follows = xp.concatenate([xp.zeros_like(is_end[:, :1]), is_end[:, :-1]], axis=1)
    words = inner & (kinds != _CONTINUATION)
    return words & follows & ~is_end, words


def _last(xp, flags, place):
    """The last place with a flag, 1 where there is none."""
    return int32(xp, xp.max(xp.where(flags, place, 1), axis=1, keepdims=True))


def _preferred(xp, sentences, words):
    """A row's starts of sentences; of words where there is none."""
    return xp.where(_count(xp, sentences) > 0, sentences, words)


def _count(xp, x):
    return xp.sum(x, axis=1, keepdims=True, dtype=np.int32)


@keras.saving.register_keras_serializable(package="keras_spanbert")
class NextSentencePairs(keras.layers.Layer):
    """Makes pairs for BERT's next-sentence prediction of a batch of packed sequences.

    `[CLS] text [SEP] padding` becomes `[CLS] A [SEP] B [SEP] padding`. A is the
    sequence's text up to the end of a sentence, drawn uniformly from those
    within it. In half of the sequences, drawn one by one, B is what follows; in
    the others it comes from another sequence of the batch. A and B have at most
    L - 3 tokens together, with the probability `short_rate` a number drawn
    uniformly from 2 to L - 3, and are cut at their end.

    Neither its length nor its end tells what B is. A random one begins with the
    last sentence that starts at the cut's own place or before it, earlier where
    too little text is left from there. It is as long as what it stands for;
    where that ends with its text, and is not cut, it ends with the sentence
    whose end is nearest. Only where the other text as a whole is shorter it is
    shorter.

    A sentence ends with a token of `sentence_end_token_ids` and those of
    `closing_token_ids` behind it. A sequence without such an end inside is cut
    where a word starts, any. One of a single word, one alone in its batch, and
    padding stay as they are, with weight 0.

    Released BERT differs in five things. Its random B comes from all documents
    of its file, but for A's own; here from the batch, which a corpus's stream
    shuffles. It fills a row with it, also where the document's own next
    sentences would not. What a short sequence or a random B leaves of a document goes into
    the next one there; here it is not used in this epoch. It cuts tokens at
    either end, at random; here at the end. Its sentences are lines of the text;
    here they end with punctuation, that of abbreviations too.

    Works eagerly and inside `tf.data`, on every backend, as `SpanMasking` does.

    Args:
        vocabulary_size: int. Size of the token vocabulary.
        sep_token_id: int. Id of `[SEP]`.
        pad_token_id: int. Defaults to `0`.
        sentence_end_token_ids: ints. Ids of tokens such as `.`. Defaults to
            `()`: cuts are where words start.
        closing_token_ids: ints. Ids of closing quotes and brackets. Defaults to
            `()`.
        continuation_token_ids: ints. Ids of tokens that continue a word.
            Defaults to `()`.
        short_rate: float in [0, 1]. Share of shorter pairs. Defaults to `0.1`.
        seed: int. Fixes the pairs of calls without a seed of their own.
            Defaults to `None`: drawn when the layer is made.
        **kwargs: see `keras.layers.Layer`.

    Call arguments:
        token_ids: int `[B, L]`, with B of 2 or more and L of 5 or more. The
            text ends with the first `[SEP]`. In `tf.data`, L must be static.
        seed: int or two ints. Fixes the pairs; the same seed may be that of the
            masks, which draw other numbers by it.
        span_marks: int `[B, L]`, numbers that go where their tokens go, 0 at
            special tokens. Defaults to `None`, none.

    Returns:
        A dict of int32 `token_ids` and `segment_ids` `[B, L]` (0 up to the first
        `[SEP]`, 1 up to the second, 0 behind it), int32 `is_random` `[B]` (1
        where B is from elsewhere: BERT's labels), float32 `pair_weights` `[B]`
        (0 where there is no pair), and `span_marks` where they are given.

    Raises:
        ValueError: where an argument is out of its range, or a batch has one
            row.

    Example:
    ```python
    pairs = keras_spanbert.NextSentencePairs(vocabulary_size=100, sep_token_id=3)(
        [[2, 51, 52, 53, 54, 55, 3], [2, 61, 62, 63, 64, 65, 3]], seed=1
    )
    ```

    Reference:
        [Devlin et al. 2019](https://arxiv.org/abs/1810.04805), section 3.1 and
        appendix A.2; the rules are those of the released
        `create_pretraining_data.py`.
    """

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
        super().__init__(**kwargs)
        take_tensors_of_tensorflow(self)
        self.built = True
        if not 0.0 <= short_rate <= 1.0:
            raise ValueError(f"`short_rate` must be in [0, 1]. Received: short_rate={short_rate}")
        self.vocabulary_size = int(vocabulary_size)
        self.sep_token_id = int(sep_token_id)
        self.pad_token_id = int(pad_token_id)
        self.sentence_end_token_ids = tuple(int(i) for i in sentence_end_token_ids)
        self.closing_token_ids = tuple(int(i) for i in closing_token_ids)
        self.continuation_token_ids = tuple(int(i) for i in continuation_token_ids)
        self.short_rate = short_rate
        self.seed = seed
        self._kinds = np.full(self.vocabulary_size, _OTHER, np.int8)
        for ids, kind in [
            (self.continuation_token_ids, _CONTINUATION),
            (self.closing_token_ids, _CLOSING),
            (self.sentence_end_token_ids, _END),
            ((self.sep_token_id, self.pad_token_id), _OTHER),
        ]:
            wrong = [i for i in ids if not 0 <= i < self.vocabulary_size]
            if wrong:
                raise ValueError(
                    "Ids of tokens must be in [0, vocabulary_size). Received: "
                    f"{wrong[0]}, vocabulary_size={vocabulary_size}"
                )
            self._kinds[list(ids)] = kind
        # As Keras draws its own, so that `keras.utils.set_random_seed` fixes it.
        base_seed = random.randint(1, 10**9) if seed is None else int(seed)
        self._call_seeds = CallSeeds(base_seed)

    @classmethod
    def from_tokenizer(cls, tokenizer, **kwargs):
        """Builds the layer for a tokenizer's vocabulary.

        Sentences end with `.`, `!`, `?` and the like of other scripts; straight
        and curly quotes and brackets that close belong to them.

        Args:
            tokenizer: a tokenizer that `SpanMasking.from_tokenizer` takes.
            **kwargs: arguments of the constructor, in place of the tokenizer's.

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
        tf = tensorflow()
        in_graph = tf is not None and not tf.executing_eagerly()
        if in_graph:
            import tensorflow.experimental.numpy as xp

            as_int32 = lambda x: tf.cast(x, tf.int32)  # noqa: E731
        else:
            xp = np
            as_int32 = lambda x: keras.ops.convert_to_numpy(x).astype(np.int32)  # noqa: E731
        if seed is not None:
            check_seed(seed)
        token_ids = as_int32(token_ids)
        span_marks = None if span_marks is None else as_int32(span_marks)
        rows, length = token_ids.shape if len(token_ids.shape) == 2 else (None, None)
        if rows == 1 or length is None or length < 5:
            raise ValueError(
                "`token_ids` must be of shape [B, L], with B of 2 or more, since half of the rows "
                "take their second segment from another one, and L of 5 or more and static. "
                f"Received: shape={tuple(token_ids.shape)}"
            )
        seed = self._call_seeds.next() if seed is None else seed
        run = self._pairs if tf is None else tf.autograph.experimental.do_not_convert(self._pairs)
        if in_graph and rows is None:
            several = tf.debugging.assert_greater(
                tf.shape(token_ids)[0],
                1,
                "A batch for next-sentence prediction must have 2 rows or more; where the last one "
                "is left alone, drop_remainder=True drops it",
            )
            with tf.control_dependencies([several]):
                token_ids = tf.identity(token_ids)
        pairs = run(xp, token_ids, seed, span_marks, first_row)
        if in_graph:
            return pairs
        return {name: keras.ops.convert_to_tensor(x) for name, x in pairs.items()}

    def _pairs(self, xp, token_ids, seed, span_marks, first_row):
        num_rows = xp.size(token_ids) // token_ids.shape[1]
        return next_sentence_pairs(
            xp,
            token_ids,
            take(xp, self._kinds, token_ids),
            uniform(seed, num_rows, _NUM_DRAWS, _STREAM, first_row),
            short_rate=self.short_rate,
            sep_token_id=self.sep_token_id,
            pad_token_id=self.pad_token_id,
            span_marks=span_marks,
        )

    def get_config(self):
        config = super().get_config()
        names = ["vocabulary_size", "sep_token_id", "pad_token_id", "short_rate", "seed"]
        config.update({name: getattr(self, name) for name in names})
        for name in ["sentence_end_token_ids", "closing_token_ids", "continuation_token_ids"]:
            config[name] = list(getattr(self, name))
        return config
