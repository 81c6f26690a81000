"""Sorts the mentions of a text, and replaces them with the main mention of their cluster."""

import bisect
import math
import re
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
# Nouns that `is_verb` would take for verbs.
_NOT_VERBS = frozenset(
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
    """Returns the mentions of `resolve`'s clusters in text order, outer ones first, each once.

    The main mention of a cluster is its first. Raises `ValueError` if `clusters` are not lists of
    mentions, or a mention's text is not the slice of the text at its position.
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

    `before` and `after` are the words next to the mention in its sentence, or `""`.
    """
    # A verb is a single word in lower case: a past form, or next to a word that often occurs next
    # to a verb, and seldom next to a noun without an article. This is a heuristic for English. It
    # takes "workers" for a verb in "gave workers the day off".
    word, last = words[0], before.lower()
    if len(words) > 1 or not word.isalpha() or not word.islower() or word in PRONOUNS | _NOT_VERBS:
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

    `lower_words` are the words of the text that occur in lower case.
    """
    if is_pronoun(words):
        return PRONOUN
    # A name's first word after articles is capitalized, not only because it starts a sentence.
    place = next((i for i, word in enumerate(words) if word.lower() not in _ARTICLES), 0)
    word = words[place]
    if not word[:1].isupper() or word.lower() in PRONOUNS:
        return NOUN
    is_first = begins_sentence and place == 0
    return NOUN if is_first and word.lower() in lower_words else NAME


def sort_key(words: Sequence[str], kind: int, start: int, count: int) -> tuple:
    """Returns the sort key of a cluster's mentions. The best mention has the lowest key."""
    has_joint = any(word.lower() in _JOINTS for word in words)
    # More frequent mentions come first, so that a long name that was linked by mistake does not
    # represent the cluster. Next come longer mentions, then earlier ones.
    return kind, has_joint, -count, -sum(map(len, words)), start


# First words of a mention that are lower case within a sentence.
_DETERMINERS = POSSESSIVES | frozenset(
    "a an the this that these those some any every each no all both one two three another "
    "many most several such".split()
)
# Words that a name does not replace: "Ann hurt Ann" would mean two people.
_STAYING = RELATIVES | REFLEXIVES | frozenset(["each other", "one another"])
_CONJUNCTIONS = frozenset("and but nor or".split())
# Words that may follow the object "her" but seldom follow the possessive "her".
_AFTER_OBJECT = _DETERMINERS | (PRONOUNS - {"other"}) | frozenset(
    "about above across after again against ago ahead alone along already also although always am "
    "among and anything anyway are around as aside at away back because been before behind being "
    "below beside between beyond but by can could did do does down during either else enough even "
    "ever everything except for forever from had has have here how if in inside instead into is "
    "just later like may might much must near never nor not nothing now of off often on once onto "
    "or out outside over past perhaps quickly quite rather shall should since so something "
    "somewhere soon still than then there though through till to today together tomorrow tonight "
    "too toward towards under unless until up upon very was well were when whenever where "
    "wherever whether while why will with within without would yes yesterday yet be become "
    "believe come die do eat feel get give go goodbye know make say see sing sit speak stay take "
    "tell therefore think thrice thus twice understand want".split()
)  # fmt: skip
# Words that follow the object "her" at the end of a clause. So do words in -ly and -ing, except
# `_NOT_ADVERBS`.
_AT_CLAUSE_END = frozenset(
    "afraid alive angry cold dead first free happy ill mad proud ready sad safe sick warm".split()
)
_NOT_ADVERBS = frozenset(
    "ally assembly belly bully butterfly family folly jelly melancholy reply supply bearing "
    "blessing breathing clothing darling drawing dressing earring evening feeling handwriting "
    "hearing king knitting living lodging meaning morning mourning offspring painting ring sewing "
    "sibling singing stocking string suffering thing training understanding undoing upbringing "
    "warning wedding wing writing".split()
)
# Nouns that are verbs after "let her" and "made her".
_ALSO_VERBS = frozenset(
    "cry dance drink laugh leave look run sleep smile stand talk turn wait walk work".split()
)
_LET = re.compile(r"\b(?:lets?|letting|mak(?:es?|ing)|made|help(?:s|ed|ing)?)\s+\Z", re.IGNORECASE)
# Capitalized words that follow the possessive "her". Others are names that begin a clause.
_CAPITALIZED = frozenset(
    "Christian Christmas English Excellency French German Grace Highness Italian Ladyship Latin "
    "Majesty Spanish Sunday".split()
)
_MARK_OF_POSSESSION = re.compile(r"(?:\s?['’][sS]|(?<=[sS])\s?['’])\Z")
_VERBS = r"\s?['’](?:m|re|ve|ll|d)\Z"
_JOINED_AT_END = re.compile(f"{_MARK_OF_POSSESSION.pattern}|{_VERBS}", re.IGNORECASE)
_NEXT_WORD = re.compile(r"\s+([^\W\d_]+)")
_WORD_BEFORE = re.compile(r"([\w'’]+)\s+\Z")
# Between mentions that are not next to each other: a word, or the end of a clause or paragraph.
_APART = re.compile(r"\w|[.!?…;]|\n\s*\n")
# A comma ends a clause after an adverb, and joins adjectives: "her sad, old eyes".
_WORD_BEHIND = re.compile(r"(?:(?:(?<!ly)\s?,)?\s+|-)([^\W\d_]+)")
# A verb joined to the pronoun before it. A name cannot replace such a pronoun.
_JOINED_VERB = re.compile(r"\s?['’](?:m|re|ve)\b", re.IGNORECASE)
# A verb at the end of a mention, which a name would drop. "he's" may be "his".
_VERB_WITHIN = re.compile(
    rf"{_VERBS}|(?:\b(?:he|she|it|that|who|what)\s?|\A)['’]s\Z", re.IGNORECASE
)
# The end of a sentence or paragraph, or the quotation mark that opens one.
_SENTENCE_START = re.compile(
    r"(?:\A\s*|[.!?…](?:\s?[\"'”’)\]])*\s+|\n\s*\n\s*|(?<!\S)[\"“‘(\[]\s?)[\"'“‘(\[]*\Z"
)
_MAX_BEFORE = 24  # Number of characters to check for the start of a sentence.


def replace(text: str, clusters: Sequence) -> str:
    """Replaces each mention in a text with its cluster's main mention.

    - The outermost of nested mentions is replaced, together with those inside it.
      In a mention that stays, such as a main mention, the inner mentions are
      replaced: "his wife" becomes "Bob's wife". "she" is then also replaced with
      "Bob's wife". If mentions cross, the first is replaced.
    - A possessive, such as "his", "her book", "hers" or a mention in "'s", is
      replaced with a main mention in "'s", or in "'" after an s. Elsewhere a main
      mention is written without this ending. "her" is possessive if it begins a
      longer mention, or precedes a word that seldom follows the object "her".
      Examples are "to", "was", a name, or "warmly" at the end of a clause. This is
      a heuristic with lists of words: it treats "her" in "gave her money" as
      possessive.
    - A mention stays if it equals the main mention except for case or "'s", or if
      the main mention is a pronoun or a verb. A verb stays: OntoNotes links "sold" to
      "the sale". Mentions of a cluster are next to each other if there is no
      word and no end of a clause or paragraph between them, as in "her brother, Tom". Only the
      first of them is replaced, and none of them if one is the main mention or equals it.
      "who", "which", "that", "himself" and "each other" stay, as do pronouns joined
      to a verb ("I'm", "they've"), and mentions that include a verb ("she'll", or
      "she's", which may be "is" or "has"). A mention inside one of its own cluster
      stays too, or inside one that its main mention refers to, as "her husband" and
      "his wife" refer to each other.
    - A main mention is capitalized if the mention was capitalized at the start of a
      sentence. Within a sentence it loses a capital that it only had as the start
      of a sentence, such as in "The old man". Verbs do not change: "I am" becomes
      "Ann am".

    Args:
        text: string.
        clusters: list of clusters from `resolve`, each with its main mention
            first.

    Returns:
        String.

    Raises:
        ValueError: if `clusters` are not lists of mentions, or a mention's text is not
            the slice of the text at its position.

    Example:
    ```python
    text = "Ann sold her book."
    ann = [{"text": "Ann", "start": 0, "end": 3}, {"text": "her", "start": 9, "end": 12}]
    replace(text, [ann])  # "Ann sold Ann's book."
    ```
    """
    replacing = _Replacing(text, sort_mentions(text, clusters))
    return replacing.replaced_text(0, len(text), [], replacing.full_name)


class _Replacing:
    def __init__(self, text: str, mentions: list[Mention]):
        self.text = text
        self.mentions = mentions
        self.main = {m.cluster: m for m in mentions if m.is_main}
        self.groups = self._find_groups()
        self.full_names = {}
        self.clusters_of_main = {}
        self.apostrophe = "’" if "’" in text and "'" not in text else "'"

    def _find_groups(self):
        """Returns, for each mention, its group: mentions of its cluster next to each other."""
        groups, last = [], {}
        for mention in self.mentions:
            group = last.get(mention.cluster, [])
            is_inside = group and mention.end <= group[-1].end
            between = group and (group[-1].end, max(group[-1].end, mention.start))
            if is_inside or not group or _APART.search(self.text, *between):
                group = [mention]
            else:
                group.append(mention)
            groups.append(group)
            if not is_inside:
                last[mention.cluster] = group
        return groups

    def replaced_text(self, start, end, enclosing, name_of):
        """Returns a part of the text with each mention replaced with its cluster's name.

        `enclosing` is a list of `(end, cluster)` of the mentions around the part that stay.
        Mentions inside the part are added and removed. `name_of` is a function of a cluster.
        """
        pieces, at = [], start
        for i, mention in self._mentions_within(start, end):
            while enclosing and enclosing[-1][0] <= mention.start:
                enclosing.pop()
            crosses = enclosing and mention.end > enclosing[-1][0]
            if mention.start < at or crosses:
                continue
            repeats = self._clusters_in_main_mention(mention.cluster)
            if any(cluster in repeats for _, cluster in enclosing) or self._is_kept(i):
                enclosing.append((mention.end, mention.cluster))
                continue
            pieces += [self.text[at : mention.start], self._inflect(name_of(mention.cluster), i)]
            at = mention.end
        return "".join([*pieces, self.text[at:end]])

    def _mentions_within(self, start, end):
        """Yields the mentions in a part of the text, with their numbers."""
        first = bisect.bisect_left(self.mentions, start, key=lambda m: m.start)
        for i in range(first, len(self.mentions)):
            if self.mentions[i].start >= end:
                break
            if self.mentions[i].end <= end:
                yield i, self.mentions[i]

    def _clusters_in_main_mention(self, cluster):
        """Returns the clusters of the main mention and of those in it, to avoid repetition."""
        if cluster not in self.clusters_of_main:
            main = self.main[cluster]
            within = self._mentions_within(main.start, main.end)
            self.clusters_of_main[cluster] = {mention.cluster for _, mention in within}
        return self.clusters_of_main[cluster]

    def _is_kept(self, i):
        mention, main = self.mentions[i], self.main[self.mentions[i].cluster]
        own, name = mention.text.lower(), _strip_clitic(main.text).lower()
        if mention.is_main or is_pronoun(name.split()) or _strip_clitic(own) in _STAYING:
            return True
        if self._is_verb(mention) or self._is_verb(main):
            return True
        group = self.groups[i]
        if group[0] is not mention or any(m is not mention and self._is_named(m) for m in group):
            return True
        if _VERB_WITHIN.search(own):
            return True
        if own in PRONOUNS and _JOINED_VERB.match(self.text, mention.end):
            return True
        return self._is_named(mention) and not self._is_possessive_pronoun(i)

    def _is_named(self, mention):
        """Returns whether a mention is the main mention, or reads like it."""
        name = _strip_clitic(self.main[mention.cluster].text)
        return mention.is_main or _strip_clitic(mention.text).lower() == name.lower()

    def _is_verb(self, mention):
        before = _WORD_BEFORE.search(self.text[max(0, mention.start - _MAX_BEFORE) : mention.start])
        after = _NEXT_WORD.match(self.text, mention.end)
        return is_verb(
            mention.text.split() or [""],
            before.group(1) if before else "",
            after.group(1) if after else "",
        )

    def full_name(self, cluster):
        """Returns the main mention, with the main mentions of those in it in their places."""
        if cluster not in self.full_names:
            main = self.main[cluster]
            enclosing = [(main.end, cluster)]
            self.full_names[cluster] = self._without_capital(
                main, self.replaced_text(main.start, main.end, enclosing, self._name)
            )
        return self.full_names[cluster]

    def _name(self, cluster):
        main = self.main[cluster]
        return self._without_capital(main, main.text)

    def _without_capital(self, main, name):
        name = _strip_clitic(name)
        first, _, rest = name.partition(" ")
        if rest and first.istitle() and first.lower() in _DETERMINERS:
            # Otherwise the word belongs to a name, as in "The Hague".
            if self._begins_sentence(main.start) or not rest[0].isupper():
                return name[0].lower() + name[1:]
        return name

    def _inflect(self, name, i):
        """Returns a main mention's name in the form that fits mention number `i`."""
        mention = self.mentions[i]
        own = mention.text
        if _MARK_OF_POSSESSION.search(own) or self._is_possessive_pronoun(i):
            ends_in_s = name[-1] in "sS" and name[-2:].lower() != "ss"
            name += self.apostrophe + ("" if ends_in_s else "s")
        if own[0].isupper() and self._begins_sentence(mention.start):
            name = name[0].upper() + name[1:]
        return name

    def _is_possessive_pronoun(self, i):
        mention = self.mentions[i]
        own = mention.text.lower()
        if own != "her":
            return own in POSSESSIVES
        found = _NEXT_WORD.match(self.text, mention.end)
        if not found:
            return False
        word = found.group(1).lower()
        outer = self.mentions[i - 1] if i else mention
        if outer.start == mention.start and outer.end > mention.end:
            return word not in _CONJUNCTIONS
        if word in _AFTER_OBJECT:
            return False
        if mention.text != "her":  # Capitalized, as at the start of a sentence.
            return True
        if found.group(1)[0].isupper():
            return found.group(1) in _CAPITALIZED
        if word in _ALSO_VERBS:
            before = self.text[max(0, mention.start - _MAX_BEFORE) : mention.start]
            return not _LET.search(before)
        if word in _AT_CLAUSE_END or (word.endswith(("ly", "ing")) and word not in _NOT_ADVERBS):
            behind = _WORD_BEHIND.match(self.text, found.end())
            return bool(behind) and behind.group(1).lower() not in _AFTER_OBJECT
        return True

    def _begins_sentence(self, place):
        first = max(0, place - _MAX_BEFORE)
        before = self.text[first:place]
        # "_" marks that more text precedes, so that the pattern does not match the text's start.
        return bool(_SENTENCE_START.search(before if first == 0 else f"_{before}"))


def _strip_clitic(name):
    """Returns a mention without a possessive ending or a verb at its end."""
    return _JOINED_AT_END.sub("", name) or name
