"""Tokens and their offsets in the text, in graph code.

Legend: B = texts, C = characters of all texts, K = characters of all normalized texts, T = tokens
of all texts.
"""

from keras_spanbert.text.normalization import MAX_WORD_CHARACTERS, UNKNOWN_CHARACTER


def tokenize_with_offsets(tokenizer, texts):
    """Tokenizes a string tensor `[B]`, valid UTF-8.

    Returns ids int32 `[T]`, the number of tokens of each text int32 `[B]`, and the offsets of the
    tokens in characters of their text, int64 `[T, 2]`.
    """
    import tensorflow as tf

    # === Characters, normalized ===
    normalizer = tokenizer.normalizer
    characters = tf.strings.unicode_decode(normalizer.mark_found_tokens(texts), "UTF-8")
    forms = tf.gather(normalizer.forms, characters.values)
    source = tf.cast(forms.value_rowids(), tf.int64)  # [K], of C
    text_of = tf.gather(characters.value_rowids(), source)
    kept, source, last_source, text_of = _without_long_words(forms.values, source, text_of)

    # === Tokens, in bytes of the normalized texts ===
    num_texts = tf.shape(texts, tf.int64)[0]
    kept_rows = tf.RaggedTensor.from_value_rowids(kept, text_of, num_texts, validate=False)
    normalized = tf.strings.unicode_encode(kept_rows, "UTF-8")
    ids, begins, ends = tokenizer.fast_wordpiece.tokenize_with_offsets(normalized)

    # === Back to characters: of the normalized texts, then of the original ones ===
    more_bytes = sum(tf.cast(kept >= low, tf.int64) for low in (0x80, 0x800, 0x10000))
    starts = tf.cumsum(1 + more_bytes, exclusive=True)  # Counted over all texts.
    num_bytes = tf.cast(tf.strings.length(normalized), tf.int64)
    before_text = tf.cumsum(num_bytes, exclusive=True)
    token_text = tf.cast(ids.value_rowids(), tf.int64)
    shift = tf.gather(before_text, token_text)
    first = tf.searchsorted(starts, begins.values + shift, "right", tf.int64) - 1
    last = tf.searchsorted(starts, ends.values + shift, "left", tf.int64) - 1
    first, last = tf.gather(source, first), tf.gather(last_source, last)
    text_start = tf.gather(characters.row_starts(), token_text)
    return (
        tf.cast(ids.values, tf.int32),
        tf.cast(ids.row_lengths(), tf.int32),
        tf.stack([first - text_start, last + 1 - text_start], axis=1),
    )


def _without_long_words(characters, source, text_of):
    """Replaces each word that is too long with one unknown character, in all four arrays."""
    import tensorflow as tf

    is_word = characters != ord(" ")
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
