"""Flags that choose how pretraining masks text, and the preprocessor built from them."""

import math

from keras_spanbert.recipes.flags import FLAGS, group, set_flags

string, integer, number, boolean, strings, choice = group(
    "Masking",
    "only for --task=pretrain. Which tokens are masked, and what the model learns from them.",
)
number("mask_rate", 0.15, "Fraction of the tokens to mask.", lower_bound=None)
choice(
    "masking_scheme",
    "span",
    ["span", "whole_word", "subword", "random_span", "entity", "noun_phrase"],
    "What to mask. span: spans of whole words, with lengths from a geometric distribution, as in "
    "SpanBERT. random_span: the same, with lengths from a uniform distribution. whole_word: "
    "single words. subword: single tokens. entity, noun_phrase: named entities or noun phrases "
    "for half of the masks, single words for the other half; the text must be annotated with "
    "them, see --span_annotator.",
)
integer(
    "num_mask_copies",
    None,
    "Number of fixed sets of masks per block. Each time that a block is used, one of its sets is "
    "drawn at random; BERT's data has 10. Default: new masks each time.",
)
choice(
    "mask_replacement",
    "span",
    ["span", "token"],
    "Whether to choose once per span or for each token what replaces masked tokens: [MASK] (80%), "
    "random tokens (10%), or the tokens themselves (10%).",
)
integer(
    "pad_predictions_to",
    None,
    "Round the number of masked positions per block up to a multiple of this number. The extra "
    "positions are padding. TPUs are faster with multiples of 8. Default: 8 if this adds at most "
    "a tenth to the positions, else 1.",
)


def new_preprocessor(tokenizer, max_span_tokens: int, **kwargs):
    """Returns a `SpanBertPretrainerPreprocessor` built from the flags and `kwargs`."""
    import keras_spanbert as ks

    if FLAGS.pad_predictions_to is None:
        num_predictions = math.ceil(FLAGS.mask_rate * FLAGS.sequence_length)
        set_flags(pad_predictions_to=8 if -num_predictions % 8 <= num_predictions / 10 else 1)
    return ks.SpanBertPretrainerPreprocessor(
        tokenizer,
        sequence_length=FLAGS.sequence_length,
        mask_rate=FLAGS.mask_rate,
        scheme=FLAGS.masking_scheme,
        replacement=FLAGS.mask_replacement,
        max_span_tokens=max_span_tokens,
        seed=FLAGS.seed,
        pad_predictions_to=FLAGS.pad_predictions_to,
        num_mask_copies=FLAGS.num_mask_copies,
        **kwargs,
    )
