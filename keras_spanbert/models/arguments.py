"""Checks of method arguments."""

import numbers


def check_counts(**arguments) -> None:
    """Raises a `ValueError` if an argument is not an integer of at least 1."""
    for name, value in arguments.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise ValueError(f"`{name}` must be an integer. Received: {name}={value!r:.80}")
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1. Received: {name}={value}")


def check_length(sequence_length, minimum: int = 3) -> int:
    """Returns the number of tokens in a row. Checks that it is an integer of at least `minimum`."""
    is_integer = isinstance(sequence_length, numbers.Integral) and sequence_length is not True
    if not is_integer or sequence_length < minimum:
        raise ValueError(
            f"`sequence_length` must be an integer of at least {minimum}, for the special tokens "
            f"and a token of each text. Received: sequence_length={sequence_length!r:.80}"
        )
    return int(sequence_length)


def check_number_or_none(**arguments) -> None:
    """Raises a `ValueError` if an argument is neither a number nor `None`."""
    for name, value in arguments.items():
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if value is not None and (not is_number or value != value):
            raise ValueError(f"`{name}` must be a number or None. Received: {name}={value!r:.80}")
