"""What a run would take, told before it starts."""

import os

import keras

from keras_spanbert.recipes.flags import FLAGS
from keras_spanbert.recipes.plan import Plan
from keras_spanbert.recipes.sweep import SHARE
from keras_spanbert.recipes.terminal import log, shown_duration
from keras_spanbert.runs import cost

# Products that are computed to measure: the first one warms up.
_MEASURED = 4
_PREFIXES = ["", "k", "M", "G", "T", "P", "E"]


def log_estimate(plan: Plan, steps: int, num_devices: int) -> None:
    """Tells rows, steps, tokens, floating-point operations, and the least time they take.

    The time is that of as many operations in a large matrix product, measured
    here: no step is as fast. It is not measured where that would take as long
    as the run.

    Args:
        plan: `Plan`.
        steps: int, those that are still to do.
        num_devices: int, which share the work.
    """
    rows = steps * FLAGS.batch_size
    tokens, padding, length = _tokens(plan, rows)
    flops = steps * cost.step_flops(
        plan.model, FLAGS.batch_size * plan.sequences, length, plan.num_predictions
    )
    epochs = f"{rows / plan.num_examples:,.1f}".removesuffix(".0")
    parts = [
        f"{steps:,} steps of {FLAGS.batch_size} of {plan.num_examples:,} rows "
        f"({epochs} epoch{'' if epochs == '1' else 's'})",
        f"{tokens:,} tokens{padding}",
        f"{_shown(flops)}FLOP",
    ]
    num_runs, share = _sweep()
    rate = None
    if flops * share > _MEASURED * cost.matrix_flops():
        policy = keras.dtype_policies.get(FLAGS.dtype)
        rate = num_devices * cost.matrix_rate(policy.compute_dtype)
        parts.append(f"{shown_duration(flops / rate)} or more")
    log(f"To train: {', '.join(parts)}")
    if num_runs > 1:
        seconds = f", {shown_duration(flops * share / rate)} or more" if rate else ""
        log(f"All {num_runs} runs: {_shown(flops * share)}FLOP{seconds}")
    if rate:
        log(f"(at the {_shown(rate)}FLOP/s of a matrix product here; evaluations come on top)")


def _tokens(plan, rows):
    """Tokens of so many rows, what to tell of their padding, and their mean length with it."""
    found = plan.stream.num_tokens() if hasattr(plan.stream, "num_tokens") else None
    if found is None:
        return rows * plan.sequences * FLAGS.sequence_length, "", FLAGS.sequence_length
    tokens, positions = (count / plan.num_examples for count in found)
    padding = f" in batches that are {1.0 - tokens / positions:.0%} padding"
    return round(tokens * rows), padding, positions / plan.sequences


def _sweep():
    """Number of runs of a sweep that this one is of, and how many times its work they take."""
    number, share = os.environ.get(SHARE, "1 1").split()
    return int(number), float(share)


def _shown(number):
    """A number with its prefix of three digits: `1.2 G`."""
    power = 0
    while number >= 1000.0 and power < len(_PREFIXES) - 1:
        number, power = number / 1000.0, power + 1
    return f"{number:.3g} {_PREFIXES[power]}"
