"""Prepared corpora: the same blocks whichever way they are made, read in any order."""

import filecmp
import importlib.util
import json
import os
import shutil
import signal
import threading
import time

import keras
import numpy as np
import pytest

import keras_spanbert as ks
from keras_spanbert.data import file_ranges
from keras_spanbert.data.corpus import Corpus
from keras_spanbert.data.prepared import PreparedCorpus, is_prepared, prepare

WORDS = ["one", "two", "three", "four", "five", "six", "seven"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
LENGTH = 11
NUM_FILES = 5


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    generator = np.random.default_rng(0)
    for i in range(NUM_FILES):
        documents = [
            " ".join(generator.choice(WORDS, size=generator.integers(1, 40))) for _ in range(13)
        ]
        (folder / f"{i}.txt").write_text("\n\n".join(documents))
    return str(folder / "*.txt")


@pytest.fixture(scope="module")
def corpus(texts):
    return Corpus(texts, "blank_line", held_out=0.2)


@pytest.fixture(scope="module")
def tokenizer():
    return ks.SpanBertTokenizer(VOCABULARY)


@pytest.fixture(scope="module")
def folder(corpus, tokenizer, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("prepared") / "corpus")
    prepare(corpus, tokenizer, LENGTH, path, min_tokens=3, num_shards=3)
    return path


@pytest.fixture
def preprocessor(tokenizer):
    return ks.SpanBertPretrainerPreprocessor(tokenizer, LENGTH)


def as_set(blocks):
    rows = [tuple(row) for row in np.asarray(blocks).tolist()]
    return sorted(rows)


def all_blocks(prepared, split="train"):
    return prepared.read(np.arange(prepared.num_blocks(split)), split)


@pytest.mark.parametrize("split", ["train", "held_out"])
@pytest.mark.parametrize("num_shards", [1, 2, 99])
def test_blocks_are_those_of_the_corpus_in_any_number_of_shards(
    corpus, tokenizer, tmp_path, num_shards, split
):
    prepared = prepare(corpus, tokenizer, LENGTH, str(tmp_path / "p"), 3, num_shards)
    assert len(list(tmp_path.glob("p/train-*"))) == min(num_shards, NUM_FILES)
    expected = np.concatenate(list(corpus.blocks(tokenizer, LENGTH, split, min_tokens=3)))
    assert len(expected) > 20
    np.testing.assert_array_equal(all_blocks(prepared, split), expected)


def test_beam_gives_the_same_folder(corpus, tokenizer, folder, tmp_path):
    if importlib.util.find_spec("apache_beam") is None:
        pytest.skip("apache_beam is not installed")
    path = str(tmp_path / "by_beam")
    prepare(corpus, tokenizer, LENGTH, path, min_tokens=3, num_shards=3, beam_runner="DirectRunner")
    assert sorted(os.listdir(path)) == sorted(os.listdir(folder))
    by_beam, plain = PreparedCorpus(path), PreparedCorpus(folder)
    for split in ["train", "held_out"]:
        np.testing.assert_array_equal(all_blocks(by_beam, split), all_blocks(plain, split))
    np.testing.assert_array_equal(by_beam.token_counts()[0], plain.token_counts()[0])


def test_dask_gives_the_same_files_where_a_worker_is_killed(tokenizer, tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    pytest.importorskip("apache_beam")
    generator = np.random.default_rng(0)
    lines = [" ".join(generator.choice(WORDS, size=400_000)) for _ in range(6)]
    (tmp_path / "large.txt").write_text("\n".join(lines))
    monkeypatch.setattr(file_ranges, "RANGE_BYTES", 1_000_000)  # A line, and the workers' is 64 MB.
    corpus = Corpus(str(tmp_path / "*.txt"), "line")
    plain, by_dask = tmp_path / "plain", tmp_path / "by_dask"
    prepare(corpus, tokenizer, LENGTH, str(plain))
    killed, is_over = [], threading.Event()

    def kill(client):
        while not is_over.is_set():
            time.sleep(0.01)
            if list(tmp_path.rglob("*.found.npz")):
                killed.append(next(iter(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)
                return

    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, distributed.Client(cluster) as client:
        killer = threading.Thread(target=kill, args=[client])
        killer.start()
        address = f"--dask_client_address={cluster.scheduler_address}"
        options = dict(beam_runner="DaskRunner", beam_options=[address])
        prepare(corpus, tokenizer, LENGTH, str(by_dask), **options)
        is_over.set()
        killer.join()
    assert killed
    names = sorted(os.listdir(plain))
    assert len(names) == 7 and sorted(os.listdir(by_dask)) == names
    assert filecmp.cmpfiles(plain, by_dask, names, shallow=False) == (names, [], [])


def test_a_shard_that_was_finished_is_not_made_again(corpus, tokenizer, tmp_path):
    pytest.importorskip("apache_beam")
    from keras_spanbert.data.prepared.beam import _WriteShard
    from keras_spanbert.data.prepared.writer import _jobs

    (job, *_) = _jobs(corpus, tokenizer, LENGTH, str(tmp_path), 3, 2)
    writer, other = _WriteShard(tuple(VOCABULARY), False), _WriteShard(tuple(VOCABULARY), False)
    writer.setup()
    other.setup()
    assert other.tokenizer is writer.tokenizer
    writer.process(job)
    written = os.stat(job["path"]).st_mtime_ns
    writer.process(job)
    assert os.stat(job["path"]).st_mtime_ns == written


def test_raw_text_training_sees_the_same_set_of_blocks(
    corpus, tokenizer, folder, preprocessor, monkeypatch
):
    prepared = PreparedCorpus(folder)
    seen = []
    # What is masked is what was read.
    monkeypatch.setattr(
        preprocessor, "mask", lambda batch, seed, **_: ({"token_ids": batch}, seed, seed)
    )
    for source in [prepared, corpus]:
        stream = source.stream(preprocessor, 1, seed=4, min_tokens=3)
        rows = [
            x["token_ids"].numpy()[0] for x, _, _ in stream.dataset().take(prepared.num_blocks())
        ]
        seen.append(as_set(rows))
    assert seen[0] == seen[1] == as_set(all_blocks(prepared))


def test_each_epoch_is_another_permutation_by_the_seed(folder, preprocessor):
    prepared = PreparedCorpus(folder)
    size = prepared.num_blocks()

    def orders(seed):
        rows = prepared.stream(preprocessor, size, seed)._rows(0)
        return [next(rows).tolist() for _ in range(2)]

    first, second = orders(1)
    assert sorted(first) == sorted(second) == list(range(size))
    assert first != second
    assert orders(1) == [first, second]
    assert orders(2)[0] != first


def test_stream_starts_at_any_step(folder, preprocessor):
    prepared = PreparedCorpus(folder)
    stream = prepared.stream(preprocessor, 7, seed=1)
    expected = [x["token_ids"].numpy() for x, _, _ in stream.dataset().take(20)]
    other = prepared.stream(preprocessor, 7, seed=1)
    other.start_at(13, stream.state(13))
    for batch, (x, _, _) in zip(expected[13:], other.dataset()):
        np.testing.assert_array_equal(x["token_ids"], batch)
    np.testing.assert_array_equal(other.batch(17)[0]["token_ids"], expected[17])


@pytest.mark.parametrize("next_sentence", [False, True])
def test_a_process_reads_and_masks_its_own_rows_alone(
    folder, tokenizer, next_sentence, monkeypatch
):
    preprocessor = ks.SpanBertPretrainerPreprocessor(tokenizer, LENGTH, next_sentence=next_sentence)
    prepared = PreparedCorpus(folder)
    counts, _ = prepared.token_counts()
    stream = prepared.stream(preprocessor, 6, seed=2, unigram_counts=counts)
    stream.start_at(3)
    whole = list(stream.dataset().take(5).as_numpy_iterator())
    read = []
    monkeypatch.setattr(
        prepared,
        "read",
        lambda rows, **kwargs: (
            read.append(len(rows)) or PreparedCorpus.read(prepared, rows, **kwargs)
        ),
    )
    parts = []
    for part in range(3):
        read.clear()
        parts.append(list(stream.dataset(part, 3).take(5).as_numpy_iterator()))
        assert read[0] == (6 if next_sentence else 2)
    for batch, *shares in zip(whole, *parts, strict=True):
        for value, *own in zip(*map(keras.tree.flatten, [batch, *shares])):
            np.testing.assert_array_equal(np.concatenate(own), value)


def test_counts_are_those_of_the_corpus(corpus, tokenizer, folder):
    counts, num_blocks = PreparedCorpus(folder).token_counts()
    expected = corpus.token_counts(tokenizer, LENGTH, min_tokens=3)
    np.testing.assert_array_equal(counts, expected[0])
    assert num_blocks == expected[1]


def test_evaluation_is_the_same_each_time_and_of_the_held_out_blocks(folder, preprocessor):
    prepared = PreparedCorpus(folder)
    dataset = prepared.evaluation_dataset(preprocessor, 4)
    batches = [(x["token_ids"].numpy(), y["mlm"].numpy()) for x, y, _ in dataset]
    again = [(x["token_ids"].numpy(), y["mlm"].numpy()) for x, y, _ in dataset]
    for mine, theirs in zip(batches, again):
        np.testing.assert_array_equal(mine[0], theirs[0])
    assert len(batches) == -(-prepared.num_blocks("held_out") // 4)
    assert len(list(prepared.evaluation_dataset(preprocessor, 4, "all", steps=2))) == 2


def test_documents_are_the_text_of_blocks(folder):
    prepared = PreparedCorpus(folder)
    text, ends = next(prepared.documents())
    assert ends and set(text.split()) <= set(WORDS)
    tokens = (prepared.read(np.array([0]))[0] >= 5).sum()
    assert len(text.split()) == tokens


@pytest.mark.parametrize("size", [65_536, 65_537])
def test_ids_of_any_vocabulary_come_back(size, tmp_path):
    (tmp_path / "a.txt").write_text(" ".join(f"w{i}" for i in range(size - 9, size)))
    vocabulary = [*VOCABULARY[:5], *[f"w{i}" for i in range(5, size)]]
    tokenizer = ks.SpanBertTokenizer(vocabulary)
    prepared = prepare(Corpus(str(tmp_path / "a.txt")), tokenizer, 11, str(tmp_path / "p"))
    assert prepared.read(np.array([0]))[0].tolist() == [2, *range(size - 9, size), 3]


def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def damage(path, how):
    content = bytearray(path.read_bytes())
    if how == "flipped":
        content[len(content) // 2] ^= 4
    elif how == "truncated":
        del content[-3:]
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(bytes(content))


@pytest.mark.parametrize("how", ["flipped", "truncated", "missing"])
def test_damaged_shard_is_named_and_refused_or_skipped(folder, tmp_path, how, caplog):
    path = copy(folder, tmp_path)
    name = "train-00001-of-00003.array_record"
    damage(path / name, how)
    with pytest.raises(ValueError, match=f"Shards must be as they were written.*{name}"):
        PreparedCorpus(str(path))
    whole, left = PreparedCorpus(folder), PreparedCorpus(str(path), damaged_shards="skip")
    assert name in caplog.text
    lost = next(s for s in whole._shards["train"] if s["name"] == name)["num_blocks"]
    assert f"without its {lost} blocks" in caplog.text
    assert left.num_blocks() == whole.num_blocks() - lost
    assert len(all_blocks(left)) == left.num_blocks()


def test_pairs_take_blocks_of_one_document_each(corpus, texts, tokenizer, folder, tmp_path):
    crossing = Corpus(texts, "blank_line", held_out=0.2, cross_documents=True)
    prepared = prepare(crossing, tokenizer, LENGTH, str(tmp_path / "crossing"), min_tokens=3)
    pairs = ks.SpanBertPretrainerPreprocessor(tokenizer, LENGTH, next_sentence=True)
    for one in [prepared, crossing]:
        for method in [one.stream, one.survey, one.evaluation_dataset]:
            seed = {"seed": 1} if method == one.stream else {}
            with pytest.raises(ValueError, match="`next_sentence` .* of one document each"):
                method(pairs, 4, **seed)
    for one in [PreparedCorpus(folder), corpus]:
        one.stream(pairs, 4, seed=1)
        one.evaluation_dataset(pairs, 4)
    prepared.stream(ks.SpanBertPretrainerPreprocessor(tokenizer, LENGTH), 4, seed=1)


def test_error_for_another_version(folder, tmp_path):
    path = copy(folder, tmp_path) / "prepared.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "version": 99}))
    with pytest.raises(ValueError, match="must be of version 1 or 2. Received: .*, of version 99"):
        PreparedCorpus(str(path.parent))
    path.write_text("{")
    with pytest.raises(ValueError, match="prepared.json must be JSON"):
        PreparedCorpus(str(path.parent))
    path.unlink()
    with pytest.raises(ValueError, match="must have its manifest.*missing"):
        PreparedCorpus(str(path.parent))


def test_error_for_a_shard_outside_the_folder(folder, tmp_path):
    path = copy(folder, tmp_path) / "prepared.json"
    manifest = json.loads(path.read_text())
    manifest["shards"]["train"][0]["name"] = "../x.array_record"
    path.write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="Shards must lie in their folder"):
        PreparedCorpus(str(path.parent))


def test_error_for_another_model_says_what_differs(folder, tokenizer):
    prepared = PreparedCorpus(folder)

    def stream(tokenizer, length=LENGTH):
        prepared.stream(ks.SpanBertPretrainerPreprocessor(tokenizer, length), 2, 1)

    with pytest.raises(ValueError, match=f"sequence length 13; .*Received: .*, of {LENGTH}"):
        stream(tokenizer, 13)
    with pytest.raises(ValueError, match="token 6 is 'zwei'.*where it is 'two'"):
        stream(ks.SpanBertTokenizer([*VOCABULARY[:6], "zwei", *VOCABULARY[7:]]))
    with pytest.raises(ValueError, match="token 12 is 'more'.*where it is None"):
        stream(ks.SpanBertTokenizer([*VOCABULARY, "more"]))
    with pytest.raises(ValueError, match="lowercase=True. Received: .*lowercase=False"):
        stream(ks.SpanBertTokenizer(VOCABULARY, lowercase=True))


def test_folder_that_holds_something_is_left_alone(corpus, tokenizer, folder):
    before = sorted(os.listdir(folder))
    with pytest.raises(ValueError, match="must be new or empty"):
        prepare(corpus, tokenizer, LENGTH, folder)
    assert sorted(os.listdir(folder)) == before


def test_nothing_is_left_where_preparing_fails(texts, tokenizer, tmp_path):
    corpus = Corpus(texts)
    corpus.files[2] = str(tmp_path / "gone.txt")
    shutil.copy(texts.replace("*", "2"), corpus.files[2])
    (tmp_path / "gone.txt").write_bytes(b"one two \xff three")
    with pytest.raises(ValueError, match="Text must be UTF-8.*gone.txt"):
        prepare(corpus, tokenizer, LENGTH, str(tmp_path / "p"))
    assert os.listdir(tmp_path) == ["gone.txt"]


def test_error_for_bad_arguments(corpus, tokenizer, tmp_path):
    path = str(tmp_path / "p")
    with pytest.raises(ValueError, match="`num_shards` must be at least 1. Received: num_shards=0"):
        prepare(corpus, tokenizer, LENGTH, path, num_shards=0)
    with pytest.raises(ValueError, match="`sequence_length` must be at least 3"):
        prepare(corpus, tokenizer, 2, path)
    with pytest.raises(ValueError, match="`damaged_shards` must be"):
        PreparedCorpus(path, damaged_shards="ignore")
    if importlib.util.find_spec("apache_beam") is None:
        message = "no package apache_beam"
    else:
        message = "must be one that is installed. Received: 'NoRunner'"
    with pytest.raises(ValueError, match=message):
        prepare(corpus, tokenizer, LENGTH, path, beam_runner="NoRunner")
    assert not is_prepared(path)
