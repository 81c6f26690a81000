"""Prepared corpora: writing with threads and Dask, and reading in any order."""

import filecmp
import importlib.util
import json
import os
import shutil
import signal
import threading
import time

import numpy as np
import pytest

import keras_spanbert as ks
from keras_spanbert.data import prepared, text_files
from keras_spanbert.data.corpus import Corpus
from keras_spanbert.data.prepared import PreparedCorpus, prepare

WORDS = ["one", "two", "three", "four", "five", "six", "seven"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
LENGTH = 11
NUM_FILES = 5


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    generator = np.random.default_rng(0)
    for i in range(NUM_FILES):
        sizes = generator.integers(1, 40, 13)
        documents = [" ".join(generator.choice(WORDS, size)) for size in sizes]
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
def copy(folder, tmp_path):
    """A copy of a prepared corpus that tests can damage."""
    return shutil.copytree(folder, tmp_path / "copy")


@pytest.mark.long
def test_dask_gives_the_same_files_if_a_worker_is_killed(tokenizer, tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    pytest.importorskip("apache_beam")
    generator = np.random.default_rng(0)
    lines = [" ".join(generator.choice(WORDS, size=200_000)) for _ in range(6)]
    (tmp_path / "large.txt").write_text("\n".join(lines))
    monkeypatch.setattr(text_files, "_RANGE_BYTES", 500_000)  # One line. Workers use 64 MB.
    corpus = Corpus(str(tmp_path / "*.txt"), "line")
    plain, by_dask = tmp_path / "plain", tmp_path / "by_dask"
    prepare(corpus, tokenizer, LENGTH, str(plain))
    killed, is_over = [], threading.Event()

    def kill(client):
        while not is_over.is_set():
            time.sleep(0.01)
            if list(tmp_path.rglob("*.found.json")):
                killed.append(next(iter(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)
                return

    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
    with cluster, distributed.Client(cluster) as client:
        killer = threading.Thread(target=kill, args=[client])
        killer.start()
        address = f"--dask_client_address={cluster.scheduler_address}"
        options = dict(beam_runner="DaskRunner", beam_options=[address])
        prepare(corpus, tokenizer, LENGTH, str(by_dask), **options)
        is_over.set()
        killer.join()
    # An open client would try to reconnect.
    assert all(opened.status == "closed" for opened in distributed.Client._instances)
    assert killed
    names = sorted(os.listdir(plain))
    assert len(names) == 7 and sorted(os.listdir(by_dask)) == names
    assert filecmp.cmpfiles(plain, by_dask, names, shallow=False) == (names, [], [])


def test_error_of_the_writer_names_the_shard(corpus, tokenizer, tmp_path, monkeypatch):
    class FullDisk(prepared.array_record_module.ArrayRecordWriter):
        def write(self, record):
            raise RuntimeError("no space")  # ArrayRecord has no other error.

    monkeypatch.setattr(prepared.array_record_module, "ArrayRecordWriter", FullDisk)
    path = tmp_path / "corpus"
    with pytest.raises(OSError, match="00000-of-00001.* cannot be written: no space"):
        prepare(corpus, tokenizer, LENGTH, str(path), min_tokens=3, num_shards=1)
    assert not list(tmp_path.iterdir())


def test_error_in_one_shard_ends_the_others(corpus, tokenizer, tmp_path, monkeypatch):
    def write_shard(corpus, job, tokenizer, is_cancelled):
        if "00001-of-" in job["path"]:
            raise OSError("no space")
        ends = time.monotonic() + 20
        while not is_cancelled():
            assert time.monotonic() < ends
            time.sleep(0.01)
        raise OSError("cancelled")

    monkeypatch.setattr(os, "cpu_count", lambda: 4)  # A thread for each shard.
    monkeypatch.setattr(prepared, "write_shard", write_shard)
    with pytest.raises(OSError, match="no space"):
        prepare(corpus, tokenizer, LENGTH, str(tmp_path / "corpus"), min_tokens=3, num_shards=2)


def test_documents_are_decoded_blocks(folder):
    prepared = PreparedCorpus(folder)
    text, ends = next(prepared.documents())
    assert ends and set(text.split()) <= set(WORDS)
    tokens = (prepared.read(np.array([0]))[0] >= 5).sum()
    assert len(text.split()) == tokens


@pytest.mark.parametrize("size", [65_536, 65_537])
def test_ids_of_any_vocabulary_size_round_trip(size, tmp_path):
    (tmp_path / "a.txt").write_text(" ".join(f"w{i}" for i in range(size - 9, size)))
    vocabulary = [*VOCABULARY[:5], *[f"w{i}" for i in range(5, size)]]
    tokenizer = ks.SpanBertTokenizer(vocabulary)
    prepared = prepare(Corpus(str(tmp_path / "a.txt")), tokenizer, 11, str(tmp_path / "p"))
    assert prepared.read(np.array([0]))[0].tolist() == [2, *range(size - 9, size), 3]


@pytest.mark.parametrize("how", ["flipped", "truncated", "missing"])
def test_damaged_shard_is_refused_or_skipped(folder, copy, how, caplog):
    name = "train-00001-of-00003.array_record"
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 4
    (copy / name).write_bytes(content if how == "flipped" else content[:-3])
    if how == "missing":
        (copy / name).unlink()
    with pytest.raises(ValueError, match=f"Shards must be complete and unchanged.*{name}"):
        PreparedCorpus(str(copy))
    whole, left = PreparedCorpus(folder), PreparedCorpus(str(copy), damaged_shards="skip")
    assert name in caplog.text
    lost = next(s for s in whole._shards["train"] if s["name"] == name)["num_blocks"]
    assert f"without its {lost} blocks" in caplog.text
    assert left.num_blocks() == whole.num_blocks() - lost
    assert len(left.read(np.arange(left.num_blocks()))) == left.num_blocks()


def test_invalid_manifest_is_refused(copy):
    path = copy / "prepared.json"
    manifest = json.loads(path.read_text())
    manifest["shards"]["train"][0]["name"] = "../x.array_record"
    for content, message in [
        (json.dumps(manifest), "Shards must be in the folder of the manifest"),
        (json.dumps({"version": 99}), "must have version 3. Prepare .*, with version 99"),
        ("{", "prepared.json must be JSON"),
    ]:
        path.write_text(content)
        with pytest.raises(ValueError, match=message):
            PreparedCorpus(str(copy))
    path.unlink()
    with pytest.raises(ValueError, match="must have a manifest.*does not exist"):
        PreparedCorpus(str(copy))


def test_pairs_need_blocks_of_single_documents(texts, tokenizer, tmp_path):
    corpus = Corpus(texts, "blank_line", held_out=0.2, cross_documents=True)
    pairs = ks.SpanBertPretrainerPreprocessor(tokenizer, LENGTH, next_sentence=True)
    for text in [corpus, prepare(corpus, tokenizer, LENGTH, str(tmp_path / "p"))]:
        with pytest.raises(ValueError, match="`next_sentence` .* of one document each"):
            text.training_dataset(pairs, 4, seed=1)
        text.prepared(ks.SpanBertPretrainerPreprocessor(tokenizer, LENGTH))


@pytest.mark.parametrize(
    "length, settings, message",
    [
        (13, {}, f"sequence_length=13. .*Received: .*, with sequence_length={LENGTH}"),
        (LENGTH, {"vocabulary": [*VOCABULARY[:-1], "acht"]}, "11 is 'acht'.*where it is 'seven'"),
        (LENGTH, {"vocabulary": [*VOCABULARY, "more"]}, "token 12 is 'more'.*where it is None"),
        (LENGTH, {"lowercase": True}, "lowercase=True. .*Received: .*lowercase=False"),
        (LENGTH, {"added_tokens": {"two": True}}, r"=\{'two': True\}. .*: .*tokens=\{\}"),
        (LENGTH, {"special_tokens_in_strings": True}, "special.*=True. .*Received: .*=False"),
    ],
)
def test_error_for_another_model_names_the_difference(folder, length, settings, message):
    tokenizer = ks.SpanBertTokenizer(**{"vocabulary": VOCABULARY, **settings})
    with pytest.raises(ValueError, match=message):
        PreparedCorpus(folder).prepared(ks.SpanBertPretrainerPreprocessor(tokenizer, length))


@pytest.mark.parametrize("runner", [None, "DirectRunner"])
def test_settings_of_the_tokenizer_are_recorded(tmp_path, runner):
    if runner:
        pytest.importorskip("apache_beam")
    (tmp_path / "a.txt").write_text("one [MASK] two")
    settings = {"added_tokens": {"two": True}, "special_tokens_in_strings": True}
    tokenizer = ks.SpanBertTokenizer(VOCABULARY, **settings)
    corpus, folder = Corpus(str(tmp_path / "a.txt")), str(tmp_path / "p")
    prepare(corpus, tokenizer, LENGTH, folder, min_tokens=3, beam_runner=runner)
    written = PreparedCorpus(folder)
    (block,) = written.read(np.array([0]))
    assert block[1:4].tolist() == written.tokenizer()("one [MASK] two").tolist() == [5, 4, 6]
    written.prepared(ks.SpanBertPretrainerPreprocessor(tokenizer, LENGTH))


def test_invalid_folders_and_arguments_are_named(corpus, tokenizer, folder, tmp_path):
    before = sorted(os.listdir(folder))
    with pytest.raises(ValueError, match="must be new or empty"):
        prepare(corpus, tokenizer, LENGTH, folder)
    assert sorted(os.listdir(folder)) == before
    path = str(tmp_path / "p")
    is_installed = importlib.util.find_spec("apache_beam") is not None
    runner = "installed runner. Received: 'NoRunner'" if is_installed else "no package apache_beam"
    for length, arguments, message in [
        (LENGTH, {"num_shards": 0}, "`num_shards` must be at least 1. Received: num_shards=0"),
        (2, {}, "`sequence_length` must be an integer of at least 3"),
        (LENGTH, {"beam_runner": "NoRunner"}, runner),
    ]:
        with pytest.raises(ValueError, match=message):
            prepare(corpus, tokenizer, length, path, **arguments)
    with pytest.raises(ValueError, match="`damaged_shards` must be"):
        PreparedCorpus(path, damaged_shards="ignore")
    assert not os.path.exists(path)
