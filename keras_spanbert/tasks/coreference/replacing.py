"""A text that can be read without what stands around it: mentions by their full names."""

import bisect
import re
from collections.abc import Sequence

from keras_spanbert.tasks.coreference.main_mention import (
    POSSESSIVES,
    PRONOUNS,
    REFLEXIVES,
    RELATIVES,
    is_pronoun,
)
from keras_spanbert.tasks.coreference.mentions import Mention, mentions_of

# First words of a mention that are lower-case within a sentence.
_DETERMINERS = POSSESSIVES | frozenset(
    "a an the this that these those some any every each no all both one two three another "
    "many most several such".split()
)
# Names in their places would seem to be others: "Ann hurt Ann" speaks of two.
_STAYING = RELATIVES | REFLEXIVES | frozenset(["each other", "one another"])
_CONJUNCTIONS = frozenset("and but nor or".split())
# What may follow the object "her" and seldom begins what somebody has.
_AFTER_OBJECT = _DETERMINERS | (PRONOUNS - {"other"}) | frozenset(
    "about above across after again against ago ahead alone along already also although always "
    "am among and anything anyway are around as aside at away back because been before behind "
    "being below beside between beyond but by can could did do does down during either else "
    "enough even ever everything except for forever from had has have here how if in inside "
    "instead into is just later like may might much must near never nor not nothing now of off "
    "often on once onto or out outside over past perhaps quickly quite rather shall should "
    "since so something somewhere soon still than then there though through till to today "
    "together tomorrow tonight too toward towards under unless until up upon very was well were "
    "when whenever where wherever whether while why will with within without would yes yesterday "
    "yet".split()
)  # fmt: skip

_AFTER_OBJECT |= frozenset(
    "be become believe come die do eat feel get give go goodbye know make say see sing sit speak "
    "stay take tell therefore think thrice thus twice understand want".split()
)
# These do so at the end of a clause, as words in -ly and -ing do that are no nouns.
_AT_CLAUSE_END = frozenset(
    "afraid alive angry cold dead first free happy ill mad proud ready sad safe sick warm".split()
)
_NOUNS = frozenset(
    "ally assembly belly bully butterfly family folly jelly melancholy reply supply bearing "
    "blessing breathing clothing darling drawing dressing earring evening feeling handwriting "
    "hearing king knitting living lodging meaning morning mourning offspring painting ring sewing "
    "sibling singing stocking string suffering thing training understanding undoing upbringing "
    "warning wedding wing writing".split()
)
# Nouns, but verbs behind "let her" and "made her".
_VERBS_TOO = frozenset(
    "cry dance drink laugh leave look run sleep smile stand talk turn wait walk work".split()
)
_LET = re.compile(r"\b(?:lets?|letting|mak(?:es?|ing)|made|help(?:s|ed|ing)?)\s+\Z", re.IGNORECASE)
_CAPITALISED = frozenset(  # These are no names that begin a clause.
    "Christian Christmas English Excellency French German Grace Highness Italian Ladyship Latin "
    "Majesty Spanish Sunday".split()
)

_MARK_OF_POSSESSION = re.compile(r"(?:\s?['’][sS]|(?<=[sS])\s?['’])\Z")
_VERBS = r"\s?['’](?:m|re|ve|ll|d)\Z"
_JOINED_AT_END = re.compile(f"{_MARK_OF_POSSESSION.pattern}|{_VERBS}", re.IGNORECASE)
_NEXT_WORD = re.compile(r"\s+([^\W\d_]+)")
# A comma ends a clause behind an adverb, and joins adjectives: "her sad, old eyes".
_WORD_BEHIND = re.compile(r"(?:(?:(?<!ly)\s?,)?\s+|-)([^\W\d_]+)")
# With a pronoun before it, a verb that a name cannot take its place beside.
_JOINED_VERB = re.compile(r"\s?['’](?:m|re|ve)\b", re.IGNORECASE)
# At the end of a mention, which a name would leave without its verb. "he's" may be "his".
_VERB_WITHIN = re.compile(
    rf"{_VERBS}|(?:\b(?:he|she|it|that|who|what)\s?|\A)['’]s\Z", re.IGNORECASE
)
# The end of a sentence or paragraph, or the quotation mark that opens one.
_SENTENCE_START = re.compile(
    r"(?:\A\s*|[.!?…](?:\s?[\"'”’)\]])*\s+|\n\s*\n\s*|(?<!\S)[\"“‘(\[]\s?)[\"'“‘(\[]*\Z"
)
_MOST_BEFORE = 24  # Characters that show whether a sentence begins.


def replace(text: str, clusters: Sequence) -> str:
    """A text with each mention replaced by its cluster's main mention.

    - A mention inside of one that is replaced goes with it: the outermost wins.
      What stays, as main mentions do, has its inner mentions replaced, "his
      wife" becomes "Bob's wife", and so it stands for "she" too. Of mentions
      that cross, the first wins.
    - What says whose, "his", "her book" and "hers", or ends in "'s", becomes a
      main mention with "'s", or "'" behind an s; elsewhere a main mention that
      ends in these is written without. "her" counts as whose where it begins a
      longer mention, or goes before a word that seldom follows the object "her",
      as "to", "was", a name or "warmly" at a clause's end do. This is a rule of
      thumb by lists of words: "gave her money" is taken for whose money.
    - What is the main mention but for case or "'s" stays, and so do mentions
      whose main mention is a pronoun, "who", "which" and "that", "himself" and
      "each other", pronouns that are one with their verb ("I'm", "they've"), a
      mention that holds its verb ("she'll", and "she's", which may be "is" or
      "has"), and a mention inside of one of its own cluster, or inside of one
      that its main mention speaks of, as "her husband" and "his wife" do of
      each other.
    - A main mention is capitalised where the mention was for beginning a
      sentence, and loses the capital that it had for it, as "The old man" does,
      within one. Verbs stay as they are: "I am" becomes "Ann am".

    Args:
        text: string.
        clusters: list of clusters as `resolve` gives them, the main mention of
            each first.

    Returns:
        String.

    Raises:
        ValueError: where `clusters` are no lists of mentions, or a mention is not the
            slice of the text that it says.

    Example:
    ```python
    text = "Ann sold her book."
    ann = [{"text": "Ann", "start": 0, "end": 3}, {"text": "her", "start": 9, "end": 12}]
    replace(text, [ann])  # "Ann sold Ann's book."
    ```
    """
    return _Replacing(text, mentions_of(text, clusters)).written()


class _Replacing:
    def __init__(self, text: str, mentions: list[Mention]):
        self.text = text
        self.mentions = mentions
        self.main = {m.cluster: m for m in mentions if m.is_main}
        self.full_names = {}
        self.clusters_of_main = {}
        self.apostrophe = "’" if "’" in text and "'" not in text else "'"

    def written(self) -> str:
        return self._written(0, len(self.text), [], self._full_name)

    def _written(self, start, end, enclosing, name_of):
        """A stretch of the text, each mention in it by the name of its cluster.

        Args:
            start, end: int.
            enclosing: list of `(end, cluster)`, of mentions around the stretch
                that stay, which grows and shrinks by those within.
            name_of: function of a cluster.
        """
        pieces, at = [], start
        for i, mention in self._within(start, end):
            while enclosing and enclosing[-1][0] <= mention.start:
                enclosing.pop()
            crosses = enclosing and mention.end > enclosing[-1][0]
            if mention.start < at or crosses:
                continue
            around = {cluster for _, cluster in enclosing}
            if around & self._clusters_of_main(mention.cluster) or self._stays(mention, i):
                enclosing.append((mention.end, mention.cluster))
                continue
            pieces += [self.text[at : mention.start], self._fitted(name_of(mention.cluster), i)]
            at = mention.end
        return "".join([*pieces, self.text[at:end]])

    def _within(self, start, end):
        """The mentions of a stretch of the text, with their numbers."""
        first = bisect.bisect_left(self.mentions, start, key=lambda m: m.start)
        for i in range(first, len(self.mentions)):
            if self.mentions[i].start >= end:
                break
            if self.mentions[i].end <= end:
                yield i, self.mentions[i]

    def _clusters_of_main(self, cluster):
        """The clusters of the main mention and of those in it: within these it would say itself."""
        if cluster not in self.clusters_of_main:
            main = self.main[cluster]
            within = self._within(main.start, main.end)
            self.clusters_of_main[cluster] = {mention.cluster for _, mention in within}
        return self.clusters_of_main[cluster]

    def _stays(self, mention, i):
        main = self.main[mention.cluster]
        own = self._own(mention).lower()
        name = _alone(self._own(main)).lower()
        if mention.is_main or is_pronoun(name.split()) or _alone(own) in _STAYING:
            return True
        if _VERB_WITHIN.search(own):
            return True
        if own in PRONOUNS and _JOINED_VERB.match(self.text, mention.end):
            return True
        return _alone(own) == name and not self._is_possessive_pronoun(i)

    def _own(self, mention):
        return self.text[mention.start : mention.end]

    def _full_name(self, cluster):
        """The main mention, the mentions in it by their main mentions as these stand."""
        if cluster not in self.full_names:
            main = self.main[cluster]
            enclosing = [(main.end, cluster)]
            self.full_names[cluster] = self._without_capital(
                main, self._written(main.start, main.end, enclosing, self._name)
            )
        return self.full_names[cluster]

    def _name(self, cluster):
        main = self.main[cluster]
        return self._without_capital(main, self._own(main))

    def _without_capital(self, main, name):
        name = _alone(name)
        first, _, rest = name.partition(" ")
        if rest and first.istitle() and first.lower() in _DETERMINERS:
            # Else it is a name's, as in "The Hague".
            if self._begins_sentence(main.start) or not rest[0].isupper():
                return name[0].lower() + name[1:]
        return name

    def _fitted(self, name, i):
        """A main mention's name in the place of mention number `i`."""
        mention = self.mentions[i]
        own = self._own(mention)
        if _MARK_OF_POSSESSION.search(own) or self._is_possessive_pronoun(i):
            ends_in_s = name[-1] in "sS" and name[-2:].lower() != "ss"
            name += self.apostrophe + ("" if ends_in_s else "s")
        if own[0].isupper() and self._begins_sentence(mention.start):
            name = name[0].upper() + name[1:]
        return name

    def _is_possessive_pronoun(self, i):
        mention = self.mentions[i]
        own = self._own(mention).lower()
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
        if self._own(mention) != "her":  # It begins a sentence or a title.
            return True
        if found.group(1)[0].isupper():
            return found.group(1) in _CAPITALISED
        if word in _VERBS_TOO:
            before = self.text[max(0, mention.start - _MOST_BEFORE) : mention.start]
            return not _LET.search(before)
        if word in _AT_CLAUSE_END or (word.endswith(("ly", "ing")) and word not in _NOUNS):
            behind = _WORD_BEHIND.match(self.text, found.end())
            return bool(behind) and behind.group(1).lower() not in _AFTER_OBJECT
        return True

    def _begins_sentence(self, place):
        first = max(0, place - _MOST_BEFORE)
        before = self.text[first:place]
        # A place in the middle is no beginning.
        return bool(_SENTENCE_START.search(before if first == 0 else f"_{before}"))


def _alone(name):
    """A mention without a mark of possession or a verb at its end."""
    return _JOINED_AT_END.sub("", name) or name
