"""Linguistic spans: read with text, carried with blocks, found by pipelines."""

import gzip
import json
import pickle

import numpy as np
import pytest
import tensorflow as tf
import tiny_tagger

import keras_spanbert as ks
from keras_spanbert.data import blocks as blocks_module
from keras_spanbert.data import linguistic_spans, text_files
from keras_spanbert.data.blocks import BlockCutter, span_marks, without_marks
from keras_spanbert.data.document_lines import read_document_lines
from keras_spanbert.data.marked_text import MarkedText, longest_apart, tokenize_with_marks
from keras_spanbert.data.prepared import PreparedCorpus, prepare
from keras_spanbert.data.training_stream import TrainingStream

LETTERS = list("abcdeé")
VOCABULARY = [
    *["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{x}" for x in LETTERS)],
    *[".", ",", "-", "中", "$", "ab", "##ab"],
]
LENGTH = 13


@pytest.fixture(scope="module")
def tokenizer():
    return ks.SpanBertTokenizer(VOCABULARY)


@pytest.fixture(scope="module")
def tokenize(tokenizer):
    return BlockCutter(tokenizer, LENGTH, 1)._tokenize


def random_documents(number, seed=0, longest=90):
    """Texts of words, punctuation, Chinese and control characters, with spans anywhere."""
    generator = np.random.default_rng(seed)
    characters = [*LETTERS, *"abcd", *"  ", *".,-$", "中", "\u00ad", "\n", "\u2003", "e\u0301"]
    documents = []
    for _ in range(number):
        text = "a" + "".join(generator.choice(characters, generator.integers(1, longest)))
        spans = {}
        for kind in ["entity", "noun_phrase"]:
            places = generator.integers(0, len(text) + 1, (int(generator.integers(7)), 2))
            spans[kind] = [sorted(map(int, p)) for p in places if p[0] != p[1]]
        documents.append({"text": text, "spans": spans})
    return documents


def write_lines(path, documents):
    content = "".join(json.dumps(document) + "\n" for document in documents).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


def expected_marks(tokenizer, text, spans):
    """By the places of tokens, one by one."""
    (ids,), (offsets,) = tokenizer.tokenize_batch([text], with_offsets=True)
    tokens = [VOCABULARY[i] for i in ids]
    marks = np.zeros(len(ids), int)
    starts = []
    for start, end in spans:
        touched = [i for i, (a, b) in enumerate(offsets.tolist()) if a < end and start < b]
        if touched:
            first, last = touched[0], touched[-1]
            while tokens[first].startswith("##"):
                first -= 1
            while last + 1 < len(tokens) and tokens[last + 1].startswith("##"):
                last += 1
            marks[first : last + 1] = 2
            starts.append(first)
    marks[starts] = 1
    return ids, marks


def test_tokens_are_those_of_the_text_and_marks_those_of_its_spans(tokenizer, tokenize):
    documents = random_documents(300)
    marked = [
        MarkedText(d["text"], {k: longest_apart(s) for k, s in d["spans"].items()})
        for d in documents
    ]
    texts = [*map(str, marked[:50]), *marked[50:]]
    ids, lengths, marks = tokenize_with_marks(tokenize, texts)
    plain, plain_lengths = tokenize(list(map(str, texts)))
    np.testing.assert_array_equal(ids, plain)
    np.testing.assert_array_equal(lengths, plain_lengths)
    assert marks["entity"][: lengths[:50].sum()].max() == 0
    number = 0
    stops = np.cumsum(lengths)
    for kind in ["entity", "noun_phrase"]:
        for text, stop, length in list(zip(marked, stops, lengths))[50:]:
            if "\u00ad" in text:  # Which is dropped within a word: its tokens are two for `one`.
                continue
            same_ids, expected = expected_marks(tokenizer, text, text.spans[kind])
            assert len(same_ids) == length
            np.testing.assert_array_equal(marks[kind][stop - length : stop], expected, str(text))
            number += (expected == 1).sum()
    assert number > 100


def test_longest_of_overlapping_spans_stays():
    spans = [[0, 4], [2, 9], [9, 11], [10, 11], [20, 22], [21, 23], [5, 6]]
    assert longest_apart(spans).tolist() == [[2, 9], [9, 11], [20, 22]]
    assert longest_apart([]).shape == (0, 2)


def test_pieces_of_a_document_have_the_marks_of_the_whole(tokenizer, tmp_path, monkeypatch):
    words = np.random.default_rng(1).choice(["a", "bcd", "eab", "d."], 200)
    text = " ".join(words)
    spans = [[i, i + 1 + i % 23] for i in range(0, len(text) - 30, 29)]
    path = write_lines(tmp_path / "a.jsonl", [{"text": text, "spans": {"entity": spans}}])

    def blocks():
        corpus = ks.Corpus(path)
        found = list(corpus.blocks(tokenizer, LENGTH, min_tokens=1, with_marks=True))
        return np.concatenate(found), len(list(corpus.documents()))

    whole, one = blocks()
    monkeypatch.setattr(text_files, "_PIECE_CHARACTERS", 31)
    monkeypatch.setattr(blocks_module, "_TOKENIZE_CHARACTERS", 50)
    pieces, many = blocks()
    assert one == 1 and many > 10
    np.testing.assert_array_equal(pieces, whole)
    assert (span_marks(whole, "entity") == 1).sum() == len(spans)
    assert not span_marks(whole, "noun_phrase").any()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1]", 'line 2: a document must be {"text"'),
        ('{"spans": []}', 'line 2: a document must be {"text"'),
        ('{"text": "ab", "spans": [[0, 3]]}', "line 2: .* <= 2, the text's length.*0, 3"),
        ('{"text": "ab", "spans": [[1, 1]]}', "line 2: `spans` must be a list of"),
        ('{"text": "ab", "spans": [[-1, 1]]}', "line 2: `spans` must be a list of"),
        ('{"text": "ab", "spans": [[0, 1.0]]}', "line 2: `spans` must be a list of"),
        ('{"text": "ab", "spans": [[false, true]]}', "line 2: `spans` must be a list of"),
        ('{"text": "ab", "spans": [0, 1]}', "line 2: `spans` must be a list of.*: 0"),
        (
            '{"text": "ab", "spans": {"entities": []}}',
            "line 2: kinds .*: 'entities'",
        ),
        ('{"text": "ab", "spans": {"entity": 3}}', "line 2: `spans` must be a list of"),
        ('{"text": "\\ud800"}', "line 2: text must have no lone surrogates"),
        ('{"text": ', "line 2: must be JSON"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_by_its_line(tmp_path, line, message):
    (tmp_path / "a.jsonl").write_text('{"text": "a b", "spans": [[0, 1]]}\n' + line + "\n")
    with pytest.raises(ValueError, match="a.jsonl, " + message):
        ks.Corpus(str(tmp_path / "a.jsonl"))


def test_lines_are_documents_and_blank_ones_none(tmp_path):
    documents = [{"text": "a b\nc"}, {"text": " "}, {"text": "d"}]
    path = write_lines(tmp_path / "a.jsonl.gz", documents)
    assert [(str(t), e) for t, e in read_document_lines(path, "strict")] == [
        ("a b\nc", True),
        ("d", True),
    ]
    (tmp_path / "b.jsonl").write_bytes(b'{"text": "a\xff"}')
    with pytest.raises(ValueError, match="b.jsonl, line 1: text must be UTF-8"):
        ks.Corpus(str(tmp_path / "b.jsonl"))
    ((text, _),) = read_document_lines(str(tmp_path / "b.jsonl"), "replace")
    assert text == "a\ufffd"


def test_marked_text_is_pickled_with_its_spans():
    text = MarkedText("ab", {"entity": np.array([[0, 1]], np.int32)}, "here")
    copy = pickle.loads(pickle.dumps(text))
    assert (copy, copy.place) == ("ab", "here")
    np.testing.assert_array_equal(copy.spans["entity"], [[0, 1]])


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """The same documents as lines with spans, and as text."""
    folder = tmp_path_factory.mktemp("spans")
    generator = np.random.default_rng(0)
    documents = []
    for _ in range(120):
        words = list(generator.choice(["a", "b", "cd"], 23))
        for place in range(2, 23, 5):
            words[place] = "ab"
        text = " ".join(words)
        spans = [[i, i + 2] for i in range(len(text) - 1) if text[i : i + 2] == "ab"]
        documents.append({"text": text, "spans": {"entity": spans}})
    lines = write_lines(folder / "a.jsonl", documents)
    (folder / "a.txt").write_text("\n".join(document["text"] for document in documents))
    arguments = {"held_out": 0.2, "cross_documents": True}
    return ks.Corpus(lines, **arguments), ks.Corpus(str(folder / "a.txt"), "line", **arguments)


def preprocessor_of(tokenizer, **kwargs):
    return ks.SpanBertPretrainerPreprocessor(tokenizer, LENGTH, mask_rate=0.15, **kwargs)


def share_of_entities(dataset, tokenizer):
    """Of masked tokens, those of "ab", which is a fifth of all."""
    number = total = 0
    for _, y, weight in dataset:
        real = np.asarray(weight["mlm"]) > 0
        number += (np.asarray(y["mlm"])[real] == VOCABULARY.index("ab")).sum()
        total += real.sum()
    assert total > 50
    return number / total


def test_entities_are_half_of_what_is_masked_in_streams_and_evaluation(corpora, tokenizer):
    corpus, _ = corpora
    preprocessor = preprocessor_of(tokenizer, scheme="entity", max_predictions=1)
    stream = TrainingStream(corpus, preprocessor, 16, 1, shuffle_blocks=32)
    counts, num_blocks, validation = corpus.survey(preprocessor, 16)
    # An entity for a half, and a fifth of the other half.
    assert share_of_entities(stream.dataset().take(40), tokenizer) == pytest.approx(0.6, abs=0.06)
    assert share_of_entities(validation, tokenizer) > 0.35
    assert len(counts) == len(VOCABULARY) and num_blocks > 100
    plain = corpora[1].token_counts(tokenizer, LENGTH)
    np.testing.assert_array_equal(counts, plain[0])


def test_stream_goes_on_from_its_state_with_its_marks(corpora, tokenizer, monkeypatch):
    monkeypatch.setattr(blocks_module, "_TOKENIZE_CHARACTERS", 200)
    preprocessor = preprocessor_of(tokenizer, scheme="entity")
    stream = TrainingStream(corpora[0], preprocessor, 8, 1, shuffle_blocks=8)
    batches = [x["token_ids"].numpy() for x, _, _ in stream.dataset().take(30)]
    state = stream.state(25)
    assert state["0/rows"] > 0 and state["0/buffer"].max() >= 2**27
    again = TrainingStream(corpora[0], preprocessor, 8, 1, shuffle_blocks=8)
    again.start_at(25, state)
    for expected, (x, _, _) in zip(batches[25:], again.dataset().take(5)):
        np.testing.assert_array_equal(x["token_ids"], expected)


@pytest.mark.parametrize("scheme", ["span", "whole_word"])
def test_other_schemes_leave_marks_away(corpora, tokenizer, scheme):
    preprocessor = preprocessor_of(tokenizer, scheme=scheme)
    streams = [TrainingStream(c, preprocessor, 8, 1, shuffle_blocks=16) for c in corpora]
    for a, b in zip(*(stream.dataset().take(5) for stream in streams)):
        tf.nest.map_structure(np.testing.assert_array_equal, a, b)
    blocks, plain = (np.concatenate(list(c.blocks(tokenizer, LENGTH))) for c in corpora)
    np.testing.assert_array_equal(blocks, plain)


def test_prepared_corpus_keeps_spans(corpora, tokenizer, tmp_path):
    path = str(tmp_path / "prepared")
    corpus = prepare(corpora[0], tokenizer, LENGTH, path)
    assert corpus.lacks_spans == {"entity": [], "noun_phrase": [path]}
    manifest = json.loads((tmp_path / "prepared" / "prepared.json").read_text())
    assert (manifest["version"], manifest["span_kinds"]) == (2, ["entity"])
    rows = np.arange(corpus.num_blocks())
    marked = corpus.read(rows, with_marks=True)
    expected = np.concatenate(list(corpora[0].blocks(tokenizer, LENGTH, with_marks=True)))
    np.testing.assert_array_equal(marked, expected)
    np.testing.assert_array_equal(corpus.read(rows), without_marks(expected))
    preprocessor = preprocessor_of(tokenizer, scheme="entity", max_predictions=1)
    dataset = corpus.training_dataset(preprocessor, 16, 1).take(40)
    assert share_of_entities(dataset, tokenizer) == pytest.approx(0.6, abs=0.06)
    assert share_of_entities(corpus.survey(preprocessor, 16)[2], tokenizer) > 0.35
    assert all("[" not in text for text, _ in corpus.documents())
    with pytest.raises(ValueError, match="scheme=noun_phrase.*Received without: .*prepared"):
        corpus.stream(preprocessor_of(tokenizer, scheme="noun_phrase"), 16, 1)


def test_prepared_corpus_without_spans_is_as_it_was(corpora, tokenizer, tmp_path):
    path = str(tmp_path / "prepared")
    prepare(corpora[1], tokenizer, LENGTH, path)
    manifest = json.loads((tmp_path / "prepared" / "prepared.json").read_text())
    assert manifest["version"] == 1 and "span_kinds" not in manifest
    corpus = PreparedCorpus(path)
    rows = np.arange(corpus.num_blocks())
    np.testing.assert_array_equal(corpus.read(rows), corpus.read(rows, with_marks=True))


def test_corpus_without_spans_is_an_error_that_names_its_files(corpora, tokenizer, tmp_path):
    preprocessor = preprocessor_of(tokenizer, scheme="entity")
    text = corpora[1]
    for ask in [
        lambda: text.stream(preprocessor, 8, 1),
        lambda: text.survey(preprocessor, 8),
        lambda: text.evaluation_dataset(preprocessor, 8),
    ]:
        with pytest.raises(ValueError, match=r"\.jsonl files with `spans`.*without: .*a\.txt$"):
            ask()
    documents = [{"text": "a b", "spans": []}, {"text": "c"}, {"text": "d"}]
    lines = write_lines(tmp_path / "b.jsonl", documents)
    with pytest.raises(ValueError, match=r"without: .*a\.txt, .*b\.jsonl, line 2$"):
        ks.Corpus([lines, text.files[0]]).stream(preprocessor, 8, 1)


def test_strings_have_no_spans(tokenizer):
    preprocessor = preprocessor_of(tokenizer, scheme="entity")
    with pytest.raises(ValueError, match="linguistic_spans.write"):
        preprocessor(["a b c"])


@pytest.fixture(scope="module")
def nlp():
    """A spaCy pipeline of rules: entities, and the word before a full stop as noun phrase."""
    spacy = pytest.importorskip("spacy", reason="spaCy is not installed (extra [spacy])")
    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler").add_patterns(
        [
            {"label": "GPE", "pattern": "New York"},
            {"label": "DATE", "pattern": "Monday"},
            {"label": "PERSON", "pattern": "Ann"},
        ]
    )
    if not spacy.Language.has_factory("parser_by_rule"):

        @spacy.Language.component("parser_by_rule")
        def parse(doc):
            for token in doc:
                is_noun = token.i + 1 < len(doc) and doc[token.i + 1].text == "."
                token.pos_ = "NOUN" if is_noun else "X"
                token.dep_ = "ROOT" if is_noun else "dep"
                token.head = token
            return doc

    nlp.add_pipe("parser_by_rule")
    return nlp


TEXTS = ["Ann left New York. She sang on Monday.", "Nothing here", "Ann saw Ann."]


def test_spacy_finds_names_and_noun_chunks(nlp):
    found = list(linguistic_spans.find(TEXTS, nlp))
    entities = [[t[a:b] for a, b in f["entity"]] for t, f in zip(TEXTS, found)]
    assert entities == [["Ann", "New York"], [], ["Ann", "Ann"]]
    chunks = [[t[a:b] for a, b in f["noun_phrase"]] for t, f in zip(TEXTS, found)]
    assert chunks == [["York", "Monday"], [], ["Ann"]]


@pytest.mark.parametrize("name", ["spans.jsonl", "spans.jsonl.gz"])
def test_written_documents_are_read_again_in_whatever_parts(nlp, tmp_path, monkeypatch, name):
    text = tmp_path / "a.txt"
    text.write_text("\n\n".join(TEXTS * 5), encoding="utf-8")
    corpus = ks.Corpus(str(text), "blank_line")
    linguistic_spans.write(corpus, tmp_path / name, nlp)
    written = ks.Corpus(str(tmp_path / name))
    assert [str(t) for t, _ in written.documents()] == [t for t, _ in corpus.documents()]
    assert not any(written.lacks_spans.values())
    first, _ = next(written.documents())
    assert first.spans["entity"].tolist() == [[0, 3], [9, 17]]
    monkeypatch.setattr(linguistic_spans, "_PART_CHARACTERS", 20)
    linguistic_spans.write(ks.Corpus(str(text)), tmp_path / "parts.jsonl", nlp, batch_size=2)
    ((whole, ends),) = ks.Corpus(str(tmp_path / "parts.jsonl")).documents()
    assert whole == text.read_text() and ends
    names = [whole[a:b] for a, b in whole.spans["entity"].tolist()]
    assert set(names) == {"Ann", "New York"} and len(names) > 15
    linguistic_spans.write(TEXTS, tmp_path / "strings.jsonl", nlp)
    assert ks.Corpus(str(tmp_path / "strings.jsonl")).num_documents == 3


def test_token_classifier_finds_entities(tmp_path):
    model = tiny_tagger.build()
    text = "ann lives in new york . bob met eve"
    (found,) = linguistic_spans.find([text], model)
    expected = [(e["start"], e["end"]) for e in model.tag(text)]
    assert found == {"entity": expected} and expected
    linguistic_spans.write([text, "bob"], tmp_path / "a.jsonl", model)
    corpus = ks.Corpus(str(tmp_path / "a.jsonl"))
    assert [bool(places) for places in corpus.lacks_spans.values()] == [False, True]
    words = tiny_tagger.build(labels=["NOUN", "VERB"])
    with pytest.raises(ValueError, match="labels of entities. Received: .*NOUN"):
        list(linguistic_spans.find([text], words))


def test_mistakes_of_writing(nlp, tmp_path):
    with pytest.raises(ValueError, match="must end in .jsonl"):
        linguistic_spans.write(TEXTS, tmp_path / "a.txt", nlp)
    blank = type(nlp)()
    with pytest.raises(ValueError, match="must find entities or noun chunks"):
        linguistic_spans.write(TEXTS, tmp_path / "a.jsonl", blank)
    assert not list(tmp_path.iterdir())
