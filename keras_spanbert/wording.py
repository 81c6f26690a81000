"""The log, and the wording of messages."""

import logging

LOG = logging.getLogger("keras_spanbert")


def format_count(count: int, noun: str, plural: str | None = None) -> str:
    """Returns a count with its noun: `1 text`, `2,000 texts`. `plural` defaults to an added `s`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
