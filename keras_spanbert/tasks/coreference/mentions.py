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
# Past forms of irregular verbs, except nouns such as "thought" and "felt".
_PAST_FORMS = frozenset(
    "arose arisen ate eaten beaten became began begun bent bitten blew blown bought bound broke "
    "broken brought built burnt burst came caught chose chosen clung crept dealt did done drank "
    "drawn dreamt drew driven drove drunk dug dwelt fallen fed fell felt flew flown forbade "
    "forbidden forgave forgiven forgot forgotten fought froze frozen gave given gone got gotten "
    "grew grown had heard held hid hidden hung hurt kept knew known laid lain leapt learnt led "
    "left lent lit lost made meant met mistook overcame overtook overthrew overthrown paid proven "
    "put quit ran rang read ridden risen rode rose rung said sang sank sat saw seen sent set "
    "shaken shone shook shot shown shrank shrunk shut slain slept slew slid sold sought spent "
    "split spoke spoken sprang spread sprung spun stole stolen stood strewn strode struck stuck "
    "stung sung sunk swam swept swore sworn swum swung taken taught thought threw thrown told "
    "took tore torn understood undertook undone upheld went wept withdrawn withdrew withheld "
    "withstood woke woken won wore worn wove woven written wrote wrung".split()
)
# Nouns that would be verbs by the rules of `is_verb`.
_NOUNS = frozenset(
    "biped hundred infrared kindred moped newlywed sacred shred mother mamma mama mum mom father "
    "papa dad grandmother grandma grandfather grandpa sister brother aunt uncle baby nurse".split()
)
_BE = frozenset("am is are was were be been being 'm 're ’m ’re".split())
# Words before the base form of a verb, or before a participle.
_BEFORE_VERBS = frozenset(
    "i he she we they who to can cannot could may might must shall should will would do does did "
    "n't n’t 'll ’ll 'd ’d not never have has had having".split()
)
# Words before a noun.
_BEFORE_NOUNS = frozenset(
    "about above across after against all along among another any around as at because before "
    "behind below beneath beside between beyond both by certain despite during each either enough "
    "every few for former from here how if in inside into less like many more most much near "
    "neither no of off on only other our out outside over past recently several since some such "
    "than there these this those though through throughout toward towards under unless unlike "
    "until up upon what when where whereas whether which while with within without "
    "yesterday".split()
)
# Words that can begin a sentence. Other capitalized words are assumed to be the subject of a verb.
_OPENERS = PRONOUNS | _BEFORE_NOUNS | frozenset(
    "and but even nor now once or so still that then thus to today together too yet".split()
)  # fmt: skip
# Words that begin the object of a verb, and seldom follow a noun.
_OBJECTS = _ARTICLES | REFLEXIVES | frozenset(
    "my your his her their our its him them me us this these those".split()
)  # fmt: skip
# Words that start or join a clause. A name ends before them.
_JOINTS = frozenset('who whom whose which that where when , ; : ( ) -- — – - " “ ” ...'.split())

NAME, NOUN, VERB, PRONOUN = range(4)


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
    """Returns the score of a cluster from `resolve(..., scores=True)`, which explains it."""
    links = [m["link_score"] for m in cluster if m.get("link_score") is not None]
    if links:
        return sum(links) / len(links)
    if len(cluster) > 1 or cluster[0].get("score") is None:
        return None
    return 0.5 + 0.5 * math.tanh(0.5 * cluster[0]["score"])  # The logistic function.


def is_pronoun(words: Sequence[str]) -> bool:
    """Returns whether all of a mention's words are pronouns, as in "he himself"."""
    return bool(words) and all(word.lower() in PRONOUNS for word in words)


def is_verb(words: Sequence[str], before: str, after: str) -> bool:
    """Returns whether a mention is a verb. OntoNotes links verbs: "sold" and later "the sale".

    A verb is a single word in lower case. It is a past form, or the word before or after
    it is one that often occurs next to a verb, and seldom next to a noun without an
    article. This is a heuristic for English. It takes "workers" for a verb in "gave
    workers the day off", and "rise" for a noun in "oil prices rise again".

    Args:
        words: strings.
        before, after: strings, the words next to the mention in its sentence, or `""`.
    """
    word, last = words[0], before.lower()
    if len(words) > 1 or not word.isalpha() or not word.islower() or word in PRONOUNS | _NOUNS:
        return False
    is_regular = word.endswith("ed") and len(word) > 4 and not word.endswith("eed")
    if word in _PAST_FORMS or is_regular:
        return True
    if last in _BEFORE_VERBS or last.endswith(("n't", "n’t", "'ll", "’ll")):
        return True
    if word.endswith("ing") and last in _BE:
        return True
    is_subject = before.isalpha() and before.istitle() and last not in _OPENERS
    return is_subject or (after.lower() in _OBJECTS and last not in _BEFORE_NOUNS)


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

    Names come before other nouns, then verbs, then pronouns. Next come phrases without
    a clause or a list. More frequent mentions come before less frequent ones (`count`
    in the cluster), so that a long name that was linked by mistake does not represent
    the cluster. Next come longer mentions, then earlier ones.
    """
    has_joint = any(word.lower() in _JOINTS for word in words)
    return kind, has_joint, -count, -sum(map(len, words)), start
