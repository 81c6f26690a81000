"""The mentions of a text, as `resolve` gives them, in the order of the text."""

from collections.abc import Sequence
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
        ValueError: where a mention is not the slice of the text that it says.
    """
    mentions = []
    for number, cluster in enumerate(clusters):
        seen = set()
        for mention in cluster:
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
