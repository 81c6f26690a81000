"""The mentions of a text, as `resolve` gives them, in the order of the text."""

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import NamedTuple


class Mention(NamedTuple):
    """A mention of a text's."""

    start: int
    end: int  # The place behind its last character.
    cluster: int  # Counted from 0.
    is_main: bool
    score: float | None


def mentions_of(text: str, clusters: Sequence) -> list[Mention]:
    """The mentions of clusters: by their places, an outer one before those that it holds.

    Args:
        text: string.
        clusters: list of clusters as `resolve` gives them, lists of dicts of
            `text`, `start` and `end`, the main mention first; and of `score`, a
            float, where there are scores.

    Returns:
        List of `Mention`, a cluster's mention of the same place once.

    Raises:
        ValueError: where `clusters` are no lists of mentions, or a mention is not the
            slice of the text that it says.
    """
    mentions = []
    for number, cluster in enumerate(_listed(clusters)):
        seen = set()
        for mention in _listed(cluster):
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


def _listed(given):
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        _refuse(given)
    return given


def _check_mention(mention):
    if not isinstance(mention, Mapping) or not {"text", "start", "end"} <= mention.keys():
        _refuse(mention)
    if not all(isinstance(mention[name], Integral) for name in ("start", "end")):
        _refuse(mention)


def _refuse(given):
    raise ValueError(
        '`clusters` must be lists of mentions, dicts with "text", "start" and "end" (whole '
        f'numbers), as resolve(text)["clusters"] gives. Received: {given!r:.200}'
    )
