"""Text normalization of the reference implementation, in graph code."""

import functools
import re
import unicodedata

import numpy as np
import tokenizers

from keras_spanbert.optional import tf, tf_text

# The reference maps words of more than 100 characters to [UNK].
MAX_WORD_CHARACTERS = 100
_NUM_CODE_POINTS = 0x110000
# The reference drops private-use characters, so normalized text contains none. Here they
# replace characters at which TensorFlow Text would split words, and special tokens.
_PRIVATE_USE = [slice(0xE000, 0xF900), slice(0xF0000, 0xFFFFE), slice(0x100000, 0x10FFFE)]
_FIRST_STAND_IN, _FIRST_MARK = 0xF0000, 0x100000
_IN_MARK, _END_OF_MARK = "\U0010fffc", "\U0010fffd"
_SURROGATES = slice(0xD800, 0xE000)
# Both libraries treat each of these characters as a word.
_CHINESE = [*range(0x3400, 0x4DC0), *range(0x4E00, 0xA000), *range(0x20000, 0x2A6E0)]
# The other code points that a library may treat differently from a letter.
_LOOKED_UP = [*range(0x3400), *range(0x4DC0, 0x4E00), *range(0xA000, 0xD800)]
_LOOKED_UP += [*range(0xE000, 0x20000), *range(0x2A6E0, 0x30000), *range(0xE0000, 0xE1000)]
# A noncharacter. It is in no vocabulary, so it becomes [UNK].
UNKNOWN_CHARACTER = "\U0010ffff"
# Matches texts without too long words. Here, non-ASCII punctuation counts as part of words.
_IN_WORD = r"0-9A-Za-z\x{80}-\x{33ff}\x{4dc0}-\x{4dff}\x{a000}-\x{10ffff}"
_SHORT_WORDS = (
    rf"(?:[{_IN_WORD}]{{0,{MAX_WORD_CHARACTERS}}}[^{_IN_WORD}])*"
    rf"[{_IN_WORD}]{{0,{MAX_WORD_CHARACTERS}}}"
)
_LONG_WORD = rf"[^ ]{{{MAX_WORD_CHARACTERS + 1},}}"


def reference_normalizer(lowercase: bool):
    """Returns the normalizer of the reference implementation."""
    return tokenizers.normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=lowercase, lowercase=lowercase
    )


@functools.cache
def graph_normalizer(lowercase: bool, found_tokens: tuple[tuple[str, bool], ...]):
    """Returns the `GraphNormalizer` for these settings. Tokenizers share it."""
    # Created outside of a graph that may be traced at the moment.
    with tf.init_scope(), tf.device("cpu"):
        return GraphNormalizer(lowercase, dict(found_tokens))


class GraphNormalizer:
    """Normalizes texts so that TensorFlow Text finds the words of the reference in them.

    `found_tokens` are strings that are one token wherever they occur in a text: exactly, or in any
    case if the value is `False` and `lowercase` is set.
    """

    # TensorFlow Text and the reference use Unicode tables of different versions. This class runs
    # both on each character and builds a table of the reference's results. In the table, blanks
    # surround a character that is a word of its own, and a stand-in replaces a character at which
    # TensorFlow Text would split a word. Texts that both normalize alike take a faster path.
    def __init__(self, lowercase, found_tokens):
        self.lowercase = lowercase
        self._marks = {
            token: (chr(_FIRST_MARK + i) + _IN_MARK * (len(token) - 2) + _END_OF_MARK)[: len(token)]
            for i, token in enumerate(found_tokens)
        }
        # Exact tokens and longer ones are tried first at each position of a text.
        order = sorted(found_tokens, key=lambda token: (not found_tokens[token], -len(token)))
        self._patterns = {
            ("" if found_tokens[token] or not lowercase else "(?i)") + re.escape(token): token
            for token in order
        }
        forms, self._stand_ins, is_simple = _compare_libraries(lowercase)
        for mark in self._marks.values():
            forms |= {character: character for character in mark}
            forms |= {mark[0]: f" {mark[0]}", mark[-1]: f"{mark[-1]} "}
            if len(mark) == 1:
                forms[mark] = f" {mark} "
        forms = {ord(character): form for character, form in sorted(forms.items())}
        # A regular expression for texts of only these code points.
        edges = np.flatnonzero(np.diff(np.pad(is_simple, 1).astype("int8")))
        ranges = [rf"\x{{{low:x}}}-\x{{{high - 1:x}}}" for low, high in edges.reshape(-1, 2)]
        self._simple_text = f"[{''.join(ranges)}]*"

        changed = np.array(list(forms))
        sizes = np.ones(_NUM_CODE_POINTS, "int32")
        for private_use in _PRIVATE_USE:
            sizes[private_use] = 0
        sizes[changed] = [len(form) for form in forms.values()]
        values = np.repeat(np.arange(_NUM_CODE_POINTS, dtype="int32"), sizes)
        is_changed = np.repeat(np.isin(np.arange(_NUM_CODE_POINTS), changed), sizes)
        values[is_changed] = [ord(character) for character in "".join(forms.values())]
        # The characters that each code point becomes, with blanks between words: ragged int32
        # [code points, (characters)].
        self.forms = tf.RaggedTensor.from_row_lengths(values, sizes, validate=False)

    def vocabulary(self, tokens: list[str]) -> list[str]:
        """Returns the tokens in the form that they have in normalized texts."""
        marks = self._marks | {mark: token for token, mark in self._marks.items()}
        stand_ins = self._stand_ins | {new: old for old, new in self._stand_ins.items()}
        stand_ins = str.maketrans(stand_ins)
        return [marks.get(token, token.translate(stand_ins)) for token in tokens]

    def mark_found_tokens(self, texts):
        """Replaces each special or added token with a mark of the same number of characters."""
        if self._marks:
            # Marks that are already in the text become a character that is dropped.
            texts = tf.strings.regex_replace(texts, r"[\x{100000}-\x{10fffd}]", "\ue000")
        for pattern, token in self._patterns.items():
            texts = tf.strings.regex_replace(texts, pattern, self._marks[token])
        return texts

    def __call__(self, texts):
        """Normalizes a string tensor of any rank but 0."""
        texts = self.mark_found_tokens(texts)
        simple = _lowercase(texts) if self.lowercase else texts
        # Bytes that are not UTF-8 match neither pattern.
        is_simple = tf.strings.regex_full_match(texts, self._simple_text)
        is_simple &= tf.strings.regex_full_match(simple, _SHORT_WORDS)

        def normalize_others():  # Mostly none, and `gather` checks all of the forms' row splits.
            others = tf.where(~is_simple)
            characters = tf.strings.unicode_decode(tf.gather_nd(texts, others), "UTF-8")
            forms = tf.gather(self.forms, characters.values)
            row_splits = tf.gather(forms.row_splits, characters.row_splits)
            rows = tf.RaggedTensor.from_row_splits(forms.values, row_splits, validate=False)
            normalized = tf.strings.unicode_encode(rows, "UTF-8")
            normalized = tf.strings.regex_replace(normalized, _LONG_WORD, UNKNOWN_CHARACTER)
            return tf.tensor_scatter_nd_update(simple, others, normalized)

        return tf.cond(tf.reduce_all(is_simple), lambda: simple, normalize_others)


def _lowercase(texts):
    """Lower-cases texts of characters that TensorFlow's own functions can handle."""
    texts = tf_text.normalize_utf8(texts, "NFD")
    texts = tf.strings.regex_replace(texts, r"\p{Mn}", "")
    # At the end of a word, TensorFlow would make it a final sigma.
    texts = tf.strings.regex_replace(texts, "Σ", "σ")
    return tf.strings.lower(texts, encoding="utf-8")


def _compare_libraries(lowercase):
    """Compares how the reference and TensorFlow normalize each character.

    Returns a dict from characters that change to strings; one from characters to their stand-ins;
    and bool `[code points]`, whether `_lowercase` and TensorFlow Text do as the reference does.
    """
    code_points = [code_point for code_point in _LOOKED_UP if code_point != ord("0")]
    characters = [chr(code_point) for code_point in code_points]
    text = "0".join(characters)  # Separates the results of the characters.

    # === TensorFlow ===
    words = _words(text)
    to_words = {character: " " for character in set(characters) - set("".join(words))}
    to_words |= {word: f" {word} " for word in words if len(word) == 1 and word != "0"}
    # `tf.strings.lower` stops at a NUL character.
    simple = tf.constant(text.replace("\0", ""))
    simple = _lowercase(simple) if lowercase else simple
    simple_forms = simple.numpy().decode().translate(str.maketrans(to_words)).split("0")

    # === The reference ===
    text = reference_normalizer(lowercase).normalize_str(text)
    words = tokenizers.pre_tokenizers.BertPreTokenizer().pre_tokenize_str(text)
    alone = {word for word, _ in words if len(word) == 1} - {"0"}
    split = sorted(set(text) & set(to_words) - alone - {" "})
    stand_ins = {character: chr(_FIRST_STAND_IN + i) for i, character in enumerate(split)}
    to_words = stand_ins | {character: f" {character} " for character in alone}
    text = text.translate(str.maketrans(to_words))
    # The normalizer has already put blanks around some of them.
    forms = text.replace("  ", " ").split("0")

    is_simple = np.ones(_NUM_CODE_POINTS, bool)
    is_simple[code_points] = [a == b for a, b in zip(forms, simple_forms, strict=True)]
    # All texts with marks that remain in lower-cased text use the table, which does not sort
    # them. `_lowercase` would.
    marks = [
        code_point
        for code_point, form in zip(code_points, forms)
        if lowercase and form and unicodedata.combining(chr(code_point))
    ]
    for others in [ord("\0"), _SURROGATES, *_PRIVATE_USE, marks]:
        is_simple[others] = False
    forms = {character: form for character, form in zip(characters, forms) if character != form}
    forms |= {character: f" {character} " for character in map(chr, _CHINESE)}
    return forms, stand_ins, is_simple


def _words(text):
    """Returns the words and punctuation that TensorFlow Text finds in a text."""
    wordpiece = tf_text.FastWordpieceTokenizer(["[UNK]", "0"])
    _, starts, ends = wordpiece.tokenize_with_offsets([text])
    text = text.encode()
    return [text[start:end].decode() for start, end in zip(starts[0].numpy(), ends[0].numpy())]
