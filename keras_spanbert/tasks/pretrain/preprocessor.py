"""Converts strings to masked batches for `SpanBertPretrainer`."""

import functools
import inspect

import keras
import keras_hub
import numpy as np

from keras_spanbert.checks import check_flags, check_length, check_none
from keras_spanbert.layers.next_sentence_pairs import NextSentencePairs
from keras_spanbert.layers.span_masking import SpanMasking
from keras_spanbert.models.preprocessor import SpanBertPreprocessor
from keras_spanbert.optional import tf
from keras_spanbert.tasks.pretrain.objectives import CHOICES, MASK_INPUTS

# The arguments of `SpanMasking` that do not describe the vocabulary, and their defaults.
_MASKING = {
    name: parameter.default
    for name, parameter in inspect.signature(SpanMasking).parameters.items()
    if not name.endswith(("_size", "_id", "_ids", "kwargs"))
}


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertPretrainerPreprocessor(SpanBertPreprocessor):
    """Tokenizes, packs and masks strings for pretraining.

    Text beyond `sequence_length - 2` tokens is cut. `keras_spanbert.data.corpus`
    splits long documents into blocks.

    Args:
        tokenizer: `SpanBertTokenizer`.
        sequence_length: int. Length L of the packed sequences, including `[CLS]`
            and `[SEP]`. Defaults to `512`.
        span_boundary: bool. Whether to return inputs for SBO. Defaults to `True`.
        next_sentence: bool. Whether to make pairs of segments from the texts of a batch with
            `NextSentencePairs`, which needs at least 2. Defaults to `False`.
        **kwargs: arguments of `keras.layers.Layer`, and those of `SpanMasking` that do
            not describe the vocabulary.

    Call arguments:
        x: string or strings `[B]`.
        y, sample_weight: must be `None`. They are made from the texts.
        seed: int or two ints. Determines pairs and masks. See `SpanMasking`.

    Returns:
        `(x, y, sample_weight)`. `x` has `token_ids`, `segment_ids` (all 0 without pairs),
        `padding_mask` `[B, L]` and `mask_positions`, `span_left`, `span_right`, `span_offsets`
        `[B, M]`. `y` has `mlm` and `sbo`, the original ids `[B, M]`, and for pairs `nsp` `[B]`, 1
        if the second segment comes from elsewhere. `sample_weight` has the same names, float32
        `[B, M]` and `[B]`. Without `span_boundary`, names with `span` or `sbo` are missing.

    Examples:
    ```python
    preprocessor = keras_spanbert.SpanBertPretrainerPreprocessor(
        tokenizer, sequence_length=128, mask_rate=0.15, seed=1
    )
    x, y, sample_weight = preprocessor(["The quick brown fox jumped."])

    # Batches of a `tf.data.Dataset`, on every backend.
    dataset = tf.data.Dataset.from_tensor_slices(["The quick brown fox jumped."]).batch(32)
    dataset = dataset.map(preprocessor, num_parallel_calls=tf.data.AUTOTUNE)
    ```

    Reference:
        [Joshi et al. 2020](https://arxiv.org/abs/1907.10529), section 3.
    """

    config_names = ("sequence_length", *CHOICES)

    def __init__(
        self,
        tokenizer,
        sequence_length: int = 512,
        *,
        span_boundary: bool = True,
        next_sentence: bool = False,
        **kwargs,
    ):
        masking_config = {name: kwargs.pop(name, value) for name, value in _MASKING.items()}
        super().__init__(**kwargs)
        self.masking_config = masking_config
        self.tokenizer = tokenizer
        self.sequence_length = check_length(sequence_length)
        check_flags(span_boundary=span_boundary, next_sentence=next_sentence)
        self.span_boundary = bool(span_boundary)
        self.next_sentence = bool(next_sentence)
        if tokenizer.vocabulary is not None:  # In a preset, it is loaded after construction.
            self.masking  # noqa: B018, raises an error if an argument is out of range.
        self.built = True  # Even without a vocabulary: see the tokenizer.

    @classmethod
    def arguments_for(cls, settings: dict) -> dict:
        names = ["max_span_tokens", "span_boundary", "next_sentence"]
        found = {name: settings[name] for name in names if name in settings}
        return {**super().arguments_for(settings), **found}

    @functools.cached_property
    def masking(self):
        """The `SpanMasking` layer."""
        return SpanMasking.from_tokenizer(self.tokenizer, **self.masking_config)

    @functools.cached_property
    def _pairs(self):
        return NextSentencePairs.from_tokenizer(self.tokenizer, seed=0)

    @functools.cached_property
    def _packer(self):
        packer = keras_hub.layers.StartEndPacker(
            sequence_length=self.sequence_length,
            start_value=self.tokenizer.cls_token_id,
            end_value=self.tokenizer.sep_token_id,
            pad_value=self.tokenizer.pad_token_id,
        )
        packer.built = True
        return packer

    def call(self, x, y=None, sample_weight=None, seed=None):
        reason = "labels and weights are made from the strings"
        check_none(reason, y=y, sample_weight=sample_weight)
        # [B, L]: `[CLS]`, the text, `[SEP]`, padding.
        token_ids = self._packer(self.tokenizer(x), sequence_length=self.sequence_length)
        return self.mask(token_ids, seed=seed)

    def mask(self, token_ids, seed=None, span_marks=None, first_row=0, unigram_counts=None):
        """Masks sequences that are already tokenized and packed.

        Args:
            token_ids: int `[B, L]` or `[L]`, with special tokens and padding.
            seed: int or two ints. See `SpanMasking`.
            span_marks: int, of the shape of `token_ids`, the marks of linguistic
                spans, for schemes that use them. See `SpanMasking`.
            first_row, unigram_counts: see `SpanMasking`. Pairs still depend on the
                whole batch, whose texts they exchange.

        Returns:
            `(x, y, sample_weight)`, as a call returns for strings.
        """
        pairs = {}
        if self.next_sentence:
            # Both use the same seed, because their draws differ.
            seed = self.masking.next_seed() if seed is None else seed
            pairs = self._pairs(token_ids, seed=seed, span_marks=span_marks, first_row=first_row)
            token_ids, span_marks = pairs["token_ids"], pairs.get("span_marks")
        masks = self.masking(
            token_ids,
            seed=seed,
            span_marks=span_marks,
            first_row=first_row,
            unigram_counts=unigram_counts,
        )
        is_token = masks["token_ids"] != self.tokenizer.pad_token_id
        if isinstance(is_token, np.ndarray):
            padding_mask = is_token.astype("int32")
        else:  # A tensor of the backend, or of `tf.data`.
            cast = keras.ops.cast if keras.ops.is_tensor(is_token) else tf.cast
            padding_mask = cast(is_token, "int32")
        names = MASK_INPUTS if self.span_boundary else MASK_INPUTS[:1]
        x = {
            "token_ids": masks["token_ids"],
            "segment_ids": pairs["segment_ids"] if pairs else padding_mask * 0,
            "padding_mask": padding_mask,
            **{name: masks[name] for name in names},
        }
        y = {"mlm": masks["mask_ids"]}
        sample_weight = {"mlm": masks["mask_weights"]}
        if self.span_boundary:
            y["sbo"], sample_weight["sbo"] = masks["mask_ids"], masks["span_weights"]
        if self.next_sentence:
            y["nsp"], sample_weight["nsp"] = pairs["is_random"], pairs["pair_weights"]
        return x, y, sample_weight

    def get_config(self):
        return {**super().get_config(), **self.masking_config}
