"""Sorts the mentions in results of `resolve` by their position in the text."""

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import NamedTuple


class Mention(NamedTuple):
    """A mention of a text."""

    start: int
    end: int  # The index after its last character.
    cluster: int  # The number of its cluster, from 0.
    is_main: bool
    score: float | None


def sort_mentions(text: str, clusters: Sequence) -> list[Mention]:
    """Returns the mentions of clusters in text order, an outer one before those inside it.

    Args:
        text: string.
        clusters: list of clusters from `resolve`, lists of dicts with `text`, `start`
            and `end`, and optionally `score`, a float. The main mention comes
            first.

    Returns:
        List of `Mention`. A cluster's mentions at the same position are listed once.

    Raises:
        ValueError: if `clusters` are not lists of mentions, or a mention's text is not
            the slice of the text at its position.
    """
    mentions = []
    for number, cluster in enumerate(_to_list(clusters)):
        seen = set()
        for mention in _to_list(cluster):
            _check_mention(mention)
            start, end = mention["start"], mention["end"]
            is_slice = 0 <= start < end <= len(text) and text[start:end] == mention["text"]
            if not is_slice:
                raise ValueError(
                    "A mention's text must be text[start:end]. Received: "
                    f"{dict(mention)!r:.200} of a text of {len(text)} characters"
                )
            if (start, end) not in seen:
                mentions.append(Mention(start, end, number, not seen, mention.get("score")))
                seen.add((start, end))
    return sorted(mentions, key=lambda m: (m.start, -m.end, m.cluster))


def _to_list(given):
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        _raise_error(given)
    return given


def _check_mention(mention):
    if not isinstance(mention, Mapping) or not {"text", "start", "end"} <= mention.keys():
        _raise_error(mention)
    if not all(isinstance(mention[name], Integral) for name in ("start", "end")):
        _raise_error(mention)


def _raise_error(given):
    raise ValueError(
        '`clusters` must be lists of mentions, dicts with "text", "start" and "end" (integers), '
        f'as resolve(text)["clusters"] returns them. Received: {given!r:.200}'
    )
