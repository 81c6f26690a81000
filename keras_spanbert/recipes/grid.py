"""`--grid`: numbers for flags, and all of their combinations."""

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator

from keras_spanbert.recipes.flags import FLAGS, own_flags

# Appendix B of the paper: https://arxiv.org/abs/1907.10529.
_PAPER = {
    "question_answering": "learning_rate=5e-6,1e-5,2e-5,3e-5,5e-5 batch_size=16,32 epochs=4",
    "coreference": "sequence_length=128,256,384,512 learning_rate=1e-5,2e-5 "
    "head_learning_rate=1e-4,2e-4,3e-4 batch_size=1 epochs=20",
}
# Of its other tasks, for which CoLA's epochs are fewer: more overfit.
_PAPER_OF_SENTENCES = "learning_rate=5e-6,1e-5,2e-5,3e-5,5e-5 batch_size=16,32 epochs={epochs}"
_COLA_EPOCHS, _EPOCHS = 4, 10
# Numbers that change nothing of what is learnt, or have a flag of their own for several.
_NOT_TRIED = ["seed", "seeds", "checkpoint_every", "keep_checkpoints", "profile"]
_ITEM = re.compile(r"(?:--)?(\w+)=([^,\s]+(?:,[^,\s]+)*)")


def combinations() -> list[dict[str, str]]:
    """The flags that differ and their values, as text, of each combination; one of none without.

    Raises:
        ValueError: where --grid is not such values.
    """
    if not FLAGS.grid:
        return [{}]
    values = _parsed(_paper() if FLAGS.grid == "paper" else FLAGS.grid)
    if FLAGS.grid == "paper":  # What is given by itself stands in for the paper's.
        values = {name: texts for name, texts in values.items() if not FLAGS[name].present}
    for name, texts in values.items():
        _check_flag(name)
        numbers = [_number(name, text) for text in texts]
        if len(set(numbers)) < len(numbers):
            _refuse(f"values of --{name} that differ", f"{name}={','.join(texts)}")
    return [dict(zip(values, chosen)) for chosen in itertools.product(*values.values())]


def check(check_flags: Callable[[], None]) -> None:
    """Has every combination checked by what checks the flags of one run, in its own words."""
    for values in combinations():
        with using(values):
            check_flags()


@contextlib.contextmanager
def using(values: dict[str, str]) -> Iterator[None]:
    """Within, flags have these values, as if they were given."""
    before = {name: (FLAGS[name].value, FLAGS[name].present) for name in values}
    try:
        for name, text in values.items():
            FLAGS[name].value, FLAGS[name].present = _number(name, text), 1
        yield
    finally:
        for name, (value, present) in before.items():
            FLAGS[name].value, FLAGS[name].present = value, present


def _paper():
    is_cola = "benchmark" in FLAGS and FLAGS["benchmark"].value == "cola"
    epochs = _COLA_EPOCHS if is_cola else _EPOCHS
    return _PAPER.get(FLAGS.task, _PAPER_OF_SENTENCES.format(epochs=epochs))


def _parsed(text):
    values = {}
    for item in text.split():
        match = _ITEM.fullmatch(item)
        if not match:
            _refuse("flags with their values, as learning_rate=1e-5,2e-5", item)
        if match[1] in values:
            _refuse("flags that differ", item)
        values[match[1]] = match[2].split(",")
    if not values:
        _refuse("flags with their values, as learning_rate=1e-5,2e-5", repr(text))
    return values


def _check_flag(name):
    """Checks that a flag is a number by which training differs."""
    groups = ["Training", "Model", FLAGS.task.replace("_", " ").capitalize()]
    numeric = [
        flag.name
        for flag in own_flags()
        if flag.flag_type() in ("int", "float")
        and flag.name not in _NOT_TRIED
        and FLAGS.find_module_defining_flag(flag.name) in groups
    ]
    if name not in numeric:
        hint = "; --seeds has several" if name in ("seed", "seeds") else ""
        _refuse(f"numeric flags of training with --task={FLAGS.task}{hint}", name)
    if FLAGS[name].present:
        given = f"{FLAGS.grid} and --{name}={FLAGS[name].value}"
        raise ValueError(
            f"`--grid` must have what is not given by itself. Received: --grid={given}"
        )


def _number(name, text):
    try:
        return FLAGS[name].parser.parse(text)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"flag --{name}={text}: {error}") from None


def _refuse(rule, received):
    raise ValueError(f"`--grid` must be {rule}. Received: --grid={FLAGS.grid}, with {received}")
