"""Masks and objectives of pretraining: flags, preprocessor, and log lines about results."""

import math

import keras_spanbert as ks
from keras_spanbert.recipes import checks
from keras_spanbert.recipes.flags import FLAGS, Group, set_flags, values
from keras_spanbert.recipes.terminal import log
from keras_spanbert.tasks.pretrain.objectives import OBJECTIVES, choices
from keras_spanbert.wording import format_count

group = Group(
    "Masking",
    "only for --task=pretrain. Which tokens are masked, and what the model learns from them.",
)
group.number("mask_rate", "Fraction of the tokens to mask.", default=0.15, lower_bound=None)
group.choice(
    "masking_scheme",
    ["span", "whole_word", "subword", "random_span", "entity", "noun_phrase"],
    "What to mask. span: spans of whole words, with lengths from a geometric distribution, as in "
    "SpanBERT. random_span: the same, with lengths from a uniform distribution. whole_word: single "
    "words. subword: single tokens. entity, noun_phrase: named entities or noun phrases for half "
    "of the masks, single words for the other half; the text must be annotated with them, see "
    "--span_annotator.",
    default="span",
)
group.number(
    "geometric_p",
    "Parameter of the geometric distribution of span lengths, for --masking_scheme=span. A larger "
    "value gives shorter spans.",
    default=0.2,
    lower_bound=None,
)
group.integer(
    "max_span_words",
    "Largest number of words per span, for --masking_scheme=span and random_span.",
    default=10,
)
group.integer(
    "num_mask_copies",
    "Number of fixed sets of masks per block. Each time that a block is used, one of its sets is "
    "drawn at random; BERT's data has 10. Default: new masks each time.",
)
group.choice(
    "mask_replacement",
    ["span", "token"],
    "Whether to choose once per span or for each token what replaces masked tokens: [MASK] (80%), "
    "random tokens (10%), or the tokens themselves (10%).",
    default="span",
)
group.integer(
    "pad_predictions_to",
    "Round the number of masked positions per block up to a multiple of this number. The extra "
    "positions are padding. TPUs are faster with multiples of 8. Default: 8 if this adds at most a "
    "tenth to the positions, else 1.",
)
group.strings(
    "objectives",
    "Pretraining objectives. mlm, which is required: predict masked tokens from their own "
    "positions. sbo: predict the same tokens from the boundaries of their span. nsp: predict "
    "whether the second segment of a pair follows the first. With --preset, the default is the "
    "preset's objectives.",
    default=["mlm", "sbo"],
)
group.number(
    "sbo_weight",
    "Weight of the span boundary objective in the loss. MLM has weight 1.",
    default=1.0,
)
group.number(
    "nsp_weight",
    "Weight of next sentence prediction in the loss, if nsp is in --objectives. MLM has weight 1.",
    default=1.0,
)


def new_preprocessor(tokenizer, max_span_tokens: int, **kwargs):
    """Returns a `SpanBertPretrainerPreprocessor` built from the flags and `kwargs`."""
    if FLAGS.pad_predictions_to is None:
        num_predictions = math.ceil(FLAGS.mask_rate * FLAGS.sequence_length)
        set_flags(pad_predictions_to=8 if -num_predictions % 8 <= num_predictions / 10 else 1)
    return ks.SpanBertPretrainerPreprocessor(
        tokenizer,
        scheme=FLAGS.masking_scheme,
        replacement=FLAGS.mask_replacement,
        max_span_tokens=max_span_tokens,
        **values("sequence_length", "mask_rate", "geometric_p", "max_span_words", "seed"),
        **values("pad_predictions_to", "num_mask_copies"),
        **kwargs,
    )


def check() -> None:
    """Checks these flags. Raises `ValueError` if one is wrong."""
    names = FLAGS.objectives
    is_right = "mlm" in names and len(set(names)) == len(names) and set(names) <= set(OBJECTIVES)
    checks.check_value("objectives", is_right, "mlm, alone or with sbo, nsp or both")
    if not FLAGS.preset or FLAGS["objectives"].present:
        _check_weights()
    if "nsp" in names:
        checks.check_value(
            "batch_size", FLAGS.batch_size > 1, "2 or more for pairs (--objectives with nsp)"
        )
        rule = "left out with nsp, whose pairs come from one document"
        checks.check_value("cross_documents", not FLAGS.cross_documents, rule)
        length = FLAGS.sequence_length
        checks.check_value("sequence_length", length is None or length > 4, "5 or more for pairs")


def _check_weights():
    """Raises `ValueError` if a weight is given for an objective that is not used."""
    for name in ["sbo", "nsp"]:
        is_right = name in FLAGS.objectives or not FLAGS[f"{name}_weight"].present
        checks.check_value(f"{name}_weight", is_right, f"left out without --objectives=mlm,{name}")


def arguments() -> dict[str, bool]:
    """Returns the model's arguments that choose objectives. With a preset, only given ones."""
    if FLAGS.preset and not FLAGS["objectives"].present:
        return {}
    return choices(FLAGS.objectives)


def preprocessor_arguments(model) -> dict[str, bool]:
    """Returns the preprocessor's arguments for the model's objectives, and updates the flags."""
    model.sbo_weight, model.nsp_weight = FLAGS.sbo_weight, FLAGS.nsp_weight
    set_flags(objectives=list(model.objectives))
    check()
    _check_weights()
    return choices(model.objectives)


def log_baselines(num_tokens: int, num_blocks: int, unigram: dict[str, float]) -> None:
    """Logs the size of a corpus and its unigram entropy. Warns if SBO has no targets."""
    shown = ", ".join(f"{unigram[name]:.3f} ({name.upper()})" for name in unigram if name != "nsp")
    log(f"{num_tokens:,} tokens in {format_count(num_blocks, 'block')}; unigram entropy {shown}")
    if FLAGS.sbo_weight and not unigram.get("sbo", 1.0):
        hint = f"documents must be longer, or --eval_steps={FLAGS.eval_steps} larger"
        if FLAGS.sequence_length < 5:
            hint = f"--sequence_length={FLAGS.sequence_length} must be 5 or more"
        elif FLAGS.mask_rate > 0.5:
            hint = f"--mask_rate={FLAGS.mask_rate} must be smaller"
        log(
            "Warning: no masked span of the evaluation data has a token on both sides, so SBO "
            f"learns nothing: {hint}"
        )


def log_results(unigram: dict[str, float], metrics: dict) -> None:
    """Logs the result of each objective and its distance from the baseline."""
    for name, base in unigram.items():
        value = metrics[f"{name}_cross_entropy"]
        if value is None:
            log(f"held-out {name.upper()}: nothing to predict")
            continue
        unit, of = "per token", "the unigram entropy of "
        if name == "nsp":
            unit, of = "per pair", "the coin-flip baseline of "
        log(
            f"held-out {name.upper()} cross-entropy {value:.3f} nats {unit}, "
            f"{abs(base - value):.3f} {'under' if value < base else 'over'} {of}{base:.3f}; "
            f"accuracy {metrics[f'{name}_accuracy']:.3f}"
        )
