"""What do rules reach that know no more than strings and pronouns?

Scores on LitBank's test split of what a resolver has to beat:

    pronouns  each pronoun goes to the nearest mention before it that agrees in person, number and
              gender, by word lists; every other mention stands alone;
    strings   all mentions of the same string are one cluster, capitals aside;
    both      pronouns as in the first, other mentions as in the second.

Mentions are the gold ones, or found by rules: pronouns, and runs of capitalised words, of which the
first word of a sentence counts only with a second or where the document has it capitalised within
a sentence. Without singletons, gold clusters and predicted ones of one mention are left out.

    KERAS_SPANBERT_DATA=... python benchmarks/coreference_baselines.py
"""

import argparse
import collections
import os

from keras_spanbert.data import coreference as reader
from keras_spanbert.metrics import coreference

FOLDER = os.environ.get("KERAS_SPANBERT_DATA", "")
# Person, number and gender; an empty string agrees with everything.
Features = collections.namedtuple("Features", ["person", "number", "gender"])
PRONOUNS = {
    word: Features(*features)
    for features, words in [
        (("1", "one", ""), "i me my mine myself"),
        (("1", "many", ""), "we us our ours ourselves"),
        (("2", "", ""), "you your yours yourself yourselves thou thee thy thine thyself ye"),
        (("3", "one", "he"), "he him his himself"),
        (("3", "one", "she"), "she her hers herself"),
        (("3", "one", "it"), "it its itself"),
        (("3", "many", ""), "they them their theirs themselves"),
    ]
    for word in words.split()
}
HE = set(
    "mr mr. sir lord king prince duke count baron captain colonel man men boy boys father papa son "
    "sons brother brothers husband uncle nephew grandfather gentleman gentlemen fellow lad "
    "monsieur emperor priest monk".split()
)
SHE = set(
    "mrs mrs. miss lady ladies queen princess duchess countess woman women girl girls mother mamma "
    "daughter daughters sister sisters wife aunt niece grandmother widow maid madame mademoiselle "
    "madam nun nurse".split()
)
IRREGULAR_PLURALS = set("men women people children gentlemen feet teeth geese mice oxen".split())
# What a mention's head stands before.
AFTER_HEAD = set(
    "of in on at by with from to for who whom whose which that where , ( -- - '".split()
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.path.join(FOLDER, "data/litbank"))
    parser.add_argument("--split", default="test")
    args = parser.parse_args()
    with open(os.path.join(args.data, f"{args.split}.txt"), encoding="utf-8") as file:
        names = file.read().split()
    paths = [os.path.join(args.data, "coref/conll", f"{name}_brat.conll") for name in names]
    documents = reader.read(paths)
    gold = [document["clusters"] for document in documents]

    print(f"{len(documents)} documents, {args.split} split")
    columns = "".join(f"{name:>9}" for name in ["MUC", "B3", "CEAF", "average", "mentions"])
    print(f"{'mentions':<10}{'rule':<10}{'singletons':<12}{columns}")
    for found_by, find in [("gold", gold_mentions), ("rules", find_mentions)]:
        for name, resolve in [("pronouns", pronouns), ("strings", strings), ("both", both)]:
            predicted = [resolve(document, find(document)) for document in documents]
            for singletons in (True, False):
                least = 1 if singletons else 2
                pairs = [without_small(clusters, least) for clusters in (gold, predicted)]
                scores = coreference(*pairs)
                values = [scores[n]["f1"] for n in ["muc", "b_cubed", "ceaf_e"]]
                values += [scores["average_f1"], scores["mentions"]["f1"]]
                columns = "".join(f"{value:>9.2f}" for value in values)
                print(f"{found_by:<10}{name:<10}{'with' if singletons else 'without':<12}{columns}")


def without_small(documents, least):
    return [[c for c in clusters if len(c) >= least] for clusters in documents]


def gold_mentions(document):
    return sorted((s, e) for cluster in document["clusters"] for s, e in cluster)


def find_mentions(document):
    """Pronouns and runs of capitalised words."""
    inside = {word for sentence in document["sentences"] for word in sentence[1:]}
    mentions, offset = [], 0
    for sentence in document["sentences"]:
        begin = None
        for i, word in enumerate([*sentence, "."]):
            is_pronoun = word.lower() in PRONOUNS
            is_name = word[:1].isupper() and not is_pronoun
            if is_pronoun:
                mentions.append((offset + i, offset + i))
            if is_name and begin is None:
                begin = i
            elif not is_name and begin is not None:
                if begin > 0 or i > 1 or sentence[0] in inside:
                    mentions.append((offset + begin, offset + i - 1))
                begin = None
        offset += len(sentence)
    return sorted(mentions)


def pronouns(document, mentions, clusters=None):
    """Adds pronouns to the clusters of what they refer to; without any, all stand alone."""
    texts = texts_of(document, mentions)
    features = [features_of(text) for text in texts]
    cluster_of = {m: cluster for cluster in clusters or [[m] for m in mentions] for m in cluster}
    by_end = sorted(range(len(mentions)), key=lambda i: (mentions[i][1], mentions[i][0]))
    # In the order of the text, so that what a pronoun goes to has its cluster already.
    for i in range(len(mentions)):
        if not is_pronoun(texts[i]):
            continue
        before = [j for j in by_end if mentions[j][1] < mentions[i][0]]
        nearest = next((j for j in reversed(before) if agree(features[j], features[i])), None)
        if nearest is not None:
            cluster = cluster_of[mentions[nearest]]
            cluster.append(mentions[i])
            cluster_of[mentions[i]] = cluster
    return list({id(cluster): cluster for cluster in cluster_of.values()}.values())


def strings(document, mentions):
    """Clusters of mentions of the same string."""
    clusters = collections.defaultdict(list)
    for mention, text in zip(mentions, texts_of(document, mentions)):
        clusters[" ".join(text).lower()].append(mention)
    return list(clusters.values())


def both(document, mentions):
    texts = texts_of(document, mentions)
    others = [m for m, text in zip(mentions, texts) if not is_pronoun(text)]
    alone = [[m] for m, text in zip(mentions, texts) if is_pronoun(text)]
    return pronouns(document, mentions, strings(document, others) + alone)


def texts_of(document, mentions):
    words = [word for sentence in document["sentences"] for word in sentence]
    return [words[start : end + 1] for start, end in mentions]


def is_pronoun(text):
    return len(text) == 1 and text[0].lower() in PRONOUNS


def features_of(text):
    words = [word.lower() for word in text]
    if is_pronoun(text):
        return PRONOUNS[words[0]]
    # A pronoun before the head tells whose it is, not what it is.
    head = next((a for a, b in zip(words, words[1:]) if b in AFTER_HEAD), words[-1])
    is_plural = head in IRREGULAR_PLURALS or (
        text[-1][:1].islower() and head.endswith("s") and not head.endswith(("ss", "us", "is"))
    )
    number = "many" if is_plural or "and" in words else "one"
    genders = [
        gender for gender, known in [("he", HE), ("she", SHE)] if not known.isdisjoint(words)
    ]
    return Features("3", number, genders[0] if len(genders) == 1 else "")


def agree(one, other):
    return all(a == b or not a or not b for a, b in zip(one, other))


if __name__ == "__main__":
    main()
