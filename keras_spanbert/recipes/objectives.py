"""What a pretrained model learns from: its flags, and what a run says of it."""

from keras_spanbert.recipes import checks
from keras_spanbert.recipes.flags import FLAGS, group, resolve
from keras_spanbert.recipes.terminal import log

_NAMES = ["mlm", "sbo", "nsp"]

string, integer, number, boolean, strings, choice = group("Masking")
strings(
    "objectives",
    ["mlm", "sbo"],
    "What to learn from: mlm, the masked tokens, always; sbo, them from their span's boundaries; "
    "nsp, whether a pair's second segment follows the first. Default: mlm,sbo, or the preset's.",
)
number("sbo_weight", 1.0, "Weight of the span boundary objective.", lower_bound=0.0)
number("nsp_weight", 1.0, "Weight of next-sentence prediction.", lower_bound=0.0)


def check() -> None:
    """Raises a ValueError for what these flags show to be wrong."""
    names = FLAGS.objectives
    is_right = "mlm" in names and len(set(names)) == len(names) and set(names) <= set(_NAMES)
    checks.check_value("objectives", is_right, "mlm, and sbo or nsp or both behind it")
    if not FLAGS.preset or FLAGS["objectives"].present:
        _check_weights()
    if "nsp" in names:
        checks.check_value(
            "batch_size", FLAGS.batch_size > 1, "2 or more for pairs (--objectives with nsp)"
        )
        rule = "left out with nsp: a pair is of one document"
        checks.check_value("cross_documents", not FLAGS.cross_documents, rule)
        length = FLAGS.sequence_length
        checks.check_value("sequence_length", length is None or length > 4, "5 or more for pairs")


def _check_weights():
    """Raises a ValueError for the weight of an objective that there is not."""
    for name in ["sbo", "nsp"]:
        is_right = name in FLAGS.objectives or not FLAGS[f"{name}_weight"].present
        checks.check_value(f"{name}_weight", is_right, f"left out without --objectives=mlm,{name}")


def arguments() -> dict[str, bool]:
    """The model's arguments that choose its objectives; of a preset those that are given."""
    if FLAGS.preset and not FLAGS["objectives"].present:
        return {}
    from keras_spanbert.tasks.pretrain.objectives import choices

    return choices(FLAGS.objectives)


def preprocessor_arguments(model) -> dict[str, bool]:
    """Those of the preprocessor, as the model has them; the flags are set to its objectives."""
    from keras_spanbert.tasks.pretrain.objectives import choices

    model.sbo_weight, model.nsp_weight = FLAGS.sbo_weight, FLAGS.nsp_weight
    resolve(objectives=list(model.objectives))
    check()
    _check_weights()
    return choices(model.objectives)


def log_baselines(num_tokens: int, num_blocks: int, unigram: dict[str, float]) -> None:
    """Tells a corpus's size and what ignoring context gives; warns where SBO has no target."""
    shown = ", ".join(f"{unigram[name]:.3f} ({name.upper()})" for name in unigram if name != "nsp")
    log(f"{num_tokens:,} tokens in {num_blocks:,} blocks; unigram entropy {shown}")
    if FLAGS.sbo_weight and not unigram.get("sbo", 1.0):
        log(
            "Warning: no masked span of the evaluation has a token on either side, so SBO learns "
            f"nothing: {_sbo_hint()}"
        )


def _sbo_hint():
    """Which flag gives spans a token on either side."""
    if FLAGS.sequence_length < 5:
        return f"--sequence_length={FLAGS.sequence_length} must be 5 or more"
    if FLAGS.mask_rate > 0.5:
        return f"--mask_rate={FLAGS.mask_rate} must be smaller"
    return f"documents must be longer, or --eval_steps={FLAGS.eval_steps} larger"


def log_results(unigram: dict[str, float], metrics: dict) -> None:
    """Tells what each objective has reached, and by how much it is under its baseline."""
    for name, base in unigram.items():
        value = metrics[f"{name}_cross_entropy"]
        if value is None:
            log(f"held-out {name.upper()}: nothing to predict")
            continue
        unit, of = "a token", "the unigram entropy of "
        if name == "nsp":
            unit, of = "a pair", "a coin's "
        log(
            f"held-out {name.upper()} cross-entropy {value:.3f} nats {unit}, "
            f"{abs(base - value):.3f} {'under' if value < base else 'over'} {of}{base:.3f}; "
            f"accuracy {metrics[f'{name}_accuracy']:.3f}"
        )
