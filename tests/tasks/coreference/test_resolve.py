import gzip

import numpy as np
import pytest

from keras_spanbert.tasks.coreference import main_mention

TEXT = "Ann wrote the letter. She was old.\n\nBob sold it to Ann — he  was old.\n"


def mentions(found):
    return [mention for cluster in found["clusters"] for mention in cluster]


@pytest.fixture
def resolver(build):
    """One that links something in most texts."""
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


@pytest.mark.parametrize("text", ["", " \r\n", "\x00", [], [[]], [[], []]])
def test_text_without_words_has_no_clusters(resolver, text):
    assert resolver.resolve([text]) == [{"clusters": []}]


def test_one_word_is_no_cluster_without_singletons(build):
    assert build().resolve("Ann") == {"clusters": []}
    assert build("overlap").resolve(["Ann", ""]) == [{"clusters": []}] * 2


def test_texts_at_once_give_what_they_give_alone(resolver):
    texts = [TEXT, "", "Ann left.", TEXT * 4, "He was old. " * 3]
    alone = [resolver.resolve(text) for text in texts]
    assert resolver.resolve(texts, batch_size=3) == alone
    assert resolver.resolve(np.array(texts), batch_size=1) == alone


def test_words_give_places_of_words(resolver):
    words = [["Ann", "wrote", "the", "letter", "."], ["She", "was", "old", "."]]
    (found,) = resolver.resolve([words])
    (of_text,) = resolver.resolve(["Ann wrote the letter. She was old."])
    flat = sum(words, [])
    for mention, other in zip(mentions(found), mentions(of_text), strict=True):
        assert mention["text"] == " ".join(flat[mention["start"] : mention["end"]])
        assert mention["text"].replace(" .", ".") == other["text"]


def test_scores_are_there_on_demand(resolver):
    (found,) = resolver.resolve([TEXT], scores=True)
    assert all(isinstance(mention["score"], float) for mention in mentions(found))
    without = [{k: m[k] for k in ("text", "start", "end")} for m in mentions(found)]
    assert without == mentions(resolver.resolve(TEXT))


def test_speakers_and_genre_count(resolver, monkeypatch):
    batches, predict = [], type(resolver).predict_on_batch

    def remember(self, batch):
        batches.append({name: np.array(batch[name]) for name in ["speaker_ids", "genre"]})
        return predict(self, batch)

    monkeypatch.setattr(type(resolver), "predict_on_batch", remember)
    resolver.resolve([TEXT], speakers=[[(0, 21, "Ann"), (22, 34, "Bob")]], genre="bc")
    resolver.resolve([TEXT], genre=[None])
    resolver.resolve([[["Ann", "left"]]], speakers=[[["Ann", "Bob"]]], genre=["nw"])
    assert [batch["genre"].tolist() for batch in batches] == [[1], [0], [0]]
    # That of separators and, in two of them, of padding count.
    assert [len(np.unique(batch["speaker_ids"])) for batch in batches] == [5, 3, 3]


@pytest.mark.parametrize(
    "arguments, error",
    [
        ({"texts": 3}, "`texts` must be a list of strings"),
        ({"texts": [3]}, r"`texts` must be a list of strings, or of lists.*texts\[0\]=3"),
        ({"texts": [["Ann", "left"]]}, "each a list of words"),
        ({"texts": ["Ann"], "genre": "novel"}, r"one of the resolver's, \['nw', 'bc'\].*'novel'"),
        ({"texts": ["Ann"], "genre": ["nw", "nw"]}, "each of the 1 texts. Received: 2"),
        ({"texts": ["Ann"], "speakers": []}, "each of the 1 texts. Received: 0"),
        ({"texts": ["Ann"], "speakers": [[(0, 4, "Ann")]]}, "in the 3 characters of the text"),
        ({"texts": ["Ann"], "speakers": [["Ann"]]}, r"must be \(start, end, name\)"),
        ({"texts": [[["Ann"]]], "speakers": [[["A", "B"]]]}, r"one for each word: \[1\]"),
        ({"texts": [[["Ann"]]], "speakers": [["A"]]}, "a list of names for each sentence"),
        ({"texts": ["Ann"], "max_spans": 0}, "`max_spans` must be at least 1"),
        ({"texts": ["Ann"], "batch_size": 1.5}, "`batch_size` must be an integer"),
    ],
)
def test_mistake_names_the_argument(build, arguments, error):
    with pytest.raises(ValueError, match=error):
        build().resolve(**arguments)


@pytest.mark.parametrize(
    "words, begins_sentence, kind",
    [
        ("he himself", False, main_mention.PRONOUN),
        ("Her", True, main_mention.PRONOUN),
        ("Themself", False, main_mention.PRONOUN),
        ("Emma", True, main_mention.NAME),
        ("The Mr. Weston", True, main_mention.NAME),
        ("the door of Emma", False, main_mention.NOUN),
        ("Her letter", True, main_mention.NOUN),
        ("Letters", True, main_mention.NOUN),
        ("Letters", False, main_mention.NAME),
    ],
)
def test_kinds_of_mentions(words, begins_sentence, kind):
    found = main_mention.kind_of(words.split(), begins_sentence, frozenset(["letters", "the"]))
    assert found == kind


def test_best_mention_is_a_long_name_without_a_clause():
    phrases = ["he", "the poor man", "Frank", "Mr. Frank Churchill", "Frank , who had come"]
    kinds = [main_mention.kind_of(p.split(), False, frozenset()) for p in phrases]

    def order(*counts):
        def key(i):
            return main_mention.rank(phrases[i].split(), kinds[i], i, counts[i])

        return sorted(range(5), key=key)

    assert order(9, 1, 1, 1, 1) == [3, 2, 4, 1, 0]
    # What is said often is no mistake of a link.
    assert order(9, 1, 2, 1, 5) == [2, 3, 4, 1, 0]


@pytest.mark.slow
def test_thousands_of_words_of_a_novel(shared_data, build):
    path = shared_data / "data/novels/1342_pride_and_prejudice.txt.gz"
    text = " ".join(gzip.open(path, "rt").read().split()[:20_000])
    model = build()
    (found,) = model.resolve([text], max_spans=200)
    last = max(mention["end"] for mention in mentions(found))
    assert last > 0.9 * len(text)
    for mention in mentions(found):
        assert text[mention["start"] : mention["end"]] == mention["text"]
