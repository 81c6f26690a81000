"""Checks of method arguments."""

import numbers


def is_integer(value) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_in(is_in, rule: str, **argument):
    """Returns an argument. Raises a `ValueError` that states `rule` if `is_in` is false.

    A rule is, for example, "in (0, 1]".
    """
    ((name, value),) = argument.items()
    if not is_in:
        raise ValueError(f"`{name}` must be {rule}. Received: {name}={value!r}")
    return value


def check_positive(**argument) -> int:
    """Returns an argument as an int. Raises a `ValueError` if it is not a positive integer."""
    (value,) = argument.values()
    return int(check_in(int(value) == value and value >= 1, "a positive integer", **argument))


def check_counts(**arguments) -> None:
    """Raises a `ValueError` if an argument is not an integer of at least 1."""
    for name, value in arguments.items():
        if not is_integer(value):
            raise ValueError(f"`{name}` must be an integer. Received: {name}={value!r:.80}")
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1. Received: {name}={value}")


def check_length(sequence_length, minimum: int = 3) -> int:
    """Returns the number of tokens in a row. Checks that it is an integer of at least `minimum`."""
    if not is_integer(sequence_length) or sequence_length < minimum:
        raise ValueError(
            f"`sequence_length` must be an integer of at least {minimum}, for the special tokens "
            f"and a token of each text. Received: sequence_length={sequence_length!r:.80}"
        )
    return int(sequence_length)


def check_number_or_none(**arguments) -> None:
    """Raises a `ValueError` if an argument is neither a number nor `None`."""
    for name, value in arguments.items():
        if value is not None and (not is_number(value) or value != value):
            raise ValueError(f"`{name}` must be a number or None. Received: {name}={value!r:.80}")


def check_same_length(**columns) -> None:
    """Raises a `ValueError` if arguments, lists of values of the same rows, differ in length."""
    sizes = [len(column) for column in columns.values()]
    if len(set(sizes)) > 1:
        *names, last = (f"`{name}`" for name in columns)
        raise ValueError(
            f"{', '.join(names)} and {last} must have the same length. Received: "
            + ", ".join(map(str, sizes))
        )
