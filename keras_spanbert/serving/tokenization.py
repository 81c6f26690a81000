"""Tokens in graph code, with their places in the text.

Legend: B = texts, C = characters of all texts, K = characters that are left
of them once normalised, T = tokens of all texts.
"""

import collections

import numpy as np

from keras_spanbert.models.tokenizer import MAX_WORD_CHARACTERS, UNKNOWN_CHARACTER

Tokens = collections.namedtuple(
    "Tokens",
    [
        "ids",  # int32 [T]
        "sizes",  # int32 [B], tokens of each text
        "offsets",  # int64 [T, 2], characters within the text
        "characters",  # int32 [B, (characters)], of the texts as they are
    ],
)

_NUM_CODE_POINTS = 0x110000


class GraphTokenizer:
    """A tokenizer's ids and offsets, as graph code.

    Texts are normalised a character at a time, so that each character that is
    left knows where it came from.

    Args:
        tokenizer: `SpanBertTokenizer`.
    """

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self._normal = _normal_characters(tokenizer)

    def __call__(self, texts):
        """Tokens of texts.

        Args:
            texts: string tensor `[B]`, valid UTF-8.

        Returns:
            `Tokens`.
        """
        import tensorflow as tf

        # === Characters, normalised ===
        characters = tf.strings.unicode_decode(texts, "UTF-8")
        normal = tf.gather(self._normal, characters.values)
        source = tf.cast(normal.value_rowids(), tf.int64)  # [K], of C
        text_of = tf.gather(characters.value_rowids(), source)
        kept, source, last_source, text_of = _without_long_words(normal.values, source, text_of)

        # === Tokens, in bytes of the normalised texts ===
        num_texts = tf.shape(texts, tf.int64)[0]
        kept_rows = tf.RaggedTensor.from_value_rowids(kept, text_of, num_texts, validate=False)
        normalized = tf.strings.unicode_encode(kept_rows, "UTF-8")
        ids, begins, ends = self.tokenizer.fast_wordpiece.tokenize_with_offsets(normalized)

        # === Back to characters, then to the texts' own ===
        more_bytes = sum(tf.cast(kept >= low, tf.int64) for low in (0x80, 0x800, 0x10000))
        starts = tf.cumsum(1 + more_bytes, exclusive=True)  # Over all texts.
        num_bytes = tf.cast(tf.strings.length(normalized), tf.int64)
        before_text = tf.cumsum(num_bytes, exclusive=True)
        token_text = tf.cast(ids.value_rowids(), tf.int64)
        shift = tf.gather(before_text, token_text)
        first = tf.searchsorted(starts, begins.values + shift, "right", tf.int64) - 1
        last = tf.searchsorted(starts, ends.values + shift, "left", tf.int64) - 1
        first, last = tf.gather(source, first), tf.gather(last_source, last)
        text_start = tf.gather(characters.row_starts(), token_text)
        return Tokens(
            tf.cast(ids.values, tf.int32),
            tf.cast(ids.row_lengths(), tf.int32),
            tf.stack([first - text_start, last + 1 - text_start], axis=1),
            characters,
        )


def _normal_characters(tokenizer):
    """Each code point's normalised characters, ragged."""
    import tensorflow as tf

    code_points = np.arange(_NUM_CODE_POINTS)
    is_character = (code_points < 0xD800) | (code_points > 0xDFFF)  # No surrogates.
    texts = tf.strings.unicode_encode(code_points[is_character, None].astype("int32"), "UTF-8")
    normal = tf.strings.unicode_decode(tokenizer.normalize(texts), "UTF-8")
    sizes = np.zeros(_NUM_CODE_POINTS, "int32")
    sizes[is_character] = normal.row_lengths().numpy()
    return tf.RaggedTensor.from_row_lengths(normal.values, sizes, validate=False)


def _without_long_words(characters, source, text_of):
    """Each run of too many ASCII letters and digits becomes one unknown character.

    Returns:
        `(characters, source, last source, text)` of those left.
    """
    import tensorflow as tf

    def within(low, high):
        return (characters >= ord(low)) & (characters <= ord(high))

    is_word = within("0", "9") | within("A", "Z") | within("a", "z")
    begins = tf.concat(
        [tf.ones_like(is_word[:1]), (is_word[1:] != is_word[:-1]) | (text_of[1:] != text_of[:-1])],
        axis=0,
    )
    run = tf.cumsum(tf.cast(begins, tf.int64)) - 1
    num_runs = tf.reduce_sum(tf.cast(begins, tf.int64))
    size = tf.math.unsorted_segment_sum(tf.ones_like(run), run, num_runs)
    is_long = is_word & (tf.gather(size, run) > MAX_WORD_CHARACTERS)
    run_end = tf.gather(tf.math.unsorted_segment_max(source, run, num_runs), run)
    characters = tf.where(is_long, ord(UNKNOWN_CHARACTER), characters)
    last_source = tf.where(is_long, run_end, source)
    keep = begins | ~is_long
    return [tf.boolean_mask(x, keep) for x in (characters, source, last_source, text_of)]
