"""`--grid`: every combination of the given values of numeric flags."""

import contextlib
import itertools
import re
from collections.abc import Iterator

from keras_spanbert.recipes.flags import FLAGS, own_flags
from keras_spanbert.recipes.names import recipe

# Appendix B of the paper, https://arxiv.org/abs/1907.10529, for tasks without a
# `PAPER_GRID` of their own. CoLA has fewer epochs, because it overfits with more.
_PAPER = "learning_rate=5e-6,1e-5,2e-5,3e-5,5e-5 batch_size=16,32 epochs=10"
_COLA_EPOCHS = "4"
# Numeric flags that do not change training, or that have a flag of their own for several values.
_EXCLUDED_FLAGS = ["seed", "num_seeds", "checkpoint_every", "keep_checkpoints", "profile_steps"]
_RULE = "flags with their values, such as learning_rate=1e-5,2e-5"
_ITEM = re.compile(r"(?:--)?(\w+)=([^,\s]+(?:,[^,\s]+)*)")


def combinations() -> list[dict[str, str]]:
    """Returns the combinations, each a dict of flag to text. Without --grid, one empty dict.

    Raises:
        ValueError: if --grid is anything but distinct values of numeric flags.
    """
    if not FLAGS.grid:
        return [{}]
    if FLAGS.grid == "paper":
        values = _parse(getattr(recipe(FLAGS.task), "PAPER_GRID", _PAPER))
        if "benchmark" in FLAGS and FLAGS["benchmark"].value == "cola":
            values["epochs"] = [_COLA_EPOCHS]
        # Flags given on their own replace the paper's values.
        values = {name: texts for name, texts in values.items() if not FLAGS[name].present}
    else:
        values = _parse(FLAGS.grid)
    for name, texts in values.items():
        _check_flag(name)
        known = {}
        for text in texts:
            value = number(name, text)
            if value in known:
                same = f"{known[value]} and {text}, the same number"
                _raise_error(f"each value of --{name} once", same)
            known[value] = text
    return [dict(zip(values, chosen)) for chosen in itertools.product(*values.values())]


@contextlib.contextmanager
def using(values: dict[str, str]) -> Iterator[None]:
    """Context manager that sets flags to these values, as if the user had given them."""
    before = {name: (FLAGS[name].value, FLAGS[name].present) for name in values}
    try:
        for name, text in values.items():
            FLAGS[name].value, FLAGS[name].present = number(name, text), 1
        yield
    finally:
        for name, (value, present) in before.items():
            FLAGS[name].value, FLAGS[name].present = value, present


def _parse(text):
    values = {}
    for item in text.split():
        match = _ITEM.fullmatch(item)
        if not match:
            _raise_error(_RULE, item)
        if match[1] in values:
            _raise_error("each flag once", item)
        values[match[1]] = match[2].split(",")
    if not values:
        _raise_error(_RULE, repr(text))
    return values


def _check_flag(name):
    """Checks that a flag is a number that changes training."""
    groups = ["Training", "Model", FLAGS.task.replace("_", " ").capitalize()]
    numeric = [
        flag.name
        for flag in own_flags()
        if flag.flag_type() in ("int", "float")
        and flag.name not in _EXCLUDED_FLAGS
        and FLAGS.find_module_defining_flag(flag.name) in groups
    ]
    if name not in numeric:
        hint = "; use --num_seeds for several seeds" if name in ("seed", "num_seeds") else ""
        _raise_error(f"numeric flags of training with --task={FLAGS.task}{hint}", name)
    if FLAGS[name].present:
        given = f"{FLAGS.grid} and --{name}={FLAGS[name].value}"
        raise ValueError(
            f"`--grid` must not set a flag that is also given on its own. Received: --grid={given}"
        )


def number(name: str, text: str) -> int | float:
    """Returns the value that absl parses from a flag's text."""
    try:
        return FLAGS[name].parser.parse(text)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"`--grid` has --{name}={text}: {error}") from None


def _raise_error(rule, received):
    raise ValueError(f"`--grid` must have {rule}. Received: --grid={FLAGS.grid}, with {received}")
