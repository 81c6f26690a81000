"""From strings to masked batches for `SpanBertPretrainer`."""

import keras
import keras_hub

from keras_spanbert.layers.next_sentence_pairs import NextSentencePairs
from keras_spanbert.layers.span_masking import SpanMasking
from keras_spanbert.models.preprocessor import SpanBertPreprocessor
from keras_spanbert.tasks.pretrain.objectives import mask_inputs


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertPretrainerPreprocessor(SpanBertPreprocessor):
    """Tokenises, packs and masks strings for pretraining.

    Text beyond `sequence_length - 2` tokens is cut: for long documents see
    `keras_spanbert.data.corpus`, which makes blocks of them.

    Args:
        tokenizer: `SpanBertTokenizer`.
        sequence_length: int. Length L of the packed sequences, `[CLS]` and
            `[SEP]` included. Defaults to `512`.
        span_boundary: bool. Whether there is what SBO needs. Defaults to `True`.
        next_sentence: bool. Whether texts become pairs of segments, as
            `NextSentencePairs` makes them of a batch of 2 or more. Defaults to
            `False`.
        **kwargs: `SpanMasking`'s arguments, but for those that describe the
            vocabulary; `name`, `dtype` and the like go to `keras.layers.Layer`.

    Call arguments:
        x: string or strings `[B]`.
        seed: int or two ints that fix pairs and masks. See `SpanMasking`.

    Returns:
        `(x, y, sample_weight)`: `x` with `token_ids`, `segment_ids` (all 0, but
        of pairs), `padding_mask` `[B, L]` and `mask_positions`, `span_left`,
        `span_right`, `span_offsets` `[B, M]`; `y` with `mlm` and `sbo`, the
        original ids `[B, M]`, and of pairs `nsp` `[B]`, 1 where the second
        segment is from elsewhere; `sample_weight` with the same names, float32
        `[B, M]` and `[B]`. Without `span_boundary` nothing with `span` or `sbo`
        in its name.

    Example:
    ```python
    preprocessor = keras_spanbert.SpanBertPretrainerPreprocessor(
        tokenizer, sequence_length=128, mask_rate=0.15, seed=1
    )
    x, y, sample_weight = preprocessor(["The quick brown fox jumped."])
    ```

    Reference:
        [Joshi et al. 2020](https://arxiv.org/abs/1907.10529), section 3.
    """

    def __init__(
        self,
        tokenizer,
        sequence_length: int = 512,
        mask_rate: float = 0.15,
        max_predictions: int | None = None,
        geometric_p: float = 0.2,
        max_span_words: int = 10,
        max_span_tokens: int = 15,
        mask_token_rate: float = 0.8,
        random_token_rate: float = 0.1,
        replacement: str = "span",
        scheme: str = "span",
        seed=None,
        predictions_multiple: int = 1,
        static_copies: int | None = None,
        span_boundary: bool = True,
        next_sentence: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if int(sequence_length) != sequence_length or sequence_length < 3:
            raise ValueError(
                "`sequence_length` must be an integer of at least 3: [CLS], a token, [SEP]. "
                f"Received: sequence_length={sequence_length}"
            )
        self.tokenizer = tokenizer
        self.sequence_length = int(sequence_length)
        self.masking_config = {
            "mask_rate": mask_rate,
            "max_predictions": max_predictions,
            "geometric_p": geometric_p,
            "max_span_words": max_span_words,
            "max_span_tokens": max_span_tokens,
            "mask_token_rate": mask_token_rate,
            "random_token_rate": random_token_rate,
            "replacement": replacement,
            "scheme": scheme,
            "seed": seed,
            "predictions_multiple": predictions_multiple,
            "static_copies": static_copies,
        }
        self.span_boundary = bool(span_boundary)
        self.next_sentence = bool(next_sentence)
        self._masking = None
        self._pairs = None
        self._packer = None
        if tokenizer.vocabulary is not None:
            self.build(None)
        self.built = True  # Without a vocabulary too: see the tokenizer.

    @classmethod
    def arguments_for(cls, settings: dict) -> dict:
        names = ["max_span_tokens", "span_boundary", "next_sentence"]
        found = {name: settings[name] for name in names if name in settings}
        return {**super().arguments_for(settings), **found}

    def build(self, input_shape):
        # From a preset, the vocabulary comes after construction.
        if self._masking is None:
            self._masking = SpanMasking.from_tokenizer(self.tokenizer, **self.masking_config)
            if self.next_sentence:
                self._pairs = NextSentencePairs.from_tokenizer(self.tokenizer, seed=0)
            self._packer = keras_hub.layers.StartEndPacker(
                sequence_length=self.sequence_length,
                start_value=self.tokenizer.cls_token_id,
                end_value=self.tokenizer.sep_token_id,
                pad_value=self.tokenizer.pad_token_id,
            )
            self._packer.built = True

    def call(self, x, y=None, sample_weight=None, seed=None):
        return self.mask(self.pack(x), seed=seed)

    def pack(self, x):
        """Token ids `[B, L]` of strings `[B]`: `[CLS]`, the text's, `[SEP]`, padding."""
        self.build(None)
        return self._packer(self.tokenizer(x))

    def mask(self, token_ids, seed=None, span_marks=None, first_row=0, unigram_counts=None):
        """Masks sequences that are tokenised and packed already.

        Args:
            token_ids: int `[B, L]` or `[L]`, with special tokens and padding.
            seed: int or two ints. See `SpanMasking`.
            span_marks: int, of the shape of `token_ids`, where linguistic spans
                are, for the schemes that take them. See `SpanMasking`.
            first_row, unigram_counts: see `SpanMasking`. Pairs are still of
                the batch, whose texts they exchange.

        Returns:
            `(x, y, sample_weight)`, as a call gives for strings.
        """
        self.build(None)
        pairs = {}
        if self.next_sentence:
            # One seed for both: their draws differ.
            seed = self._masking.next_seed() if seed is None else seed
            pairs = self._pairs(token_ids, seed=seed, span_marks=span_marks, first_row=first_row)
            token_ids, span_marks = pairs["token_ids"], pairs.get("span_marks")
        masks = self._masking(
            token_ids,
            seed=seed,
            span_marks=span_marks,
            first_row=first_row,
            unigram_counts=unigram_counts,
        )
        is_padding = masks["token_ids"] == self.tokenizer.pad_token_id
        padding_mask = 1 - _as_type(is_padding, masks["token_ids"])
        x = {
            "token_ids": masks["token_ids"],
            "segment_ids": pairs["segment_ids"] if pairs else padding_mask * 0,
            "padding_mask": padding_mask,
            **{name: masks[name] for name in mask_inputs(self.span_boundary)},
        }
        y = {"mlm": masks["mask_ids"]}
        sample_weight = {"mlm": masks["mask_weights"]}
        if self.span_boundary:
            y["sbo"], sample_weight["sbo"] = masks["mask_ids"], masks["span_weights"]
        if self.next_sentence:
            y["nsp"], sample_weight["nsp"] = pairs["is_random"], pairs["pair_weights"]
        return x, y, sample_weight

    @property
    def has_padding(self) -> bool:
        """Whether full sequences may come out with padding, as pairs do that are cut short."""
        return self.next_sentence

    @property
    def masking(self):
        """The `SpanMasking` layer."""
        self.build(None)
        return self._masking

    def get_config(self):
        config = super().get_config()
        config.update({"sequence_length": self.sequence_length, **self.masking_config})
        config.update(span_boundary=self.span_boundary, next_sentence=self.next_sentence)
        return config


def _as_type(x, like):
    """`x` in the dtype of `like`, for tensors of a backend or of `tf.data`."""
    if keras.ops.is_tensor(x):
        return keras.ops.cast(x, keras.backend.standardize_dtype(like.dtype))
    import tensorflow as tf

    return tf.cast(x, like.dtype)
