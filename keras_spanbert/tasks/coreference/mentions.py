"""Ranks the mentions of a cluster, so that the best one represents it."""

from collections.abc import Sequence

_PRONOUNS = frozenset(
    "my mine thy thine your yours his her hers its our ours their theirs who whom whose which what "
    "that myself thyself yourself himself herself itself oneself themself ourself ourselves "
    "yourselves themselves hisself theirselves i me thou thee ye you he him she it we us they them "
    "'em one this these those each other another both all some any none".split()
)
_ARTICLES = frozenset("the a an".split())
# Words that start or join a clause. A name ends before them.
_JOINTS = frozenset('who whom whose which that where when , ; : ( ) -- — – - " “ ” ...'.split())
NAME, NOUN, PRONOUN = range(3)


def mention_type(words: Sequence[str], begins_sentence: bool, lower_words: frozenset) -> int:
    """Returns whether a mention is a name, another noun or a pronoun.

    `lower_words` are the words of the text that occur in lower case.
    """
    if all(word.lower() in _PRONOUNS for word in words):
        return PRONOUN
    # A name's first word after articles is capitalized, not only because it starts a sentence.
    place = next((i for i, word in enumerate(words) if word.lower() not in _ARTICLES), 0)
    word = words[place]
    if not word[:1].isupper() or word.lower() in _PRONOUNS:
        return NOUN
    is_first = begins_sentence and place == 0
    return NOUN if is_first and word.lower() in lower_words else NAME


def sort_key(words: Sequence[str], kind: int, start: int, count: int) -> tuple:
    """Returns the sort key of a cluster's mentions. The best mention has the lowest key."""
    has_joint = any(word.lower() in _JOINTS for word in words)
    # More frequent mentions come first, so that a long name that was linked by mistake does not
    # represent the cluster. Next come longer mentions, then earlier ones.
    return kind, has_joint, -count, -sum(map(len, words)), start
