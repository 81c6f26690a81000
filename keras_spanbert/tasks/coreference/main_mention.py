"""Which mention of a cluster names it best."""

from collections.abc import Sequence

POSSESSIVES = frozenset(
    "my mine thy thine your yours his her hers its our ours their theirs".split()
)  # "her" is an object too.
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
# What begins or joins a clause: a name goes no further.
_JOINTS = frozenset('who whom whose which that where when , ; : ( ) -- — – - " “ ” ...'.split())

NAME, NOUN, PRONOUN = range(3)


def is_pronoun(words: Sequence[str]) -> bool:
    """Whether all of a mention's words are pronouns, as in "he himself"."""
    return bool(words) and all(word.lower() in PRONOUNS for word in words)


def kind_of(words: Sequence[str], begins_sentence: bool, lower_words: frozenset) -> int:
    """Whether a mention is a name, another noun or a pronoun.

    It is a pronoun where all its words are, and a name where the first word behind
    articles has a capital letter that it has not merely as the first of a sentence.

    Args:
        words: the mention's words.
        begins_sentence: bool. Whether it is the first of its sentence.
        lower_words: the words of the text that are written in lower case.

    Returns:
        `NAME`, `NOUN` or `PRONOUN`.
    """
    if is_pronoun(words):
        return PRONOUN
    place = next((i for i, word in enumerate(words) if word.lower() not in _ARTICLES), 0)
    word = words[place]
    if not word[:1].isupper() or word.lower() in PRONOUNS:
        return NOUN
    is_first = begins_sentence and place == 0
    return NOUN if is_first and word.lower() in lower_words else NAME


def rank(words: Sequence[str], kind: int, start: int, count: int) -> tuple:
    """What mentions of a cluster are sorted by, the best first.

    A name comes before another noun and that before a pronoun; then a phrase of one
    piece before one with a clause or a list, what is said most often, `count` times
    in the cluster, before what is seldom, so that a long name that was linked by
    mistake does not stand for all, the longer before the shorter, and the earlier
    before the later.
    """
    has_joint = any(word.lower() in _JOINTS for word in words)
    return kind, has_joint, -count, -sum(map(len, words)), start
