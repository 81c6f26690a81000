"""Linguistic spans: reading, storage with blocks, and annotation with pipelines."""

import pickle
import re

import numpy as np
import pytest
import tensorflow as tf
import tiny_tagger
from data_files import write, write_lines

import keras_spanbert as ks
from keras_spanbert.data import blocks as blocks_module
from keras_spanbert.data import linguistic_spans, text_files
from keras_spanbert.data.blocks import (
    AnnotatedText,
    extract_span_marks,
    filter_spans,
    remove_span_marks,
    tokenize_with_span_marks,
)
from keras_spanbert.data.prepared import prepare
from keras_spanbert.data.text_files import read_document_lines
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


def random_documents(number, seed=0, longest=90):
    """Returns texts with punctuation, Chinese and control characters, and random spans."""
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


def expected_marks(tokenizer, text, spans):
    """Computes marks token by token, as a reference."""
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


def test_tokens_and_marks(tokenizer):
    documents = random_documents(300)
    texts = [document["text"] for document in documents]
    spans = [{k: filter_spans(s) for k, s in document["spans"].items()} for document in documents]
    spans[:50] = [{}] * 50
    ids, lengths, marks = tokenize_with_span_marks(tokenizer, texts, spans)
    tokens = tokenizer.traced(tf.constant(texts))
    np.testing.assert_array_equal(ids, tokens.flat_values)
    np.testing.assert_array_equal(lengths, tokens.row_lengths())
    assert marks["entity"][: lengths[:50].sum()].max() == 0
    number = 0
    for text, by_kind, stop, length in zip(texts, spans, np.cumsum(lengths), lengths):
        if "\u00ad" in text:  # Removed within a word. `one` has two tokens for it.
            continue
        for kind, places in by_kind.items():
            same_ids, expected = expected_marks(tokenizer, text, places)
            assert len(same_ids) == length
            np.testing.assert_array_equal(marks[kind][stop - length : stop], expected, text)
            number += (expected == 1).sum()
    assert number > 100


def test_longest_of_overlapping_spans_is_kept():
    spans = [[0, 4], [2, 9], [9, 11], [10, 11], [20, 22], [21, 23], [5, 6]]
    assert filter_spans(spans).tolist() == [[2, 9], [9, 11], [20, 22]]
    assert filter_spans([]).shape == (0, 2)


def test_pieces_have_the_marks_of_the_document(tokenizer, tmp_path, monkeypatch):
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
    assert (extract_span_marks(whole, "entity") == 1).sum() == len(spans)
    assert not extract_span_marks(whole, "noun_phrase").any()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ([1], 'a document must be {"text"'),
        ({"text": "ab", "spans": [[0, 2], [0, 3]]}, ".* <= 2, the length of the text.*0, 3"),
        ({"text": "ab", "spans": [[-1, 1]]}, r".*0 <= start < end.* \[-1, 1\]"),
        ({"text": "ab", "spans": [[1, 1]]}, r".*0 <= start < end.* \[1, 1\]"),
        ({"text": "ab", "spans": [[0, 1.0]]}, r".*of \[start, end\].* \[0, 1.0\]"),
        ({"text": "ab", "spans": {"entity": [[0]]}}, r".*of \[start, end\].* \[0\]"),
        ({"text": "ab", "spans": {"entity": 3}}, "`spans` must be a list of"),
        ({"text": "ab", "spans": {"entities": []}}, "kinds .*: 'entities'"),
    ],
)
def test_errors_name_the_line(tmp_path, line, message):
    path = write_lines(tmp_path / "a.jsonl", [{"text": "a b", "spans": [[0, 1]]}, line])
    with pytest.raises(ValueError, match="a.jsonl, line 2: " + message):
        ks.Corpus(path)


def test_blank_documents_are_skipped(tmp_path):
    documents = [{"text": "a b\nc"}, {"text": " "}, {"text": "d"}]
    found = list(read_document_lines(str(write_lines(tmp_path / "a.jsonl", documents)), "strict"))
    assert found == [("a b\nc", True), ("d", True)]
    path = write(tmp_path / "b.jsonl", b'{"text": "a\xff"}')
    assert list(read_document_lines(str(path), "replace")) == [("a\ufffd", True)]


def test_marked_text_keeps_spans_when_pickled():
    text = AnnotatedText("ab", {"entity": np.array([[0, 1]], np.int32)}, "here")
    copy = pickle.loads(pickle.dumps(text))
    assert (copy, copy.place) == ("ab", "here")
    np.testing.assert_array_equal(copy.spans["entity"], [[0, 1]])


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """The same documents as lines with spans and as text. A fifth of all words is an entity."""
    folder = tmp_path_factory.mktemp("spans")
    generator = np.random.default_rng(0)
    documents = []
    for _ in range(120):
        words = list(generator.choice(["a", "b", "cd"], 23))
        words[2::5] = ["ab"] * 5
        text = " ".join(words)
        spans = [match.span() for match in re.finditer("ab", text)]
        documents.append({"text": text, "spans": {"entity": spans}})
    lines = write_lines(folder / "a.jsonl", documents)
    text = write(folder / "a.txt", "\n".join(document["text"] for document in documents))
    arguments = {"held_out": 0.2, "cross_documents": True}
    return ks.Corpus(lines, **arguments), ks.Corpus(text, "line", **arguments)


def make_preprocessor(tokenizer, **kwargs):
    return ks.SpanBertPretrainerPreprocessor(tokenizer, LENGTH, mask_rate=0.15, **kwargs)


def entity_fraction(dataset):
    """Returns the share of "ab" among masked tokens. It is a fifth of all tokens."""
    found = [y["mlm"][weight["mlm"] > 0] for _, y, weight in dataset.as_numpy_iterator()]
    found = np.concatenate(found)
    assert len(found) > 50
    return (found == VOCABULARY.index("ab")).mean()


def test_half_of_masked_spans_are_entities(corpora, tokenizer):
    corpus, text = corpora
    preprocessor = make_preprocessor(tokenizer, scheme="entity", max_predictions=1)
    stream = TrainingStream(corpus, preprocessor, 16, 1)
    # One half, and a fifth of the other half.
    assert entity_fraction(stream.dataset().take(40)) == pytest.approx(0.6, abs=0.06)
    assert entity_fraction(corpus.evaluation_dataset(preprocessor, 16)) > 0.35
    counts, num_blocks = stream.corpus.token_counts()
    assert len(counts) == len(VOCABULARY) and num_blocks > 100
    plain = text.prepared(make_preprocessor(tokenizer)).token_counts()
    np.testing.assert_array_equal(counts, plain[0])


def test_other_schemes_ignore_marks(corpora, tokenizer):
    preprocessor = make_preprocessor(tokenizer, scheme="whole_word")
    streams = [TrainingStream(c, preprocessor, 8, 1) for c in corpora]
    for a, b in zip(*(stream.dataset().take(5) for stream in streams)):
        tf.nest.map_structure(np.testing.assert_array_equal, a, b)
    blocks, plain = (np.concatenate(list(c.blocks(tokenizer, LENGTH))) for c in corpora)
    np.testing.assert_array_equal(blocks, plain)


def test_prepared_corpus_keeps_spans(corpora, tokenizer, tmp_path):
    path = str(tmp_path / "prepared")
    corpus = prepare(corpora[0], tokenizer, LENGTH, path)
    assert corpus.lacks_spans == {"entity": [], "noun_phrase": [path]}
    rows = np.arange(corpus.num_blocks())
    marked = corpus.read(rows, with_marks=True)
    expected = np.concatenate(list(corpora[0].blocks(tokenizer, LENGTH, with_marks=True)))
    np.testing.assert_array_equal(marked, expected)
    np.testing.assert_array_equal(corpus.read(rows), remove_span_marks(expected))
    assert all("[" not in text for text, _ in corpus.documents())
    message = "scheme=noun_phrase.*Received: text without spans in .*prepared"
    with pytest.raises(ValueError, match=message):
        corpus.prepared(make_preprocessor(tokenizer, scheme="noun_phrase"))
    path = str(tmp_path / "without")
    without = prepare(corpora[1], tokenizer, LENGTH, path)
    assert without.lacks_spans == {"entity": [path], "noun_phrase": [path]}


def test_missing_spans_error_names_the_files(corpora, tokenizer, tmp_path):
    preprocessor = make_preprocessor(tokenizer, scheme="entity")
    (text,) = corpora[1].files
    documents = [{"text": "a b", "spans": []}, {"text": "c"}, {"text": "d"}]
    lines = write_lines(tmp_path / "b.jsonl", documents)
    message = r"\.jsonl files with `spans`.*without spans in .*a\.txt, .*b\.jsonl, line 2$"
    with pytest.raises(ValueError, match=message):
        ks.Corpus([lines, text]).prepared(preprocessor)
    with pytest.raises(ValueError, match="linguistic_spans.write"):
        preprocessor(["a b c"])


@pytest.fixture(scope="module")
def nlp():
    """A rule-based spaCy pipeline. The word before a full stop is a noun phrase."""
    spacy = pytest.importorskip("spacy", reason="spaCy is not installed (extra [spacy])")
    nlp = spacy.blank("en")
    labels = {"New York": "GPE", "Monday": "DATE", "Two": "cardinal", "Ann": "PERSON"}
    patterns = [{"label": label, "pattern": name} for name, label in labels.items()]
    nlp.add_pipe("entity_ruler").add_patterns(patterns)
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


TEXTS = ["Ann left New York. She sang on Monday.", "Two came", "Ann saw Ann."]


def spans_of(text):
    return [[text[a:b] for a, b in text.spans[kind].tolist()] for kind in text.spans]


def test_written_documents_do_not_depend_on_parts(nlp, tmp_path, monkeypatch):
    text = write(tmp_path / "a.txt", "\n\n".join(TEXTS * 5))
    corpus = ks.Corpus(text, "blank_line")
    linguistic_spans.write(corpus, tmp_path / "spans.jsonl.gz", nlp)
    written = ks.Corpus(tmp_path / "spans.jsonl.gz")
    linguistic_spans.write(written, tmp_path / "again.jsonl", nlp)
    for found in [written, ks.Corpus(tmp_path / "again.jsonl")]:
        assert list(found.documents()) == list(corpus.documents())
        assert not any(found.lacks_spans.values())
        # Names, and noun chunks.
        expected = [[["Ann", "New York"], ["York", "Monday"]], [[], []], [["Ann", "Ann"], ["Ann"]]]
        assert [spans_of(text) for text, _ in found.documents()] == expected * 5
    monkeypatch.setattr(linguistic_spans, "_CHUNK_CHARACTERS", 20)
    linguistic_spans.write(ks.Corpus(text), tmp_path / "parts.jsonl", nlp, batch_size=2)
    ((whole, ends),) = ks.Corpus(tmp_path / "parts.jsonl").documents()
    assert whole == text.read_text() and ends
    names = spans_of(whole)[0]
    assert set(names) == {"Ann", "New York"} and len(names) > 15


def test_token_classifier_finds_entities(tmp_path):
    model = tiny_tagger.build()
    text = "ann lives in new york . bob met eve"
    (found,) = linguistic_spans.find([text], model)
    expected = [(e["start"], e["end"]) for e in model.tag(text)]
    assert found == {"entity": expected} and expected
    linguistic_spans.write([text, "bob"], tmp_path / "a.jsonl", model)
    corpus = ks.Corpus(tmp_path / "a.jsonl")
    assert corpus.num_documents == 2
    assert [bool(places) for places in corpus.lacks_spans.values()] == [False, True]
    words = tiny_tagger.build(labels=["NOUN", "VERB"])
    with pytest.raises(ValueError, match="`nlp.labels` must be labels of entities. .*NOUN"):
        list(linguistic_spans.find([text], words))


def test_invalid_annotation_arguments(nlp, tmp_path):
    with pytest.raises(ValueError, match="must end in .jsonl"):
        linguistic_spans.write(TEXTS, tmp_path / "a.txt", nlp)
    blank = type(nlp)()
    with pytest.raises(ValueError, match="must find entities or noun chunks"):
        linguistic_spans.write(TEXTS, tmp_path / "a.jsonl", blank)
    assert not list(tmp_path.iterdir())
