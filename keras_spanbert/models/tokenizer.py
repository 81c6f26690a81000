"""The WordPiece tokenizer of the released SpanBERT."""

import logging

import keras
import keras_hub
import numpy as np
import tokenizers

from keras_spanbert import stores
from keras_spanbert.models.backbone import SpanBertBackbone
from keras_spanbert.models.from_preset import FromPreset
from keras_spanbert.models.strings import decode, well_formed

# The reference maps words of more than 100 characters to [UNK].
MAX_WORD_CHARACTERS = 100
# What the reference drops from the text: control and format characters other
# than tab and line ends, private-use characters, the replacement character.
_DROPPED = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x{9f}\p{Cf}\p{Co}\x{fffd}]"
_LONG_WORD = rf"[0-9A-Za-z]{{{MAX_WORD_CHARACTERS + 1},}}"
# A noncharacter: in no vocabulary, hence [UNK], with the word around it.
UNKNOWN_CHARACTER = "\U0010ffff"


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertTokenizer(FromPreset, keras_hub.models.BertTokenizer):
    """Cased WordPiece, with the ids of the reference implementation.

    A `keras_hub.models.BertTokenizer` that differs where that one strays from
    the reference (Unicode spaces, control characters, `lowercase` that leaves
    accents) and is faster. Graph code (`tf.data`) runs
    `tensorflow_text.FastWordpieceTokenizer`; eager calls run the `tokenizers`
    library, which needs no TensorFlow. Both give the same ids, but for non-ASCII
    words of over 100 characters, which only the latter maps to [UNK] as the
    reference does, and for punctuation that Unicode added or reclassified lately.
    What is no character, a lone surrogate or a byte that is not UTF-8, counts as
    the replacement character U+FFFD, which the reference drops.

    Args:
        vocabulary: list of strings, or path of a text file with one token a
            line. Must hold `[PAD]`, `[UNK]`, `[CLS]`, `[SEP]` and `[MASK]`.
        lowercase: bool. Whether to lower-case the text and strip its accents,
            as uncased BERT does. Defaults to `False`: SpanBERT is cased.
        special_tokens_in_strings: bool. Whether the text `"[MASK]"` stands for
            the mask token, and likewise for the other special tokens. Leave it
            `False` for text from strangers. Defaults to `False`.
        **kwargs: see `keras_hub.models.BertTokenizer`.

    Raises:
        ValueError: where the vocabulary lacks a special token or has a token
            twice.

    Call shapes:
        A string gives int32 `[tokens]`. A list of strings gives a list of
        lists in eager code and a ragged tensor in `tf.data`.

    Example:
    ```python
    tokenizer = keras_spanbert.SpanBertTokenizer(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Span", "##BERT"]
    )
    tokenizer("SpanBERT")  # [5, 6]
    ```

    Reference:
        [Devlin et al. 2019](https://arxiv.org/abs/1810.04805);
        [Joshi et al. 2020](https://arxiv.org/abs/1907.10529), appendix A.
    """

    backbone_cls = SpanBertBackbone

    def __init__(self, vocabulary=None, lowercase: bool = False, **kwargs):
        self._reference = None
        self._splitting_wordpiece = None
        self._traced = None
        super().__init__(
            vocabulary=vocabulary,
            lowercase=lowercase,
            **{**kwargs, "strip_accents": lowercase},
        )
        # On JAX, a model with a layer that is not built computes its first batch twice, and op
        # by op, to build it.
        self.built = True

    @classmethod
    def from_checkpoint(cls, checkpoint, **kwargs):
        """The tokenizer of a `formats.Checkpoint`: see `from_preset`."""
        kwargs = {
            "vocabulary": checkpoint.vocabulary,
            "lowercase": checkpoint.lowercase,
            **kwargs,
        }
        if kwargs["vocabulary"] is None:
            raise ValueError(
                f"{checkpoint.source} must hold vocab.txt or tokenizer.json, or `vocabulary` must "
                "name one. Received: neither"
            )
        for note in checkpoint.notes:
            if note.startswith("Warning: "):
                text = note.removeprefix("Warning: ")
                logging.getLogger("keras_spanbert").warning("%s: %s", checkpoint.source, text)
        try:
            return cls(**kwargs)
        except ValueError as error:
            raise ValueError(f"{checkpoint.source}: {error}") from None

    def set_vocabulary(self, vocabulary):
        self._reference = None
        self._splitting_wordpiece = None
        self._traced = None
        try:
            super().set_vocabulary(stores.local_copy(vocabulary))
        except UnicodeDecodeError as error:
            raise ValueError(f"{vocabulary} must be UTF-8. Received: {error}") from None
        except Exception:
            # Of TensorFlow's table, which names no token that stands twice or is no text.
            _check_tokens(getattr(self, "vocabulary", None) or [])
            raise
        _check_tokens(self.vocabulary or [])

    def tokenize(self, inputs):
        self.get_vocabulary()  # Says so where there is none.
        if not _in_graph():
            return self._tokenize_eagerly(_to_python(inputs))
        import tensorflow as tf

        return self._tokenize_in_graph(tf.strings.unicode_transcode(inputs, "UTF-8", "UTF-8"))

    def _tokenize_in_graph(self, inputs):
        import tensorflow as tf

        if self.special_tokens_in_strings:
            return super().tokenize(inputs)
        if inputs.shape.rank == 0:  # FastWordpieceTokenizer takes no scalars.
            tokens = self._tokenize_in_graph(inputs[None])
            return tokens[0] if self.sequence_length else tokens.values
        text = tf.strings.regex_replace(self.normalize(inputs), _LONG_WORD, UNKNOWN_CHARACTER)
        tokens = self.fast_wordpiece.tokenize(text)
        if not self.sequence_length:
            return tokens
        return tokens.to_tensor(shape=[*tokens.shape[:-1], self.sequence_length])

    @property
    def traced(self):
        """`tokenize` of strings `[B]`, valid UTF-8, as a `tf.function`, traced once for any B."""
        import tensorflow as tf

        if self._traced is None:
            self._traced = tf.function(
                self._tokenize_in_graph, input_signature=[tf.TensorSpec([None], tf.string)]
            )
        return self._traced

    def normalize(self, texts):
        """What graph code takes words from: without control characters, lower-cased if so set.

        TensorFlow Text's own normalisation strays from the reference's.

        Args:
            texts: string tensor.

        Returns:
            String tensor of its shape.
        """
        import tensorflow as tf

        texts = tf.strings.regex_replace(texts, _DROPPED, "")
        if self.lowercase:
            import tensorflow_text as tf_text

            texts = tf_text.normalize_utf8(texts, "NFD")
            texts = tf.strings.regex_replace(texts, r"\p{Mn}", "")
            # TensorFlow would make it a final sigma by its place in the word.
            texts = tf.strings.regex_replace(texts, "Σ", "σ")
            texts = tf.strings.lower(texts, encoding="utf-8")
        return texts

    @property
    def fast_wordpiece(self):
        """The `tensorflow_text.FastWordpieceTokenizer`, which takes normalised texts."""
        if self._splitting_wordpiece is None:
            import tensorflow as tf
            import tensorflow_text as tf_text

            # Outside of the graph that may be traced now: it serves others too.
            with tf.init_scope(), tf.device("cpu"):
                self._splitting_wordpiece = tf_text.FastWordpieceTokenizer(
                    self.get_vocabulary(),
                    suffix_indicator=self.suffix_indicator,
                    # UTF-8 has up to 4 bytes a character.
                    max_bytes_per_word=4 * MAX_WORD_CHARACTERS,
                    token_out_type=self.compute_dtype,
                    unknown_token=self.oov_token,
                )
        return self._splitting_wordpiece

    def tokenize_batch(self, texts: list[str], with_offsets: bool = False):
        """Tokenises many strings eagerly, on all cores.

        Args:
            texts: list of strings.
            with_offsets: bool. Whether to return where each token is in its
                string. Defaults to `False`.

        Returns:
            For each string an int32 array `[tokens]`; with offsets a tuple of
            that and, for each string, an int32 array `[tokens, 2]` with the
            first character of each token and the one past its last.
        """
        reference = self._get_reference()
        encode = reference.encode_batch if with_offsets else reference.encode_batch_fast
        encodings = encode([well_formed(text) for text in texts], add_special_tokens=False)
        token_ids = [np.array(encoding.ids, np.int32) for encoding in encodings]
        if not with_offsets:
            return token_ids
        offsets = [np.array(encoding.offsets, np.int32).reshape(-1, 2) for encoding in encodings]
        return token_ids, offsets

    def _get_reference(self):
        if self._reference is None:
            self._reference = self._build_reference()
        return self._reference

    def _tokenize_eagerly(self, texts):
        if not isinstance(texts, str):
            return [self._tokenize_eagerly(text) for text in texts]
        encoding = self._get_reference().encode(texts, add_special_tokens=False)
        is_text = self.compute_dtype == "string"
        tokens = encoding.tokens if is_text else encoding.ids
        if self.sequence_length:
            padding = ["" if is_text else 0] * (self.sequence_length - len(tokens))
            tokens = tokens[: self.sequence_length] + padding
        return tokens if is_text else np.array(tokens, self.compute_dtype)

    def _build_reference(self):
        reference = tokenizers.Tokenizer(
            tokenizers.models.WordPiece(
                {token: i for i, token in enumerate(self.get_vocabulary())},
                unk_token=self.oov_token,
                max_input_chars_per_word=MAX_WORD_CHARACTERS,
                continuing_subword_prefix=self.suffix_indicator,
            )
        )
        reference.normalizer = tokenizers.normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=True,
            strip_accents=self.lowercase,
            lowercase=self.lowercase,
        )
        reference.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
        if self.special_tokens_in_strings:
            reference.add_special_tokens(sorted(self.special_tokens))
        return reference

    def get_config(self):
        config = super().get_config()
        del config["strip_accents"]  # Follows `lowercase`.
        return config


def _check_tokens(vocabulary):
    first_lines = {}
    for line, token in enumerate(vocabulary, start=1):
        if not isinstance(token, str) or well_formed(token) != token:
            raise ValueError(
                "A token of the vocabulary must be a string without lone surrogates. Received: "
                f"{token!r} on line {line}"
            )
        if first_lines.setdefault(token, line) != line:
            raise ValueError(
                "A token may stand in the vocabulary only once. Received: "
                f"{token!r} on line {first_lines[token]} and again on line {line}"
            )


def _in_graph():
    try:
        import tensorflow as tf
    except ImportError:
        return False
    return not tf.executing_eagerly()


def _to_python(texts):
    """Strings in any container as a string or (nested) lists of strings."""
    if isinstance(texts, bytes):
        return decode(texts)
    if isinstance(texts, str):
        return well_formed(texts)
    if hasattr(texts, "__array__") or hasattr(texts, "to_list"):
        texts = texts.to_list() if hasattr(texts, "to_list") else np.asarray(texts).tolist()
        return _to_python(texts)
    if isinstance(texts, (list, tuple)):
        return [_to_python(text) for text in texts]
    raise ValueError(f"Text must be a string or a list of strings. Received: {texts!r}")
