"""Scores of links and clusters, their threshold, and clusters of given mentions."""

import json

import keras
import numpy as np
import pytest
from processes import ROOT, run_python

import keras_spanbert as ks
from keras_spanbert.tasks.coreference import inference
from keras_spanbert.tasks.coreference.resolving import cluster_score

pytestmark = pytest.mark.usefixtures("untraced")

TEXT = "Ann wrote the letter. She was old. Bob sold it to Ann. He was old."
WORDS = [["ann", "wrote", "it", "."], ["she", "was", "old", "."], ["bob", "read", "it", "."]] * 3
EVERY = {"max_span_width": 1, "top_span_ratio": 1.0, "max_top_antecedents": 9}


@pytest.fixture
def every_word(build):
    """Returns a resolver for which every word is a span. With overlap, separators are none."""
    keras.utils.set_random_seed(1)
    return build("overlap", **EVERY)


def places(clusters):
    return [[(m["start"], m["end"]) for m in cluster] for cluster in clusters]


def links(clusters):
    """Returns each mention's place, that of its antecedent, and the link's score."""
    return {
        (m["start"], m["end"]): (m["antecedent"]["start"], m["link_score"])
        for cluster in clusters
        for m in cluster
        if m["antecedent"]
    }


def test_link_score_is_the_probability_of_the_antecedent(every_word):
    (found,) = every_word.resolve([WORDS], scores=True)
    scored = every_word.score_document({"sentences": WORDS})
    scores = scored["top_antecedent_scores"]
    probability = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    best = scores.argmax(axis=1)
    expected = {}
    for i in np.flatnonzero(best):  # Each word is a token.
        score = pytest.approx(probability[i, best[i]], abs=1e-5)
        expected[i, i + 1] = scored["top_antecedents"][i, best[i] - 1], score
    assert len(expected) > 5 and links(found["clusters"]) == expected
    for cluster, score in zip(found["clusters"], found["cluster_scores"], strict=True):
        first, *others = sorted(cluster, key=lambda m: m["start"])
        assert first["antecedent"] is first["link_score"] is None
        assert score == pytest.approx(np.mean([m["link_score"] for m in others]))
        assert 0 < score < 1 and all(isinstance(m["score"], float) for m in cluster)
        known = [{name: m[name] for name in ("text", "start", "end")} for m in cluster]
        assert all(m["antecedent"] in known for m in others)
    assert places(found["clusters"]) == places(every_word.resolve([WORDS])[0]["clusters"])
    assert "cluster_scores" not in every_word.resolve([WORDS])[0]


@pytest.mark.parametrize("max_spans_in_memory", [2000, 12])  # 19 tokens are spans.
def test_links_below_the_threshold_are_dropped(every_word, max_spans_in_memory, monkeypatch):
    monkeypatch.setattr(inference, "_CHUNK_TOKENS", 19)
    arguments = {"scores": True, "max_spans_in_memory": max_spans_in_memory}
    every = links(every_word.resolve(TEXT, **arguments)["clusters"])
    threshold = sorted(score for _, score in every.values())[len(every) // 2]
    found = every_word.resolve(TEXT, min_link_score=threshold, **arguments)
    kept = links(found["clusters"])
    assert 0 < len(kept) < len(every)
    if max_spans_in_memory == 2000:  # The memory of a chunk depends on clusters.
        assert kept == {place: link for place, link in every.items() if link[1] >= threshold}
    assert min(score for _, score in kept.values()) >= threshold
    # Clusters follow from the other links.
    assert sum(len(cluster) - 1 for cluster in found["clusters"]) == len(kept)
    assert every_word.resolve(TEXT, min_link_score=1)["clusters"] == []
    assert every_word.resolve(TEXT, min_link_score=0.0) == every_word.resolve(TEXT)


def test_threshold_applies_to_documents(every_word):
    documents = [{"sentences": WORDS, "clusters": [[[0, 0], [4, 4]]]}]
    assert every_word.predict_clusters(documents)[0]
    assert every_word.predict_clusters(documents, min_link_score=1.0) == [[]]
    assert every_word.evaluate_clusters(documents, min_link_score=1.0)["muc_recall"] == 0.0


def test_score_of_a_single_mention_is_its_probability(build):
    model = build(singletons=True)
    mentions = [(0, 3)]
    (cluster,) = model.resolve(TEXT, scores=True, mentions=mentions)["clusters"]
    (score,) = model.resolve(TEXT, scores=True, mentions=mentions)["cluster_scores"]
    assert score == pytest.approx(1 / (1 + np.exp(-cluster[0]["score"])))
    alone = {"score": -9e9, "link_score": None}
    assert cluster_score([alone]) == 0.0 and cluster_score([alone] * 2) is None


@pytest.mark.parametrize("model_type", ["independent", "overlap"])
def test_every_given_mention_is_scored_and_no_other(build, model_type):
    # Nested, crossing, repeated, across sentences, within a word and around a blank.
    given = [(0, 3), (10, 20), (14, 20), (4, 13), (0, 3), (16, 25), (22, 25), (35, 38), (34, 41)]
    given.append((14, 16))  # Its word is cut, or it would be the same as (14, 20).
    model = build(model_type, singletons=True, max_span_width=9, top_span_ratio=0.1)
    arguments = {"scores": True, "speakers": [(0, 17, "A")]}  # Words are cut for both.
    found = model.resolve(TEXT, mentions=given, **arguments)
    got = [m for cluster in found["clusters"] for m in cluster]
    # (34, 41) has the words of (35, 41): another mention than "Bob".
    assert sorted((m["start"], m["end"]) for m in got) == sorted(set(given))
    assert all(TEXT[m["start"] : m["end"]] == m["text"] for m in got)
    assert all(np.isfinite(m["score"]) for m in got)
    assert model.resolve(TEXT, mentions=np.array(given), **arguments) == found


def test_given_mentions_that_would_be_found_have_the_same_scores(every_word):
    words = [(i, i + 1) for i in range(sum(map(len, WORDS)))]
    (found,) = every_word.resolve([WORDS], scores=True)
    (given,) = every_word.resolve([WORDS], scores=True, mentions=[words])
    assert found["clusters"] and places(found["clusters"]) == places(given["clusters"])
    for name in ["score", "link_score"]:
        scores = [[m[name] or 0 for c in x["clusters"] for m in c] for x in (found, given)]
        np.testing.assert_allclose(*scores, atol=1e-5)


def test_mentions_of_several_texts_and_of_words(build):
    model = build(singletons=True)
    texts = [TEXT, WORDS, TEXT, TEXT]
    found = model.resolve(texts, mentions=[[(0, 3)], [(0, 1), (1, 3)], None, []])
    clusters = [sorted(sum(places(result["clusters"]), [])) for result in found]
    assert clusters[:2] == [[(0, 3)], [(0, 1), (1, 3)]] and clusters[3] == []
    assert found[2] == model.resolve(TEXT)
    assert build().resolve(TEXT, mentions=[(0, 3)]) == {"clusters": []}


@pytest.mark.parametrize("model_type", ["independent", "overlap"])
def test_given_mentions_of_a_long_text_are_scored_in_chunks(build, model_type, monkeypatch):
    monkeypatch.setattr(inference, "_CHUNK_TOKENS", 19)
    keras.utils.set_random_seed(1)
    model = build(model_type, singletons=True, max_span_width=9, max_training_sentences=9)
    text = "ann wrote it to them and she read the letter to bob and he was old . " * 4
    starts = [i for i in range(len(text) - 20) if text[i - 1 : i] in ("", " ")]
    given = [(start, start + len(text[start:].split()[0])) for start in starts]
    given += [(start, text.index(" ", start + 16)) for start in starts]  # Some cross chunks.
    whole = model.resolve(text, mentions=given, scores=True)
    chunks = model.resolve(text, mentions=given, scores=True, max_spans_in_memory=150)
    assert places(chunks["clusters"]) == places(whole["clusters"])
    assert sum(map(len, whole["clusters"])) == len(given)
    for cluster, other in zip(chunks["clusters"], whole["clusters"]):
        scores = ([m["score"] for m in c] for c in (cluster, other))
        np.testing.assert_allclose(*scores, atol=1e-4)


@pytest.mark.long
@pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="blocks TensorFlow")
def test_text_is_resolved_without_tensorflow(build, tmp_path):
    model = build(**EVERY, singletons=True)
    model.save_to_preset(tmp_path / "preset")
    code = (
        "import no_tensorflow, json, sys, keras_spanbert as ks; "
        "model = ks.SpanBertCoreferenceResolver.from_preset(sys.argv[1]); "
        "print(json.dumps(model.resolve(sys.argv[2])))"
    )
    command = "-c", code, tmp_path / "preset", TEXT
    out, _ = run_python(*command, PYTHONPATH=str(ROOT / "tests"))
    loaded = ks.SpanBertCoreferenceResolver.from_preset(tmp_path / "preset")
    assert json.loads(out.splitlines()[-1]) == loaded.resolve(TEXT)
