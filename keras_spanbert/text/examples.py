"""Lists of examples, one dict per row, as readers return them."""

from collections.abc import Sequence


def is_examples(x) -> bool:
    """Returns whether `x` is a list of examples, one dict per row, as readers return them."""
    return isinstance(x, (list, tuple)) and bool(x) and all(isinstance(row, dict) for row in x)


def check_examples(examples) -> None:
    """Raises a `ValueError` if examples to score are not a list of dicts."""
    if not is_examples(examples):
        raise ValueError(
            "`examples` must be a list of dicts, as the readers in `keras_spanbert.data` return "
            f"them. Received: {examples!r:.80}"
        )


def column(examples, name: str) -> list:
    """Returns the values of one key of all examples. Raises `ValueError` if one lacks the key."""
    for i, example in enumerate(examples):
        if name not in example:
            raise ValueError(f"An example must have a `{name}`. Received: x[{i}]={example!r:.80}")
    return [example[name] for example in examples]


def columns_of(examples, required: Sequence[str], optional: Sequence[str] = ()) -> dict:
    """Returns columns of examples by name. Those that are optional have `None` for missing values.

    An optional column that no example has is left out.
    """
    found = [name for name in optional if any(name in example for example in examples)]
    return {
        **{name: column(examples, name) for name in required},
        **{name: [example.get(name) for example in examples] for name in found},
    }
