"""Splits texts into sentences and words, by patterns in the syntax of RE2 and of `regex`.

The patterns cannot look ahead, so some characters are first replaced with others of the same number
of bytes, and positions stay the same. B = texts, W = words of all texts, S = sentences.
"""

from typing import Any, NamedTuple

import numpy as np
import regex

from keras_spanbert.optional import tf, tf_text


class Sentences(NamedTuple):
    """The words of a text. Graph code has ragged tensors `[B, (...)]` of several texts."""

    words: Any  # strings
    starts: Any  # int32, characters within the text
    ends: Any  # int32, exclusive
    sizes: Any  # int32, words of each sentence


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
# Code points with Unicode's property Sentence_Terminal. Some scripts, such as Thai, have none.
SENTENCE_TERMINALS = (
    "21 2e 3f 589 61d-61f 6d4 700-702 7f9 837 839 83d-83e 964-965 104a-104b 1362 1367-1368 166e "
    "1735-1736 17d4-17d5 1803 1809 1944-1945 1aa8-1aab 1b4e-1b4f 1b5a-1b5b 1b5e-1b5f 1b7d-1b7f "
    "1c3b-1c3c 1c7e-1c7f 2024 203c-203d 2047-2049 2cf9-2cfb 2e2e 2e3c 2e53-2e54 2e60-2e61 3002 "
    "a4ff a60e-a60f a6f3 a6f7 a876-a877 a8ce-a8cf a92f a9c8-a9c9 aa5d-aa5f aaf0-aaf1 abeb fe12 "
    "fe15-fe16 fe52 fe56-fe57 ff01 ff0e ff1f ff61 10a56-10a57 10f55-10f59 10f86-10f89 11047-11048 "
    "110be-110c1 11141-11143 111c5-111c6 111cd 111de-111df 11238-11239 1123b-1123c 112a9 "
    "113d4-113d5 1144b-1144c 115c2-115c3 115c9-115d7 11641-11642 1173c-1173e 11944 11946 "
    "11a42-11a43 11a9b-11a9c 11c41-11c42 11ef7-11ef8 11f43-11f44 16a6e-16a6f 16af5 16b37-16b38 "
    "16b44 16d6e-16d6f 16e98 1bc9f 1da88"
)
_RANGES = (
    "-".join(chr(int(code, 16)) for code in codes.split("-"))
    for codes in SENTENCE_TERMINALS.split()
)
# Also the Greek question mark.
_STOP = f"[…\u037e{''.join(_RANGES)}]"
_QUOTES = r"""['"»’”)\]]"""
# Control characters are masked first. `\s` matches other characters in RE2 than in `regex`.
_SPACE = r"[ \t\n]"
_WORD_END = "([^0-9A-Za-z_]|$)"

# Masks, in order. A letter replaces a character within a word, \x02 one that begins a word.
_IN_WORDS = [
    (r"[\x00-\x08\x0b-\x1f\x7f]", " "),
    # Numbers, and dots without a space after them: 3.5, p.m, example.com.
    (r"(\pN)[,:](\pN)", r"\1x\2"),
    (r"\.([\p{Ll}\pN])", r"x\1"),
    (r"．(\pN)", r"xxx\1"),
    # Initials.
    *[(r"(^|[^\pL\pN]|\p{Lu}x)([A-HJ-ZÀ-ÖØ-Þ])\.", r"\1\2x")] * 2,
    (r"(^|[^\pL\pN])(I)\.(\p{Lu})", r"\1\2x\3"),
    (rf"(^|[^\pL\pN])({_TITLES})\.", r"\1\2x"),
    (rf"(^|[^\pL\pN])((?:\p{{Ll}}x)*(?:{_ABBREVIATIONS}))\.(,|{_SPACE}+\p{{Ll}})", r"\1\2x\3"),
    # As in the Penn Treebank: do n't, Ann 's, they 'll.
    (rf"(\pL)([nN])'([tT]){_WORD_END}", "\\1\x02'\\3\\4"),
    (rf"(\pL)([nN])’([tT]){_WORD_END}", "\\1\x02'''\\3\\4"),
    (rf"(\pL)'({_CONTRACTIONS}){_WORD_END}", "\\1\x02\\2\\3"),
    (rf"(\pL)’({_CONTRACTIONS}){_WORD_END}", "\\1\x02''\\2\\3"),
    # o'clock, to-morrow. Twice, because a match consumes the letter before.
    *[(r"(\pL)'(\pL)", r"\1x\2"), (r"(\pL)’(\pL)", r"\1xxx\2")] * 2,
    *[(r"([\pL\pN])-([\pL\pN])", r"\1x\2")] * 2,
]
_IN_SENTENCES = [
    (r"\. \. \.", "x x x"),
    # A Greek semicolon is a question mark. Armenian question marks can be within a word.
    (r"(\p{Greek});", r"\1?"),
    (rf"[՜՞]({_QUOTES}*{_SPACE}+\p{{Lu}})", r"x?\1"),
    (rf"[:;](-?)[()D]({_SPACE}+\p{{Lu}})", r"x\1.\2"),  # A smiley.
    # This quotation mark closes in German, and opens in English and Chinese.
    (rf"({_STOP})“({_SPACE}|$)", r"\1)))\2"),
    # "Go!" she said. Three times, for "Go!!!"
    *[(rf"[!?](x*{_QUOTES}*{_SPACE}+\p{{Ll}})", r"x\1")] * 3,
    (rf"(?:\.\.\.|…)({_QUOTES}*{_SPACE}+\p{{Ll}})", r"xxx\1"),
    (rf"\.({_QUOTES}+{_SPACE}+\p{{Ll}})", r"x\1"),
]
_EMOJI = "\\p{So}(?:[\ufe0f\\p{Sk}]|\u200d\\p{So})*"
_WORDS = rf"\x02'*\pL+|\.\.+|--+|\p{{Han}}|{_EMOJI}|[\pP\pS]"
_SPACES_OR_WORDS = rf"[\t\n\pZ]+|{_WORDS}"
# Blank lines, and sentence-ending punctuation with the quotes and brackets that follow it.
_SENTENCE_ENDS = (r"\n[\t\n\pZ]*\n", rf"{_STOP}(?:{_STOP}|[>'\"»’”\p{{Pe}}])*")


def split_text(text: str) -> Sentences:
    """Splits a text without lone surrogates into `Sentences` of lists of words, slices of the text.

    A sentence ends at a blank line, or after `.`, `!`, `?` or the like in another script, and the
    closing quotes and brackets that follow it. Contractions are split as in the Penn Treebank. Each
    Chinese character is a word.
    """
    masked = text
    for pattern, mask in _IN_WORDS:
        masked = regex.sub(pattern, mask, masked)
    in_sentences = masked
    for pattern, mask in _IN_SENTENCES:
        in_sentences = regex.sub(pattern, mask, in_sentences)
    places, at = [], 0
    for match in regex.finditer(_SPACES_OR_WORDS, masked):
        places.append((at, match.start()))
        if regex.fullmatch(_WORDS, match.group()):
            places.append(match.span())
        at = match.end()
    places.append((at, len(masked)))
    places = np.array([place for place in places if place[0] < place[1]], np.int64).reshape(-1, 2)
    ends = sorted(
        match.end() for pattern in _SENTENCE_ENDS for match in regex.finditer(pattern, in_sentences)
    )

    # === From masked characters to bytes to characters ===
    # The first byte of each character, and of the end.
    data = [np.frombuffer(f"{x} ".encode(), np.uint8) for x in (text, masked, in_sentences)]
    of_text, of_masked, of_sentences = (np.flatnonzero((x & 0xC0) != 0x80) for x in data)
    places, ends = of_masked[places], of_sentences[np.array(ends, np.int64)]
    sentence_of = np.searchsorted(ends, places[:, 0], "right")
    _, sizes = np.unique(sentence_of, return_counts=True)
    starts, ends = np.searchsorted(of_text, places.T).tolist()
    words = [text[start:end] for start, end in zip(starts, ends)]
    return Sentences(words, starts, ends, sizes.tolist())


def split(texts) -> Sentences:
    """Splits texts, a string tensor `[B]` of valid UTF-8, into ragged tensors, like `split_text`.

    Characters that are newer than RE2's Unicode tables can be split differently.
    """

    def mask_with(masks, texts):
        for pattern, mask in masks:
            texts = tf.strings.regex_replace(texts, pattern, mask)
        return texts

    masked = mask_with(_IN_WORDS, texts)
    _, starts, ends = tf_text.regex_split_with_offsets(masked, _SPACES_OR_WORDS, _WORDS)
    in_sentences = mask_with(_IN_SENTENCES, masked)
    part_starts = [
        tf_text.regex_split_with_offsets(in_sentences, pattern)[1] for pattern in _SENTENCE_ENDS
    ]

    # === The bytes of all texts in a row ===
    row = tf.strings.reduce_join(texts)
    before_text = tf.cumsum(tf.strings.length(texts), exclusive=True)  # [B]

    def in_a_row(places):
        return tf.cast(places.values, tf.int32) + tf.gather(before_text, places.value_rowids())

    begins, stops = in_a_row(starts), in_a_row(ends)  # [W]

    # === Sentences ===
    text_of_word = starts.value_rowids()
    parts = [tf.cast(text_of_word, tf.int32)] + [
        tf.searchsorted(in_a_row(places), begins, "right") for places in part_starts
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
