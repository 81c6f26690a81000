import time

import bracketed_clusters
import pytest

from keras_spanbert.tasks.coreference.page import cluster_lines, cluster_page
from keras_spanbert.tasks.coreference.replacing import is_verb, replace

REPLACED = {
    "every mention except the main one": (
        "[1* Ann] came. [1 She] sat, and [1 the girl] read.",
        "Ann came. Ann sat, and Ann read.",
    ),
    "outermost mentions, and mentions inside those that are kept": (
        "[1* Bob] met [2* [1 his] wife]. [2 She] kissed [1 him]; [2 [1 his] Ann] left.",
        "Bob met Bob's wife. Bob's wife kissed Bob; Bob's wife left.",
    ),
    "possessives": (
     "[1* Ann] sold [1 her] book. [2* Bob] lost [2 his]; the house is [1 hers], not [2 his].",
     "Ann sold Ann's book. Bob lost Bob's; the house is Ann's, not Bob's."),
    "her as an object": (
     "[1* Ann] said: ask [1 her] to go, see [1 her]. I told [1 her] and Bob it was [1 her].",
     "Ann said: ask Ann to go, see Ann. I told Ann and Bob it was Ann."),
    "her before an adverb, adjective or verb": (
        "[1* Ann]: Bob hugged [1 her] warmly, made [1 her] happy; called [1 her] twice, saw [1 her]"
        " standing there, kissed [1 her] softly and heard [1 her] sing. He told [1 her] Tom left.",
        "Ann: Bob hugged Ann warmly, made Ann happy; called Ann twice, saw Ann"
        " standing there, kissed Ann softly and heard Ann sing. He told Ann Tom left.",
    ),
    "possessive her before similar words": (
        "[1* Ann]: Bob saw [1 her] happy face, [1 her] loving aunt, [1 her] only son, [1 her] sad, "
        "old eyes, [1 her] family, [1 her] wedding, [1 her] friendly-looking cat. [1 Her] Tom left "
        "[1 her] Majesty.",
        "Ann: Bob saw Ann's happy face, Ann's loving aunt, Ann's only son, Ann's sad, "
        "old eyes, Ann's family, Ann's wedding, Ann's friendly-looking cat. Ann's Tom left "
        "Ann's Majesty.",
    ),
    "her before a word that is a noun or a verb": (
     "[1* Ann] talked in [1 her] sleep. Bob let [1 her] sleep and made [1 her] laugh.",
     "Ann talked in Ann's sleep. Bob let Ann sleep and made Ann laugh."),
    "her at the start of a longer mention, unless before a conjunction": (
     "[1* Ann] saw [2* [1 her] past]. [3* [1 her] and Bob] went to [4* [1 her] two boys].",
     "Ann saw Ann's past. Ann and Bob went to Ann's two boys."),
    "names that end in s": (
     "[1* James] lost [1 his] hat; [2* the boys] lost [2 theirs]; [3* the boss] lost [3 hers].",
     "James lost James' hat; the boys lost the boys'; the boss lost the boss's."),
    "next to the main mention": (
     "Anna met [2 [1 her] brother] [2* Tom]. [2 The doctor] saw [1* Anna] [1 herself].",
     "Anna met Anna's brother Tom. Tom saw Anna herself."),
    "next to the main mention with punctuation": (
     "[1* Tom], [1 the doctor], sat; [1 he] left. [2 My aunt] (“[2* Eve]”) gave [1 him] -- "
     "[1 the old man] -- [3* Max's] [3 his] hat. I saw [3 him].",
     "Tom, the doctor, sat; Tom left. My aunt (“Eve”) gave Tom -- the old man -- Max's his hat. "
     "I saw Max."),
    "not next to the main mention": (
     "[1 He] met [1* Tom]. [1 He] sat\n\n[1 He] and [2* Eve]\n\n[2 she] left.",
     "Tom met Tom. Tom sat\n\nTom and Eve\n\nEve left."),
    "next to a mention that equals the main mention": (
     "[2* Tom] left. Anna met [2 her brother], [2 Tom], there.",
     "Tom left. Anna met her brother, Tom, there."),
    "next to each other": (
     "[1* Tom] left. [1 The doctor], [1 an old man], sat, and [1 the man], [1 who] saw it, sang.",
     "Tom left. Tom, an old man, sat, and Tom, who saw it, sang."),
    "inside or across the main mention": (
     "[1* The brother of [2* Eve] ([1 Tom])] left. [1 He] saw [2 her].",
     "The brother of Eve (Tom) left. The brother of Eve (Tom) saw Eve."),
    "verbs": (
     "Ann [1 sold] a house. [1* The sale] was hard. [1 It] took days. They [2 grow]; he'll "
     "[2 grow]; it is [2 growing]. [2* The growth] is slow. The firm [3* announced] [4 a deal]. "
     "[3 It] was new.",
     "Ann sold a house. The sale was hard. The sale took days. They grow; he'll grow; it is "
     "growing. The growth is slow. The firm announced a deal. It was new."),
    "nouns in lower case are no verbs": (
     "[1* The people of Rome] left. For [1 citizens] of [2* The Bronx] and [2 home] it was good.",
     "The people of Rome left. For the people of Rome of The Bronx and The Bronx it was good."),
    "main mentions that end in 's": (
     "[1* Ann's] book is here. [1 She] read it to [1 her] son; [1 Ann's] aunt wrote it.",
     "Ann's book is here. Ann read it to Ann's son; Ann's aunt wrote it."),
    "a possessive mention with the apostrophe of the text": (
     "[1* Ann] came with [1 the girl’s] dog and [1 her] cat.",
     "Ann came with Ann’s dog and Ann’s cat."),
    "equal except for case or 's": ("[1* The Cat] sat. [1 the cat] left. [1 The cat's] toy fell.",
     "The Cat sat. the cat left. The cat's toy fell."),
    "case at the beginning of a sentence": (
     "[1* The old man] left. I saw [1 him]. [1 He] was tired (and [1 he] sat).",
     "The old man left. I saw the old man. The old man was tired (and the old man sat)."),
    "case in quotations and paragraphs": (
     'I met [1* the king]. "[1 He] is dead!" she said, "[1 He] is."\n\n[1 He] was not.',
     'I met the king. "The king is dead!" she said, "The king is."\n\nThe king was not.'),
    "case in words with spaces between them": (
     "“ [1* The girls] left ; [2* the boys 's] dog saw [1 them] . “ [2 They] . ” [2 They] sat .",
     "“ The girls left ; the boys 's dog saw the girls . “ The boys . ” The boys sat ."),
    "capitals": ("IN [1* THE END]. I saw [1 it]. A film: [2* The end]; I saw [2 it].",
     "IN THE END. I saw THE END. A film: The end; I saw the end."),
    "names keep their capital letter": ("See [1* The Hague]; see [1 it].",
     "See The Hague; see The Hague."),
    "a cluster of pronouns": ("[1* She] sold [1 her] book.", "She sold her book."),
    "older pronouns": ("[1* Ann], I saw [1 thee] with [1 thy] book. Be [1 thine] eyes shut.",
     "Ann, I saw Ann with Ann's book. Be Ann's eyes shut."),
    "several pronouns as a main mention": (
     "[1* He himself] came. [1 He] sang. [2* Each other] is who [2 they] saw.",
     "He himself came. He sang. Each other is who they saw."),
    "her before other": ("[1* Ann] sold [1 her] other book.", "Ann sold Ann's other book."),
    "relative pronouns are kept": (
        "[1* Ann], [1 who] left, took the cat [2 that] [2* Tom] was.",
        "Ann, who left, took the cat that Tom was.",
    ),
    "contractions with the verb outside": (
        "[1* Ann] said: [1 I]'m late, [1 I]'ll run. [2* The boys] said [2 we]’ve time.",
        "Ann said: I'm late, Ann'll run. The boys said we’ve time.",
    ),
    "reflexives are kept, except after a pronoun": (
        "[1* Ann] hurt [1 herself]; [1 She herself] said so. [2* The boys] saw [2 each other's].",
        "Ann hurt herself; Ann said so. The boys saw each other's.",
    ),
    "mentions that include their verb": (
        "[1* Ann] said [1 she'll] go, [1 she’d] sing and [1 She's] late. [2* Bob] and [1 Ann'll] "
        "see; [2 I'm] Bob; [2 he 's] late. [3* The boys] said [3 they've] time, let[3 's] go.",
        "Ann said she'll go, she’d sing and She's late. Bob and Ann'll "
        "see; I'm Bob; he 's late. The boys said they've time, let's go.",
    ),
    "main mentions that include their verb": (
     "[1* Ann'll] go. I saw [1 her]. [2* She'll] go. I saw [2 her].",
     "Ann'll go. I saw Ann. She'll go. I saw her."),
    "a mention inside a mention of the same cluster": (
     "[1* The man whom [2* Ann] told [1 his] name] left. [1 He] sat.",
     "The man whom Ann told his name left. The man whom Ann told his name sat."),
    "main mentions that refer to each other": (
     "[1* [2 Her] husband] and [2* [1 his] wife] came. [1 He] saw [2 her].",
     "Her husband and his wife came. Her husband saw his wife."),
    "main mentions in main mentions": (
     "[1* Ann] came. [2* [1 Her] son] and [3* [2 his] dog] sat. [3 It] barked at [2 him].",
     "Ann came. Ann's son and Ann's son's dog sat. Her son's dog barked at Ann's son."),
}  # fmt: skip


@pytest.mark.parametrize("marked, expected", REPLACED.values(), ids=REPLACED)
def test_mentions_are_replaced_by_main_mentions(marked, expected):
    text, clusters = bracketed_clusters.read(marked)
    assert replace(text, clusters) == expected


@pytest.mark.parametrize(
    "text, is_found",
    [
        ("Prices [rose] again", True), ("she has [met] him", True), ("to [attack] the city", True),
        ("she didn't [leave]", True), ("we [decide] now", True), ("Ann [sings] well", True),
        ("firms [sell] their goods", True), ("was [increased] by", True), ("is [selling] it", True),
        ("In [winter] it snows", False), ("by [winter] the snow", False), ("a [house]", False),
        ("saw [workers] there", False), ("and [sell] the house", True), ("[home] it was", False),
        ("[Sold] at last", False), ("spoke to [mother] today", False), ("[he] left", False),
        ("we [saw it] now", False), ("like [swimming] and", False), ("[seed] of", False),
    ],
)  # fmt: skip
def test_verbs_are_told_from_nouns(text, is_found):
    before, word, after = (part.split() for part in text.replace("]", "[").split("["))
    assert is_verb(word, "".join(before[-1:]), "".join(after[:1])) == is_found


def mention(text, start, end):
    return {"text": text[start:end], "start": start, "end": end}


def test_first_of_crossing_mentions_is_replaced():
    text = "Ann Bob saw she he"
    crossing = [mention(text, 0, 7), mention(text, 12, 15)], [mention(text, 4, 15)]
    assert replace(text, crossing) == "Ann Bob saw Ann Bob he"
    assert replace(text, [[mention(text, 16, 18), mention(text, 0, 7)], *crossing[1:]]) == (
        "Ann Bob saw she he"  # A cluster of pronouns. Mentions that cross it are kept too.
    )
    # A mention that crosses its main mention is kept.
    assert replace(text, [[mention(text, 4, 11), mention(text, 0, 7)]]) == text
    assert replace(text, [[mention(text, 0, 7), mention(text, 4, 11)]]) == text


@pytest.mark.parametrize("name, start, end", [("Bob", 0, 3), ("", 1, 1), ("n", -2, -1)])
def test_invalid_mention_is_shown(name, start, end):
    bad = {"text": name, "start": start, "end": end}
    with pytest.raises(ValueError, match=r"text\[start:end\].*of a text of 3 char") as error:
        replace("Ann", [[bad]])
    assert str(bad) in str(error.value)


ANN = {"text": "Ann", "start": 0, "end": 3}


def test_invalid_clusters_are_refused():
    invalid = [{"clusters": [[ANN]]}, [ANN], ["Ann"], [[(0, 3)]], [[{**ANN, "end": 3.0}]], None]
    for use, given in [(replace, invalid), (cluster_page, [[ANN]]), (cluster_lines, [[ANN]])]:
        for clusters in given:
            with pytest.raises(ValueError, match="`clusters` must be lists of mentions"):
                use("Ann", clusters)


def test_without_clusters_and_without_words():
    assert replace("Ann left.", []) == "Ann left."
    assert replace("", []) == ""
    blank = [{"text": " ", "start": 0, "end": 1}, {"text": "  ", "start": 2, "end": 4}]
    assert replace(" a  ", [blank]) == " a "


def test_long_text_is_replaced_within_seconds():
    text, clusters = bracketed_clusters.read(
        "[1* Ann] sold [2* [1 her] book]. [1 She] missed [2 it]. "
    )
    count = 6_000
    long = [[] for _ in clusters]
    for i in range(count):
        for cluster, mentions in zip(long, clusters):
            for m in mentions:
                cluster.append({**m, **{k: m[k] + i * len(text) for k in ["start", "end"]}})
    begun = time.process_time()
    replaced = replace(text * count, long)
    assert time.process_time() - begun < 5
    assert replaced.endswith("Ann sold Ann's book. Ann missed Ann's book. ")
