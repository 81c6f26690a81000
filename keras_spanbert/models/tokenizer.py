"""The WordPiece tokenizer of the released SpanBERT."""

import functools
import os
from collections.abc import Iterable

import keras
import keras_hub
import numpy as np
import tokenizers

from keras_spanbert.checks import accepts_datasets, check_counts, check_flags, check_in, to_python
from keras_spanbert.formats.vocabulary import read_tokenizer_file
from keras_spanbert.keras_private import is_loading_safely
from keras_spanbert.layers.array_functions import in_graph
from keras_spanbert.models.backbone import SpanBertBackbone
from keras_spanbert.models.source import FromPreset
from keras_spanbert.optional import tf, tf_text
from keras_spanbert.text.normalization import (
    MAX_WORD_CHARACTERS,
    graph_normalizer,
    reference_normalizer,
)
from keras_spanbert.text.strings import replace_surrogates


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertTokenizer(FromPreset, keras_hub.models.BertTokenizer):
    """Cased WordPiece tokenizer with the ids of the reference implementation.

    Unlike `keras_hub.models.BertTokenizer`, it treats Unicode spaces, control characters and, with
    `lowercase`, accents as the reference does, and it is faster. Eager calls run the `tokenizers`
    library, which needs no TensorFlow. Graph code (`tf.data`) runs
    `tensorflow_text.FastWordpieceTokenizer`. Both give the ids and offsets of the reference for
    every character and for words of any length, with one exception: with `lowercase`, the reference
    sorts consecutive combining marks into Unicode's canonical order, and graph code leaves them in
    the order of the text. This can change the ids and offsets of marks that `lowercase` keeps:
    spacing marks, and marks newer than Unicode 8.

    A lone surrogate or a byte that is not UTF-8 is treated as the replacement
    character U+FFFD, which the reference drops.

    Args:
        vocabulary: list of strings, or path of a text file with one token per line, or of a
            `tokenizer.json` of the `tokenizers` library with a WordPiece model, whose added tokens
            are read too. It must contain `[PAD]`, `[UNK]`, `[CLS]`, `[SEP]` and `[MASK]`.
        lowercase: bool. Whether to lower-case the text and strip its accents,
            as uncased BERT does. Defaults to `False`: SpanBERT is cased.
        special_tokens_in_strings: bool. Whether special tokens in the text, such as `"[MASK]"`,
            become the tokens of that name. Keep it `False` for untrusted text. Defaults to `False`.
        added_tokens: dict of string to bool. Tokens of the vocabulary that are found anywhere in a
            text, even inside a word or with punctuation in the token, as `transformers` finds
            tokens that were added to a vocabulary. `True`: the text must contain the token exactly.
            `False`: text and token are normalized first, which makes a difference with `lowercase`.
            (Graph code then ignores case, but not accents.) Defaults to `None`: none.
        **kwargs: see `keras_hub.models.BertTokenizer`.

    Raises:
        ValueError: if the vocabulary lacks a special or added token, or contains a
            token twice, or a `tokenizer.json` has another model or other lower-casing.

    Call shapes:
        A string becomes int32 `[tokens]`. Strings `[N]` become a list of N lists of
        ids in eager code, and a ragged tensor in `tf.data`. With `sequence_length`
        L, they become int32 `[N, L]`, cut or padded with 0.

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

    def __init__(
        self,
        vocabulary=None,
        lowercase: bool = False,
        added_tokens: dict[str, bool] | None = None,
        **kwargs,
    ):
        check_flags(
            lowercase=lowercase,
            special_tokens_in_strings=kwargs.get("special_tokens_in_strings", False),
        )
        if kwargs.get("sequence_length") is not None:
            check_counts(sequence_length=kwargs["sequence_length"])
        is_right = isinstance(added_tokens, dict | None) and all(
            isinstance(token, str) and isinstance(exact, bool)
            for token, exact in (added_tokens or {}).items()
        )
        check_in("added_tokens", added_tokens, is_right, "a dict of strings and bools, or None")
        self.added_tokens = dict(added_tokens or {})  # Read when the vocabulary is set.
        super().__init__(
            vocabulary=vocabulary, lowercase=lowercase, **{**kwargs, "strip_accents": lowercase}
        )
        # With an unbuilt layer, Keras on JAX would compute the first batch an extra time, op by op,
        # to build the model.
        self.built = True

    @classmethod
    def from_source(cls, source, **kwargs):
        """Builds the tokenizer of a `Preset` or `Checkpoint`: see `from_preset`."""
        return source.tokenizer(cls, **kwargs)

    def set_vocabulary(self, vocabulary):
        for name in ["reference", "normalizer", "fast_wordpiece", "traced"]:
            self.__dict__.pop(name, None)  # Computed from the old vocabulary.
        if isinstance(vocabulary, (str, os.PathLike)):
            vocabulary = os.fspath(vocabulary)
            if not is_loading_safely():  # Otherwise keras-hub refuses to read a file.
                vocabulary, added = read_tokenizer_file(vocabulary, self.lowercase)
                self.added_tokens = {**added, **self.added_tokens}
        elif isinstance(vocabulary, Iterable):
            vocabulary = list(vocabulary)
        if isinstance(vocabulary, list):
            # TensorFlow's error does not name the token that is repeated or is not a string.
            _check_tokens(vocabulary)
        super().set_vocabulary(vocabulary)
        lacking = set(self.added_tokens) - set(self.vocabulary or self.added_tokens)
        check_in("added_tokens", sorted(lacking)[:5], not lacking, "in the vocabulary")

    @accepts_datasets
    def tokenize(self, inputs):
        self.get_vocabulary()  # Raises an error if there is no vocabulary.
        if not in_graph():
            return self._tokenize_eagerly(to_python(inputs))
        texts = tf.identity(inputs)
        is_single = texts.shape.rank == 0
        texts = tf.ragged.map_flat_values(self.normalizer, texts[None] if is_single else texts)
        tokens = self.fast_wordpiece.tokenize(texts)
        if self.compute_dtype == "string":
            tokens = tf.ragged.map_flat_values(tf.gather, self.get_vocabulary(), tokens)
        if self.sequence_length:
            tokens = tokens.to_tensor(shape=[*tokens.shape[:-1], self.sequence_length])
        return tokens[0] if is_single else tokens

    @functools.cached_property
    def traced(self):
        """A `tf.function` of strings `[B]` to a ragged tensor of tokens, traced once for any B.

        As in `tokenize_batch`, `sequence_length` is not used.
        """
        return tf.function(
            lambda texts: self.fast_wordpiece.tokenize(self.normalizer(texts)),
            input_signature=[tf.TensorSpec([None], tf.string)],
        )

    @functools.cached_property
    def normalizer(self):
        """The `GraphNormalizer` for texts that `fast_wordpiece` takes."""
        return graph_normalizer(self.lowercase, tuple(self._found_tokens().items()))

    def _found_tokens(self):
        """Returns the tokens that are found anywhere in a text: see `added_tokens`."""
        special_tokens = sorted(self.special_tokens) if self.special_tokens_in_strings else []
        return {**dict.fromkeys(special_tokens, True), **self.added_tokens}

    @functools.cached_property
    def fast_wordpiece(self):
        """The `tensorflow_text.FastWordpieceTokenizer`, which takes normalized texts."""
        *vocabulary, unknown_token = self.normalizer.vocabulary(
            [*self.get_vocabulary(), self.oov_token]
        )
        is_text = self.compute_dtype == "string"
        # Created outside of the graph that may be traced now, because other graphs use it too.
        with tf.init_scope(), tf.device("cpu"):
            return tf_text.FastWordpieceTokenizer(
                vocabulary,
                suffix_indicator=self.suffix_indicator,
                # A character has up to 4 bytes in UTF-8.
                max_bytes_per_word=4 * MAX_WORD_CHARACTERS,
                token_out_type="int32" if is_text else self.compute_dtype,
                unknown_token=unknown_token,
            )

    def tokenize_batch(self, texts: list[str], with_offsets: bool = False):
        """Tokenizes many strings eagerly, on all cores.

        Args:
            texts: list of strings.
            with_offsets: bool. Whether to return the offsets of the tokens. Defaults to `False`.

        Returns:
            List with an int32 array `[tokens]` for each string. With offsets, a tuple of this list
            and a list with an int32 array `[tokens, 2]` for each string: the index of each token's
            first character and the index after its last.
        """
        encode = self.reference.encode_batch if with_offsets else self.reference.encode_batch_fast
        encodings = encode([replace_surrogates(text) for text in texts], add_special_tokens=False)
        token_ids = [np.array(encoding.ids, np.int32) for encoding in encodings]
        if not with_offsets:
            return token_ids
        offsets = [np.array(encoding.offsets, np.int32).reshape(-1, 2) for encoding in encodings]
        return token_ids, offsets

    def _tokenize_eagerly(self, texts):
        is_text = self.compute_dtype == "string"
        if isinstance(texts, list):
            rows = [self._tokenize_eagerly(text) for text in texts]
            if not self.sequence_length or is_text:
                return [row.tolist() if isinstance(row, np.ndarray) else row for row in rows]
            try:
                return np.array(rows or np.zeros([0, self.sequence_length]), self.compute_dtype)
            except ValueError:  # Lists of different numbers of texts.
                return rows
        if not isinstance(texts, str):
            raise ValueError(f"Text must be a string or a list of strings. Received: {texts!r}")
        encoding = self.reference.encode(replace_surrogates(texts), add_special_tokens=False)
        tokens = encoding.tokens if is_text else encoding.ids
        if self.sequence_length:
            padding = ["" if is_text else 0] * (self.sequence_length - len(tokens))
            tokens = tokens[: self.sequence_length] + padding
        return tokens if is_text else np.array(tokens, self.compute_dtype)

    @functools.cached_property
    def reference(self):
        """The `tokenizers.Tokenizer` that eager calls use."""
        reference = tokenizers.Tokenizer(
            tokenizers.models.WordPiece(
                {token: i for i, token in enumerate(self.get_vocabulary())},
                unk_token=self.oov_token,
                max_input_chars_per_word=MAX_WORD_CHARACTERS,
                continuing_subword_prefix=self.suffix_indicator,
            )
        )
        reference.normalizer = reference_normalizer(self.lowercase)
        reference.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
        reference.add_tokens(
            [
                tokenizers.AddedToken(token, normalized=not is_exact)
                for token, is_exact in self._found_tokens().items()
            ]
        )
        return reference

    def get_config(self):
        config = super().get_config()
        del config["strip_accents"]  # Determined by `lowercase`.
        if self.added_tokens:  # Left out if empty, so that older versions can load the preset.
            config["added_tokens"] = dict(self.added_tokens)
        return config


def _check_tokens(vocabulary):
    first_lines = {}
    for line, token in enumerate(vocabulary, start=1):
        if not isinstance(token, str) or replace_surrogates(token) != token:
            raise ValueError(
                "A token of the vocabulary must be a string without lone surrogates. Received: "
                f"{token!r} on line {line}"
            )
        if first_lines.setdefault(token, line) != line:
            raise ValueError(
                "The vocabulary must not contain a token twice. Received: "
                f"{token!r} on line {first_lines[token]} and again on line {line}"
            )
