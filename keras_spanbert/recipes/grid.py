"""`--grid`: every combination of the given values of numeric flags."""

import contextlib
import itertools
import re
from collections.abc import Iterator

from keras_spanbert.recipes.flags import FLAGS
from keras_spanbert.recipes.names import recipe

# Appendix B of the paper, https://arxiv.org/abs/1907.10529, for tasks without a
# `PAPER_GRID` of their own. CoLA has fewer epochs, because it overfits with more.
_PAPER = "learning_rate=5e-6,1e-5,2e-5,3e-5,5e-5 batch_size=16,32 epochs=10"
_PAPER_COLA = _PAPER.replace("epochs=10", "epochs=4")
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
    grid, is_paper = FLAGS.grid, FLAGS.grid == "paper"
    if is_paper:
        is_cola = "benchmark" in FLAGS and FLAGS["benchmark"].value == "cola"
        grid = getattr(recipe(FLAGS.task), "PAPER_GRID", _PAPER_COLA if is_cola else _PAPER)
    values = {}
    for item in grid.split() or [""]:
        match = _ITEM.fullmatch(item)
        _check(match, _RULE, item or repr(grid))
        name, texts = match[1], match[2].split(",")
        _check(name not in values, "each flag once", item)
        if is_paper and FLAGS[name].present:
            continue  # A flag given on its own replaces the paper's values.
        _check_flag(name)
        known = {}
        for text in texts:
            value = number(name, text)
            same = f"{known.get(value)} and {text}, the same number"
            _check(value not in known, f"each value of --{name} once", same)
            known[value] = text
        values[name] = texts
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


def _check_flag(name):
    """Checks that a flag is a number that changes training."""
    groups = ["Training", "Model", FLAGS.task.replace("_", " ").capitalize()]
    is_own = name not in _EXCLUDED_FLAGS and FLAGS.find_module_defining_flag(name) in groups
    is_numeric = is_own and FLAGS[name].flag_type() in ("int", "float")
    hint = "; use --num_seeds for several seeds" if name in ("seed", "num_seeds") else ""
    _check(is_numeric, f"numeric flags of training with --task={FLAGS.task}{hint}", name)
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


def _check(is_right, rule, received):
    if not is_right:
        raise ValueError(
            f"`--grid` must have {rule}. Received: --grid={FLAGS.grid}, with {received}"
        )
