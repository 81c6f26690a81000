"""Sorts the mentions in results of `resolve`, and chooses the main mention of a cluster."""

import math
from collections.abc import Sequence
from numbers import Integral
from typing import NamedTuple

POSSESSIVES = frozenset(
    "my mine thy thine your yours his her hers its our ours their theirs".split()
)  # "her" can also be an object.
RELATIVES = frozenset("who whom whose which what that".split())
REFLEXIVES = frozenset(
    "myself thyself yourself himself herself itself oneself themself ourself ourselves yourselves "
    "themselves hisself theirselves".split()
)
PRONOUNS = POSSESSIVES | RELATIVES | REFLEXIVES | frozenset(
    "i me thou thee ye you he him she it we us they them 'em one this these those each other "
    "another both all some any none".split()
)  # fmt: skip
_ARTICLES = frozenset("the a an".split())
# Words that start or join a clause. A name ends before them.
_JOINTS = frozenset('who whom whose which that where when , ; : ( ) -- — – - " “ ” ...'.split())

NAME, NOUN, PRONOUN = range(3)


class Mention(NamedTuple):
    """A mention of a text."""

    text: str
    start: int
    end: int  # The index after its last character.
    cluster: int  # The number of its cluster, from 0.
    is_main: bool
    score: float | None
    link_score: float | None
    antecedent: str | None


def sort_mentions(text: str, clusters: Sequence) -> list[Mention]:
    """Returns the mentions of clusters in text order, an outer one before those inside it.

    A cluster's mentions at the same position are listed once. `clusters` are from
    `resolve`: lists of dicts with `text`, `start` and `end`, and optionally `score`,
    the main mention first.

    Raises:
        ValueError: if `clusters` are not lists of mentions, or a mention's text is not
            the slice of the text at its position.
    """

    found, mains = {}, set()
    try:
        pairs = [
            (number, mention) for number, cluster in enumerate(clusters) for mention in cluster
        ]
    except TypeError:
        pairs = [(0, clusters)]
    for number, mention in pairs:
        match mention:
            case {"text": str() as own, "start": Integral() as start, "end": Integral() as end}:
                pass
            case _:
                raise ValueError(
                    '`clusters` must be lists of mentions, dicts with "text", "start" and "end" '
                    '(integers), as resolve(text)["clusters"] returns them. Received: '
                    f"{mention!r:.80} in {clusters!r:.200}"
                )
        if not (0 <= start < end <= len(text) and text[start:end] == own):
            raise ValueError(
                "A mention's text must be text[start:end]. Received: "
                f"{dict(mention)!r:.200} of a text of {len(text)} characters"
            )
        is_main, antecedent = number not in mains, mention.get("antecedent") or {}
        scores = mention.get("score"), mention.get("link_score"), antecedent.get("text")
        found.setdefault((number, start, end), Mention(own, start, end, number, is_main, *scores))
        mains.add(number)
    return sorted(found.values(), key=lambda m: (m.start, -m.end, m.cluster))


def cluster_score(cluster: Sequence[dict]) -> float | None:
    """Returns the score of a cluster from `resolve` with `scores`: see there."""
    links = [m["link_score"] for m in cluster if m.get("link_score") is not None]
    if links:
        return sum(links) / len(links)
    if len(cluster) > 1 or cluster[0].get("score") is None:
        return None
    return 0.5 + 0.5 * math.tanh(0.5 * cluster[0]["score"])  # The logistic function.


def is_pronoun(words: Sequence[str]) -> bool:
    """Returns whether all of a mention's words are pronouns, as in "he himself"."""
    return bool(words) and all(word.lower() in PRONOUNS for word in words)


def mention_type(words: Sequence[str], begins_sentence: bool, lower_words: frozenset) -> int:
    """Returns whether a mention is a name, another noun or a pronoun.

    It is a pronoun if all its words are. It is a name if the first word after
    articles is capitalized for another reason than starting a sentence.
    `lower_words` are the words of the text that occur in lower case.
    """
    if is_pronoun(words):
        return PRONOUN
    place = next((i for i, word in enumerate(words) if word.lower() not in _ARTICLES), 0)
    word = words[place]
    if not word[:1].isupper() or word.lower() in PRONOUNS:
        return NOUN
    is_first = begins_sentence and place == 0
    return NOUN if is_first and word.lower() in lower_words else NAME


def sort_key(words: Sequence[str], kind: int, start: int, count: int) -> tuple:
    """Returns the sort key of a cluster's mentions. The best mention has the lowest key.

    Names come before other nouns, and those before pronouns. Next come phrases
    without a clause or a list. More frequent mentions come before less frequent
    ones (`count` in the cluster), so that a long name that was linked by mistake
    does not represent the cluster. Next come longer mentions, then earlier ones.
    """
    has_joint = any(word.lower() in _JOINTS for word in words)
    return kind, has_joint, -count, -sum(map(len, words)), start
