"""Helpers for the wording of messages."""


def format_count(count: int, noun: str, plural: str | None = None) -> str:
    """Returns a count with its noun: `1 text`, `2,000 texts`.

    Args:
        count: int.
        noun: string. The singular.
        plural: string. Defaults to `None`: the noun with an `s`.
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
