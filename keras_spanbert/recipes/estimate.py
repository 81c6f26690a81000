"""The estimate of a run's work and time, logged before it starts."""

import keras

from keras_spanbert.recipes.flags import FLAGS
from keras_spanbert.recipes.terminal import format_duration, log
from keras_spanbert.recipes.training_settings import TrainingSettings
from keras_spanbert.runs import cost
from keras_spanbert.wording import format_count

# Number of matrix products to time. The first one warms up.
_MEASURED = 4
_PREFIXES = ["", "k", "M", "G", "T", "P", "E"]


def log_estimate(settings: TrainingSettings, steps: int, num_devices: int) -> None:
    """Logs rows, steps, tokens, floating-point operations, and the shortest possible time.

    The time is that of the same number of operations in a large matrix product,
    measured on this machine. A real step is slower. Nothing is measured if that
    would take as long as the run.
    """
    num_epochs = steps / settings.steps_per_epoch
    rows = round(num_epochs * settings.num_examples)
    tokens, padding, length = _tokens(settings, rows)
    flops = steps * cost.step_flops(
        settings.model, FLAGS.batch_size * settings.sequences, length, settings.num_predictions
    )
    epochs = f"{float(num_epochs):,.1f}".removesuffix(".0")
    parts = [
        f"{format_count(steps, 'step')}, each with {FLAGS.batch_size} of "
        f"{format_count(settings.num_examples, 'row')} "
        f"({epochs} epoch{'' if epochs == '1' else 's'})",
        f"{tokens:,} tokens{padding}",
        f"{_format_si(flops)}FLOP",
    ]
    rate = None
    if flops > _MEASURED * cost.matrix_flops():
        policy = keras.dtype_policies.get(FLAGS.dtype)
        rate = num_devices * cost.matrix_rate(policy.compute_dtype)
        parts.append(f"at least {format_duration(flops / rate)}")
    log(f"To train: {', '.join(parts)}")
    if rate:
        log(f"(at {_format_si(rate)}FLOP/s, measured with a matrix product; without evaluations)")


def _tokens(settings, rows):
    """Returns the tokens of the rows, a phrase about padding, and the mean padded length."""
    found = settings.stream.num_tokens() if hasattr(settings.stream, "num_tokens") else None
    if found is None:
        return rows * settings.sequences * FLAGS.sequence_length, "", FLAGS.sequence_length
    tokens, positions = (count / settings.num_examples for count in found)
    padding = f" in batches that are {1.0 - tokens / positions:.0%} padding"
    return round(tokens * rows), padding, positions / settings.sequences


def _format_si(number):
    """Returns a number with an SI prefix: `1.2 G`."""
    power = 0
    while number >= 1000.0 and power < len(_PREFIXES) - 1:
        number, power = number / 1000.0, power + 1
    return f"{number:.3g} {_PREFIXES[power]}"
