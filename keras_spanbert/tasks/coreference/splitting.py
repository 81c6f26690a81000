"""Splits texts into sentences and words with TensorFlow Text.

The function is graph code. `resolve` calls it eagerly, and a SavedModel contains the
same code. Texts are split by patterns, which cannot look ahead, and by a sentence
breaker that knows no abbreviations. Before that, some characters are replaced with
others of the same number of bytes. The positions of words and sentences stay the
same.

B = texts, C = characters of all texts, W = words of all texts, S = sentences.
"""

import collections
import re

from keras_spanbert.optional import require

Sentences = collections.namedtuple(
    "Sentences",
    [
        "words",  # ragged string [B, (words)]
        "starts",  # ragged int32 [B, (words)], characters within the text
        "ends",  # ragged int32 [B, (words)], exclusive
        "sizes",  # ragged int32 [B, (sentences)], words of each sentence
    ],
)

# Abbreviations before names, numbers or words. A full stop after them rarely ends a sentence.
_TITLES = (
    "Mr|Mrs|Ms|Dr|Drs|Prof|Rev|Hon|St|Ste|Messrs|MM|Mme|Mdme|Mlle|Gen|Col|Capt|Cpt|Cmdr|Lieut|Lt|"
    "Sgt|Sergt|Maj|Gov|Sen|Rep|Pres|Adm|Supt|Mt|Ft|vs|viz|cf|Vol|Vols|vol|vols|Fig|Figs|fig|figs|"
    "pp|Nos|[Ee]x?g|[Ii]xe"
)
# Other abbreviations. A full stop after them does not end a sentence before a lower-case word.
_ABBREVIATIONS = (
    r"\p{Ll}|etc|Jr|Sr|Esq|Inc|Ltd|Corp|Co|Bros|Ave|Rd|Blvd|approx|dept|est|"
    "Jan|Feb|Apr|Aug|Sept|Sep|Oct|Nov|Dec"
)
_CONTRACTIONS = "(?i:s|m|d|ll|re|ve)"
_CLOSING = {"'": ")", '"': ")", "»": "))", "’": ")))", "”": ")))"}
_QUOTES = "[" + re.escape("".join(_CLOSING)) + r")\]]"

# Masks, in order. A letter replaces a character within a word, \x02 one that begins a word.
_IN_WORDS = [
    (r"[\x00-\x08\x0b-\x1f\x7f]", " "),
    # Numbers, and dots without a space after them: 3.5, p.m, example.com.
    (r"(\pN)[,:](\pN)", r"\1x\2"),
    (r"\.([\p{Ll}\pN])", r"x\1"),
    # Initials.
    *[(r"(^|[^\pL\pN]|\p{Lu}x)([A-HJ-ZÀ-ÖØ-Þ])\.", r"\1\2x")] * 2,
    (r"(^|[^\pL\pN])(I)\.(\p{Lu})", r"\1\2x\3"),
    (rf"(^|[^\pL\pN])({_TITLES})\.", r"\1\2x"),
    (rf"(^|[^\pL\pN])((?:\p{{Ll}}x)*(?:{_ABBREVIATIONS}))\.(,|\s+\p{{Ll}})", r"\1\2x\3"),
    # As in the Penn Treebank: do n't, Ann 's, they 'll.
    (r"(\pL)([nN])'([tT])\b", "\\1\x02'\\3"),
    (r"(\pL)([nN])’([tT])\b", "\\1\x02'''\\3"),
    (rf"(\pL)'({_CONTRACTIONS})\b", "\\1\x02\\2"),
    (rf"(\pL)’({_CONTRACTIONS})\b", "\\1\x02''\\2"),
    # o'clock, to-morrow. Twice, because a match consumes the letter before.
    *[(r"(\pL)'(\pL)", r"\1x\2"), (r"(\pL)’(\pL)", r"\1xxx\2")] * 2,
    *[(r"([\pL\pN])-([\pL\pN])", r"\1x\2")] * 2,
]
_IN_SENTENCES = [
    (r"\. \. \.", "x x x"),
    # "Go!" she said. Three times, for "Go!!!"
    *[(rf"[!?](x*{_QUOTES}*\s+\p{{Ll}})", r"x\1")] * 3,
    (rf"(?:\.\.\.|…)({_QUOTES}*\s+\p{{Ll}})", r"xxx\1"),
    (rf"\.({_QUOTES}+\s+\p{{Ll}})", r"x\1"),
    # The breaker puts quotes into the next sentence, but keeps brackets in the last one.
    *[(rf"([.!?…)]){quote}", rf"\1{mask}") for quote, mask in _CLOSING.items()] * 2,
]
_EMOJI = r"\p{So}(?:[\x{fe0f}\p{Sk}]|\x{200d}\p{So})*"
_WORDS = rf"\x02'*\pL+|\.\.+|--+|\p{{Han}}|{_EMOJI}|[\pP\pS]"
_SPACES = r"[\s\pZ]+"
_BLANK_LINE = r"\n[\s\pZ]*\n"


def split(texts) -> Sentences:
    r"""Splits texts into sentences and words.

    A sentence ends at a blank line, or after `.`, `!`, `?` or a similar character and
    the closing quotes and brackets that follow it. Words are separated by spaces and
    punctuation, and can contain hyphens and apostrophes. Contractions are split as in
    the Penn Treebank. Each Chinese character is a word.

    Args:
        texts: string tensor `[B]`, valid UTF-8.

    Returns:
        `Sentences`. Each word is the slice of its text from its start to its end.

    Raises:
        ImportError: if TensorFlow or TensorFlow Text is not installed.
    """
    tf = require("tensorflow", "Splitting texts into words")
    import tensorflow_text as tf_text

    def mask_with(masks, texts):
        for pattern, mask in masks:
            texts = tf.strings.regex_replace(texts, pattern, mask)
        return texts

    texts = tf.convert_to_tensor(texts, tf.string)
    masked = mask_with(_IN_WORDS, texts)
    spaces_or_words = f"{_SPACES}|{_WORDS}"
    _, starts, ends = tf_text.regex_split_with_offsets(masked, spaces_or_words, _WORDS)
    breaker = tf_text.StateBasedSentenceBreaker()
    _, sentence_starts, _ = breaker.break_sentences_with_offsets(mask_with(_IN_SENTENCES, masked))
    _, paragraph_starts, _ = tf_text.regex_split_with_offsets(masked, _BLANK_LINE)

    # === The bytes of all texts in a row ===
    row = tf.strings.reduce_join(texts)
    before_text = tf.cumsum(tf.strings.length(texts), exclusive=True)  # [B]

    def in_a_row(places):
        return tf.cast(places.values, tf.int32) + tf.gather(before_text, places.value_rowids())

    begins, stops = in_a_row(starts), in_a_row(ends)  # [W]

    # === Sentences ===
    text_of_word = starts.value_rowids()
    parts = [tf.cast(text_of_word, tf.int32)] + [
        tf.searchsorted(in_a_row(places), begins, "right")
        for places in (sentence_starts, paragraph_starts)
    ]
    is_new = tf.reduce_any([part[1:] != part[:-1] for part in parts], axis=0)
    is_first = tf.concat([tf.ones_like(begins[:1], tf.bool), is_new], axis=0)
    first_words = tf.where(is_first)[:, 0]  # [S]
    stop_words = tf.concat([first_words[1:], [tf.size(begins, tf.int64)]], axis=0)
    sizes = tf.RaggedTensor.from_value_rowids(
        tf.cast(stop_words[: tf.size(first_words)] - first_words, tf.int32),
        tf.gather(text_of_word, first_words),
        tf.size(texts, tf.int64),
        validate=False,
    )

    # === From bytes to characters ===
    is_first_byte = tf.bitwise.bitwise_and(tf.io.decode_raw(row, tf.uint8), 0xC0) != 0x80
    num_before = tf.cumsum(tf.cast(is_first_byte, tf.int32))
    num_before = tf.concat([[0], num_before], axis=0)  # Characters before each byte.
    shift = tf.gather(num_before, tf.gather(before_text, text_of_word))
    words = tf.gather(tf.strings.bytes_split(row), tf.ragged.range(begins, stops))
    return Sentences(
        starts.with_values(tf.strings.reduce_join(words, axis=-1)),
        *(x.with_values(tf.gather(num_before, in_a_row(x)) - shift) for x in (starts, ends)),
        sizes,
    )
