"""How text is masked for pretraining: its flags, and the preprocessor that they make."""

import math

from keras_spanbert.recipes.flags import FLAGS, group, resolve

string, integer, number, boolean, strings, choice = group("Masking")
number("mask_rate", 0.15, "Share of tokens to mask.")
choice(
    "scheme",
    "span",
    ["span", "whole_word", "subword", "random_span", "entity", "noun_phrase"],
    "What to mask: spans of geometric or uniform (random_span) lengths, words, tokens, or entities "
    "or noun phrases for a half and words for the other, of text that comes with these.",
)
integer(
    "static_copies",
    None,
    "So many sets of masks a block, always the same ones (BERT's are 10). Default: new masks "
    "whenever a block comes.",
    lower_bound=1,
)
choice("replacement", "span", ["span", "token"], "What is masked, random or kept as one.")
integer(
    "predictions_multiple",
    None,
    "A block's slots for masked tokens are a multiple of it, the last ones empty. Default: 8, "
    "which suits TPUs, where that adds a tenth at most (at --sequence_length=512), else 1.",
    lower_bound=1,
)


def new_preprocessor(tokenizer, max_span_tokens: int, **kwargs):
    """The `SpanBertPretrainerPreprocessor` of the flags, and of other arguments."""
    import keras_spanbert as ks

    if FLAGS.predictions_multiple is None:
        num_predictions = math.ceil(FLAGS.mask_rate * FLAGS.sequence_length)
        resolve(predictions_multiple=8 if -num_predictions % 8 <= num_predictions / 10 else 1)
    return ks.SpanBertPretrainerPreprocessor(
        tokenizer,
        sequence_length=FLAGS.sequence_length,
        mask_rate=FLAGS.mask_rate,
        scheme=FLAGS.scheme,
        replacement=FLAGS.replacement,
        max_span_tokens=max_span_tokens,
        seed=FLAGS.seed,
        predictions_multiple=FLAGS.predictions_multiple,
        static_copies=FLAGS.static_copies,
        **kwargs,
    )
