import numpy as np
import pytest

from keras_spanbert.tasks.coreference import inference, resolving
from keras_spanbert.tasks.coreference.resolving import NAME, NOUN, PRONOUN, Text, as_dicts, sort_key

TEXT = "Ann wrote the letter. She was old.\n\nBob sold it to Ann — he  was old.\n"


def mentions(found):
    return [mention for cluster in found["clusters"] for mention in cluster]


@pytest.fixture
def resolver(build):
    """A resolver that finds clusters in most texts."""
    model = build(max_span_width=2, singletons=True)
    for weight in model.weights:
        if weight.path.startswith("mention_scores/mention/output_bias"):
            weight.assign([0.3])
    return model


def test_mentions_are_slices_of_the_text(resolver):
    texts = [TEXT, "é 😀 " + TEXT.replace(" ", "\u00a0\r\n"), "\x00\x02" + TEXT]
    for text, found in zip(texts, resolver.resolve(texts)):
        assert len(mentions(found)) > 3
        for mention in mentions(found):
            assert mention["text"] == text[mention["start"] : mention["end"]]
            assert mention["text"].strip() == mention["text"] != ""
            assert mention.keys() == {"text", "start", "end"}
        places = [(x["start"], x["end"]) for x in mentions(found)]
        assert len(places) == len(set(places))
        for cluster in found["clusters"]:
            starts = [mention["start"] for mention in cluster[1:]]
            assert starts == sorted(starts)
        firsts = [min(x["start"] for x in cluster) for cluster in found["clusters"]]
        assert firsts == sorted(firsts)


@pytest.mark.parametrize("model_type", ["independent", "overlap"])
def test_text_without_words_or_with_one_has_no_clusters(build, model_type):
    texts = ["Ann", "", " \r\n", "\x00", [], [[]], [[], []]]
    assert build(model_type).resolve(texts) == [{"clusters": []}] * len(texts)


def test_batches_equal_single_texts(resolver):
    texts = [TEXT, "", "Ann left.", TEXT * 4, "He was old. " * 3]
    alone = [resolver.resolve(text) for text in texts]
    assert resolver.resolve(texts, batch_size=3) == alone
    assert resolver.resolve(np.array(texts), batch_size=1) == alone


def test_batches_have_a_maximum_number_of_spans(build, monkeypatch):
    model, batches = build(), []
    predict = resolving.predict_rows

    def record(model, rows, *args):
        batches.append([len(row["top_span_mask"]) for row in rows])
        return predict(model, rows, *args)

    monkeypatch.setattr(resolving, "predict_rows", record)
    words = [f"word{i}" for i in range(12)]
    model.resolve([[words]] * 5, max_spans_in_memory=10)
    assert batches == [[5, 5], [5, 5], [5]]  # 0.4 of 12 words and 2 separators.
    batches.clear()
    given = [(i, i + 1) for i in range(12)]
    model.resolve([[words]] * 5, max_spans_in_memory=24, mentions=[given] * 5)
    assert batches == [[12, 12], [12, 12], [12]]


def test_spans_of_words(resolver):
    words = [["Ann", "wrote", "the", "letter", "."], ["She", "was", "old", "."]]
    (found,) = resolver.resolve([words])
    (of_text,) = resolver.resolve(["Ann wrote the letter. She was old."])
    flat = sum(words, [])
    for mention, other in zip(mentions(found), mentions(of_text), strict=True):
        assert mention["text"] == " ".join(flat[mention["start"] : mention["end"]])
        assert mention["text"].replace(" .", ".") == other["text"]


def clusters_of(*spans):
    """Returns clusters and links of `(start, end, best antecedent, mention score, link score)`.

    The second word and the fourth one have two pieces.
    """
    names = ["top_span_starts", "top_span_ends", "best_antecedents", "top_span_mention_scores"]
    spans = dict(zip([*names, "link_scores"], map(np.array, zip(*spans))))
    return inference.cluster_mentions(spans, np.array([0, 1, 1, 2, 3, 3], np.int32), False)


def test_mentions_that_meet_within_a_word_are_kept():
    # The first mention ends and the second starts within the second word.
    found, _ = clusters_of((0, 1, -1, 1.0, 1.0), (2, 3, 0, 2.0, 0.6), (3, 3, 1, 3.0, 0.7))
    assert found == [{(0, 1): 1.0, (1, 2): 2.0, (2, 2): 3.0}]


def test_mentions_with_the_same_words_count_once():
    found, links = clusters_of(
        (0, 0, -1, 1.0, 1.0), (1, 1, 0, 2.0, 0.6),
        # The second word is in the first cluster already. The third one is then alone.
        (1, 2, -1, 9.0, 1.0), (3, 3, 2, 3.0, 0.9),
        # The highest scores count, and a link to another mention.
        (4, 5, 0, 4.0, 0.5), (4, 4, 4, 3.0, 0.9), (5, 5, 1, 2.0, 0.2),
    )  # fmt: skip
    assert found == [{(0, 0): 1.0, (1, 1): 2.0, (3, 3): 4.0}]
    assert links == {(1, 1): ((0, 0), 0.6), (3, 3): ((0, 0), 0.5)}


def test_speakers_and_genre_change_scores(resolver, monkeypatch):
    batches, predict = [], type(resolver).predict_on_batch

    def remember(self, batch):
        batches.append({name: np.array(batch[name]) for name in ["speaker_ids", "genre"]})
        return predict(self, batch)

    monkeypatch.setattr(type(resolver), "predict_on_batch", remember)
    resolver.resolve([TEXT], speakers=[[(0, 21, "Ann"), (22, 34, "Bob")]], genre="bc")
    resolver.resolve([TEXT], genre=[None])
    resolver.resolve([[["Ann", "left"]]], speakers=[[["Ann", "Bob"]]], genre=["nw"])
    assert [batch["genre"].tolist() for batch in batches] == [[1], [0], [0]]
    # The speakers of separators and, in two variants, of padding matter.
    assert [len(np.unique(batch["speaker_ids"])) for batch in batches] == [5, 3, 3]


@pytest.mark.parametrize(
    "words, begins_sentence, kind",
    [
        ("he himself", False, PRONOUN),
        ("Emma", True, NAME),
        ("The Mr. Weston", True, NAME),
        ("the door of Emma", False, NOUN),
        ("Her letter", True, NOUN),
        ("Letters", True, NOUN),
        ("Letters", False, NAME),
    ],
)
def test_kinds_of_mentions(words, begins_sentence, kind):
    found, *_ = sort_key(words.split(), 0, 1, begins_sentence, frozenset(["letters", "the"]))
    assert found == kind


def test_first_word_of_a_text_begins_a_sentence():
    words = "Teachers left . The teachers sang .".split()
    text = Text(words, [3, 4], np.array([[i, i + 1] for i in range(7)]), None)
    ((main, other),) = as_dicts(text, [{(0, 0): None, (3, 4): None}], {}, False)
    assert (main["text"], other["text"]) == ("The teachers", "Teachers")


def test_best_mention_is_a_long_name_without_a_clause():
    phrases = ["he", "the poor man", "Frank", "Mr. Frank Churchill", "Frank , who had come"]

    def order(phrases, *counts):
        keys = [
            sort_key(phrase.split(), i, count, False, frozenset())
            for i, (phrase, count) in enumerate(zip(phrases, counts))
        ]
        return sorted(range(len(keys)), key=keys.__getitem__)

    assert order(phrases, 9, 1, 1, 1, 1) == [3, 2, 4, 1, 0]
    # Frequent mentions are unlikely to be wrong links.
    assert order(phrases, 9, 1, 2, 1, 5) == [2, 3, 4, 1, 0]
    # The longest mention has the most characters, not the most words.
    assert order(["Mr. C.", "Churchill"], 1, 1) == [1, 0]
