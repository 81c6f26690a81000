"""Large files in ranges: the same documents, blocks and messages as of whole files."""

import codecs
import filecmp
import gzip
import json
import os

import numpy as np
import pytest

import keras_spanbert as ks
from keras_spanbert import files
from keras_spanbert.data import file_ranges, text_files
from keras_spanbert.data.corpus import Corpus
from keras_spanbert.data.file_ranges import find_ranges
from keras_spanbert.data.prepared import prepare
from keras_spanbert.data.prepared.writer import _jobs
from keras_spanbert.data.text_files import read_documents
from keras_spanbert.data.vocabulary import SPECIAL_TOKENS
from keras_spanbert.recipes import corpora

WORDS = ["one", "two", "three", "größer", "漢", "字"]
LENGTH = 11


@pytest.fixture(scope="module")
def tokenizer():
    return ks.SpanBertTokenizer([*SPECIAL_TOKENS, *WORDS])


@pytest.fixture
def small_ranges(monkeypatch):
    monkeypatch.setattr(file_ranges, "RANGE_BYTES", 300)


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return str(path)


def random_documents(number):
    generator = np.random.default_rng(7)
    return [" ".join(generator.choice(WORDS, generator.integers(1, 40))) for _ in range(number)]


def write_documents(folder, kind, number=50):
    """A large and a small file of one kind; their glob, and the boundary of documents."""
    documents = random_documents(number)
    if kind == "jsonl":
        rows = [{"text": text, "spans": [[0, len(text.split()[0])]]} for text in documents]
        documents = [json.dumps(row, ensure_ascii=False) for row in rows]
    joint = "\r\n \r\n" if kind == "blank_line" else "\r\n"
    ending = ".jsonl" if kind == "jsonl" else ".txt"
    write(folder / f"a{ending}", joint.join(documents[:-3]))
    write(folder / f"b{ending}", joint.join(documents[-3:]))
    return str(folder / f"*{ending}"), "file" if kind == "jsonl" else kind


@pytest.mark.parametrize("boundary", ["line", "blank_line"])
def test_ranges_give_the_pieces_of_the_whole_file(tmp_path, monkeypatch, boundary):
    # Multi-byte characters, \r\n, blank lines and bytes that are no text come apart in all places.
    parts = ["ab", "é", "漢字", "😀x", " ", "\u3000", "\n", "\r\n", "\r", "\n\n", "\r\n \r\n"]
    parts = [part.encode() for part in parts] + [b"\xe2\x82", b"\n" * 9, b"long" * 9, b"\xff"]
    generator = np.random.default_rng(3)
    num_ranges, path = [], tmp_path / "a.txt"
    for i in range(120):
        monkeypatch.setattr(file_ranges, "RANGE_BYTES", 1 + i % 50)
        monkeypatch.setattr(file_ranges, "READ_BYTES", 1 + i % 60)
        monkeypatch.setattr(text_files, "_READ_BYTES", 1 + i % 60)
        monkeypatch.setattr(text_files, "_PIECE_CHARACTERS", 8 + i % 7)
        text = b"".join(parts[j] for j in generator.integers(len(parts), size=90))
        write(path, (codecs.BOM_UTF8 if i % 2 else b"") + text)
        ranges = list(find_ranges(path, boundary))
        stops = [within.stop for within in ranges]
        assert [within.start for within in ranges] == [0, *stops[:-1]] and stops[-1] is None
        num_ranges.append(len(ranges))
        whole = list(read_documents(path, boundary, "replace"))
        by_ranges = [
            piece
            for within in ranges
            for piece in read_documents(path, boundary, "replace", within)
        ]
        assert by_ranges == whole, (i, path.read_bytes())
    assert np.mean(num_ranges) > 3


def test_files_that_are_small_packed_or_one_document_are_not_cut(tmp_path, small_ranges):
    large, small = "one\n\n" * 100, "one\n\n" * 60
    whole = [(0, None, 1)]
    assert len(list(find_ranges(write(tmp_path / "a.txt", large), "line"))) == 2
    assert list(find_ranges(write(tmp_path / "a.txt", large), "file")) == whole
    assert list(find_ranges(write(tmp_path / "b.txt", small), "line")) == whole
    packed = gzip.compress(np.random.default_rng(0).bytes(400))
    assert list(find_ranges(write(tmp_path / "c.gz", packed), "line")) == whole
    assert list(find_ranges(write(tmp_path / "d.txt", large.replace("\n", " ")), "line")) == whole


@pytest.mark.parametrize("kind", ["line", "blank_line", "jsonl"])
@pytest.mark.parametrize("held_out", [0.0, 0.3])
def test_documents_and_splits_are_those_of_whole_files(tmp_path, monkeypatch, kind, held_out):
    texts, boundary = write_documents(tmp_path, kind)
    whole = Corpus(texts, boundary, held_out)
    assert len(whole.ranges) == 2
    monkeypatch.setattr(file_ranges, "RANGE_BYTES", 300)
    corpus = Corpus(texts, boundary, held_out)
    assert len(corpus.ranges) > 10
    assert corpus.num_documents == whole.num_documents == 50
    first_of_second = next(i for i, place in enumerate(corpus.ranges) if place.file == 1)
    all_ranges = list(range(len(corpus.ranges)))
    swapped = all_ranges[first_of_second:] + all_ranges[:first_of_second]
    for split in ["train", "held_out", "all"]:
        for order, of_whole in [(None, None), (swapped, [1, 0])]:
            documents = list(corpus.documents(split, order))
            assert documents == list(whole.documents(split, of_whole))
            if kind == "jsonl":
                places = [text.place for text, _ in documents]
                assert places == [text.place for text, _ in whole.documents(split, of_whole)]
    # A range alone knows which of its documents are held out.
    for split in ["train", "held_out"]:
        jobs = [{"corpus": job["corpus"], "split": job["split"]} for job in jobs_of(corpus, 99)]
        alone = [list(j["corpus"].documents(split)) for j in jobs if j["split"] == split]
        assert sum(alone, []) == list(whole.documents(split))


def jobs_of(corpus, num_shards):
    return _jobs(corpus, None, LENGTH, "", 3, num_shards)


@pytest.mark.parametrize("cross_documents", [False, True])
@pytest.mark.parametrize("kind", ["line", "blank_line", "jsonl"])
def test_shards_of_ranges_hold_the_blocks_of_the_corpus(
    tmp_path, tokenizer, small_ranges, kind, cross_documents
):
    texts, boundary = write_documents(tmp_path, kind)
    corpus = Corpus(texts, boundary, held_out=0.3, cross_documents=cross_documents)
    for num_shards in [1, 3, 99]:
        path = str(tmp_path / f"{num_shards}")
        prepared = prepare(corpus, tokenizer, LENGTH, path, 1, num_shards)
        names = [name for name in os.listdir(path) if name.startswith("train-")]
        assert len(names) == min(num_shards, len(corpus.ranges))
        for split in ["train", "held_out"]:
            expected = corpus.blocks(tokenizer, LENGTH, split, min_tokens=1, with_marks=True)
            found = prepared.read(np.arange(prepared.num_blocks(split)), split, with_marks=True)
            np.testing.assert_array_equal(found, np.concatenate(list(expected)))
        np.testing.assert_array_equal(
            prepared.token_counts()[0], corpus.token_counts(tokenizer, LENGTH, 1)[0]
        )


def test_beam_gives_the_same_shards_of_ranges(tmp_path, tokenizer, small_ranges):
    pytest.importorskip("apache_beam")
    texts, boundary = write_documents(tmp_path, "line")
    corpus = Corpus(texts, boundary, held_out=0.3)
    plain, by_beam = str(tmp_path / "plain"), str(tmp_path / "by_beam")
    prepare(corpus, tokenizer, LENGTH, plain, num_shards=3)
    prepare(corpus, tokenizer, LENGTH, by_beam, num_shards=3, beam_runner="DirectRunner")
    names = sorted(os.listdir(plain))
    assert len(names) == 7 and sorted(os.listdir(by_beam)) == names
    assert filecmp.cmpfiles(plain, by_beam, names, shallow=False) == (names, [], [])


def test_no_token_is_dropped_or_repeated_at_cuts(tmp_path, tokenizer, small_ranges):
    texts, boundary = write_documents(tmp_path, "line")
    for cross_documents in [False, True]:
        corpus = Corpus(texts, boundary, cross_documents=cross_documents)
        blocks = np.concatenate(list(corpus.blocks(tokenizer, LENGTH, min_tokens=1)))
        words = " ".join(random_documents(50))
        assert blocks[blocks > 4].tolist() == tokenizer(words).tolist()


@pytest.mark.parametrize("boundary", ["line", "blank_line"])
def test_blanks_behind_the_last_document_are_no_range(tmp_path, small_ranges, boundary):
    text = ("\n" if boundary == "line" else "\n\n").join(random_documents(50)) + "\n"
    write(tmp_path / "a.txt", text)
    without = Corpus(str(tmp_path / "a.txt"), boundary, held_out=0.2)
    write(tmp_path / "a.txt", text + "\n" * 2_000)
    corpus = Corpus(str(tmp_path / "a.txt"), boundary, held_out=0.2)
    assert len(corpus.ranges) == len(without.ranges) > 5
    # Characters of blanks may be counted to the last one.
    np.testing.assert_allclose(corpus.training_sizes(), without.training_sizes(), atol=1)
    assert list(corpus.documents()) == list(without.documents())


def test_stream_of_before_ranges_goes_on_in_its_order(tmp_path, tokenizer, small_ranges):
    corpus = Corpus(*write_documents(tmp_path, "line"))
    assert len(corpus.training_sizes()) > len(corpus.files)
    preprocessor = ks.SpanBertPretrainerPreprocessor(tokenizer, LENGTH)
    stream = ks.TrainingStream(corpus, preprocessor, 2, seed=1, min_tokens=1, lanes=1)
    state = {name.removeprefix("0/"): value for name, value in stream.state(0).items()}
    before = Corpus(*write_documents(tmp_path, "line"))
    before.joins_ranges = True
    expected = ks.TrainingStream(before, preprocessor, 2, seed=1, min_tokens=1, lanes=1)
    stream.start_at(0, state)
    batches = zip(stream.dataset().take(9), expected.dataset().take(9))
    for (mine, *_), (theirs, *_) in batches:
        np.testing.assert_array_equal(mine["token_ids"], theirs["token_ids"])


def test_blocks_go_on_over_cuts_in_runs_that_began_before_these(
    tmp_path, tokenizer, small_ranges, monkeypatch
):
    texts, boundary = write_documents(tmp_path, "line")
    corpus = Corpus(texts, boundary, cross_documents=True)
    by_ranges = np.concatenate(list(corpus.blocks(tokenizer, LENGTH, min_tokens=1)))
    record = {"bytes": {name: os.path.getsize(name) for name in corpus.files}}
    files.write_json(str(tmp_path / "corpus.json"), record)
    new = corpora.recorded_counts(corpus, None, str(tmp_path / "missing.json"))
    assert new["by_ranges"] and not corpus.joins_ranges
    eval_corpus = Corpus(texts, boundary)
    corpora.recorded_counts(corpus, eval_corpus, str(tmp_path / "corpus.json"))
    assert eval_corpus.joins_ranges
    monkeypatch.setattr(file_ranges, "RANGE_BYTES", 1 << 26)
    whole = Corpus(texts, boundary, cross_documents=True)
    expected = list(whole.parts_of_blocks(tokenizer, LENGTH, min_tokens=1))
    found = list(corpus.parts_of_blocks(tokenizer, LENGTH, min_tokens=1))
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected):
        np.testing.assert_array_equal(mine[0], theirs[0])
        np.testing.assert_array_equal(mine[1], theirs[1])
    assert len(by_ranges) > sum(len(blocks) for blocks, _ in found)


@pytest.mark.parametrize("kind", ["line", "jsonl"])
def test_a_worker_reads_its_own_bytes_alone(tmp_path, tokenizer, small_ranges, kind):
    texts, boundary = write_documents(tmp_path, kind)
    corpus = Corpus(texts, boundary)
    for job in jobs_of(corpus, 4)[:3]:
        part = job["corpus"]
        assert len(part.files) == 1
        expected = list(part.documents())
        within = [place.within for place in part.ranges]
        with open(part.files[0], "r+b") as file:
            content = file.read()
            start, stop = within[0].start, within[-1].stop or len(content)
            file.seek(0)
            file.write(b"\0" * start + content[start:stop] + b"\0" * (len(content) - stop))
        assert len(expected) > 5 and list(part.documents()) == expected
        write(tmp_path / os.path.basename(part.files[0]), content)


def test_messages_name_the_true_byte_and_line(tmp_path, small_ranges):
    line = "größer one\r\n".encode()
    text = write(tmp_path / "a.txt", line * 100 + b"bad \xff")
    with pytest.raises(ValueError, match=f"a.txt, .* at byte {100 * len(line) + 4}"):
        Corpus(text, "line")
    text = write(tmp_path / "b.txt", line * 100 + b"bad \0")
    with pytest.raises(ValueError, match=f"b.txt, .* at byte {100 * len(line) + 4}"):
        Corpus(text, "line")
    rows = b'{"text": "one"}\n\n' * 100
    for bad in [b"{", b"\xff", b'{"text": 1}']:
        path = write(tmp_path / "c.jsonl", rows + bad + b"\n" + rows)
        with pytest.raises(ValueError, match="c.jsonl, line 201"):
            Corpus(path)
