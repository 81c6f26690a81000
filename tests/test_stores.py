"""Remote stores: consistent reads, atomic writes, retries and errors."""

import contextlib
import functools
import gzip
import http.server
import itertools
import os
import pathlib
import pickle
import random
import sys
import threading

import numpy as np
import pytest

import keras_spanbert as ks
from keras_spanbert import files, stores
from keras_spanbert.data.corpus import Corpus
from keras_spanbert.data.prepared import PreparedCorpus, prepare
from keras_spanbert.recipes import run_folder
from keras_spanbert.recipes.run_folder import RunFolder
from keras_spanbert.runs.checkpoint_folder import CheckpointFolder
from keras_spanbert.stores import fsspec_calls, reading

pytest_plugins = ["s3_server"]

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"apple berry cherry".split(), "."]
# Large enough to be read in parts.
LINES = "".join(f"line {i}\n" for i in range(20_000))


@pytest.fixture
def short_parts(monkeypatch):
    monkeypatch.setattr(reading, "_READ_BYTES", 1 << 14)


@pytest.fixture
def long_file(bucket, tmp_path, short_parts):
    return put(tmp_path, f"{bucket}/data/long.txt", LINES)


def put(tmp_path, url, text):
    path = tmp_path / "to_put"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    files.put_file(str(path), url)
    return url


def read(url):
    with files.open_binary(url) as file:
        return file.read().decode()


def fail(fault, *, after=0, times=None, of="GET"):
    """Returns a fault for `times` or all requests with this prefix, after the first ones."""
    numbers, counts = range(after, after + (times or 10**9)), itertools.count()

    def chosen(request):
        return fault if request.startswith(of) and next(counts) in numbers else None

    return chosen


def tiny_classifier():
    backbone = ks.SpanBertBackbone(len(VOCABULARY), 1, 2, 4, 8, max_sequence_length=16)
    preprocessor = ks.SpanBertTextClassifierPreprocessor(ks.SpanBertTokenizer(VOCABULARY), 16)
    return ks.SpanBertTextClassifier(backbone, 2, preprocessor)


def test_paths():
    assert all(map(stores.is_store, ["s3://b/x", "gs://b", "memory://"]))
    assert not any(map(stores.is_store, ["x", "/a/b", "C://x", "hf://o/n", "kaggle://k", None]))
    assert stores.join("s3://b/x/", "y", "z") == "s3://b/x/y/z"
    assert stores.join("x", "y") == os.path.join("x", "y")
    # The rest of a key may start with a slash, which must not become a local path.
    assert stores.join("s3://b/x", "/y") == "s3://b/x//y"


def test_local_paths_do_not_use_fsspec(tmp_path, monkeypatch):
    monkeypatch.setattr(fsspec_calls, "_file_system", None)
    (tmp_path / "a.txt").write_text("Apple berry.")
    assert list(files.find(str(tmp_path / "*"))) == [str(tmp_path / "a.txt")]
    with files.open_binary(str(tmp_path / "a.txt")) as file:
        assert file.name == str(tmp_path / "a.txt")  # Python's own file object.
    assert files.local_copy(str(tmp_path)) == str(tmp_path)
    assert Corpus(str(tmp_path / "*.txt")).num_documents == 1


def test_corpus_in_a_store_equals_local_corpus(bucket, texts, tmp_path):
    folder = pathlib.Path(texts).parent
    for i, path in enumerate(sorted(folder.iterdir())):
        content = path.read_bytes()
        packed = (gzip.compress(content), ".gz") if i % 2 else (content, "")
        put(tmp_path, f"{bucket}/texts/{path.name}{packed[1]}", packed[0])
    put(tmp_path, f"{bucket}/texts/more/not.txt", "apple")
    corpora = [Corpus(texts, held_out=0.2), Corpus(f"{bucket}/texts/*.txt*", held_out=0.2)]
    assert len(corpora[1].files) == 20
    tokenizer = ks.SpanBertTokenizer(corpora[0].train_vocabulary(200))
    blocks = [np.concatenate(list(corpus.blocks(tokenizer, 16))) for corpus in corpora]
    np.testing.assert_array_equal(*blocks)
    with pytest.raises(ValueError, match="matches no file"):
        Corpus(f"{bucket}/none/*.txt")
    with pytest.raises(ValueError, match="a folder"):
        Corpus(f"{bucket}/texts")


def test_changed_object_between_readings_is_an_error(bucket, tmp_path):
    url = put(tmp_path, f"{bucket}/b.txt", "b berry .")
    corpus = Corpus(f"{bucket}/*.txt")
    assert list(corpus.documents()) == [("b berry .", True)]
    put(tmp_path, url, "b apple .")
    with pytest.raises(OSError, match=f"Changed since it was first read: '{url}'"):
        list(pickle.loads(pickle.dumps(corpus)).documents())


def test_files_are_read_in_parts_and_cached(proxy, long_file):
    with files.open_binary(long_file) as file:
        assert file.peek(2)[:2] == b"li"
        file.seek(7)
        assert file.read(6) == b"line 1"
        file.seek(-8, os.SEEK_END)
        assert file.read() == LINES[-8:].encode() and file.read() == b""
    path = files.local_copy(long_file)
    assert pathlib.Path(path).read_text() == LINES
    proxy.requests.clear()
    assert files.local_copy(long_file) == path
    assert not [request for request in proxy.requests if request.startswith("GET")]


@pytest.mark.parametrize("runner", [None, "DirectRunner"])
def test_prepared_corpus_in_a_store_equals_local_one(bucket, texts, tmp_path, runner):
    if runner:
        pytest.importorskip("apache_beam")
    corpus = Corpus(texts, held_out=0.2)
    tokenizer = ks.SpanBertTokenizer(corpus.train_vocabulary(200))
    local = prepare(corpus, tokenizer, 16, str(tmp_path / "prepared"), num_shards=3)
    arguments = {"num_shards": 3, "beam_runner": runner}
    stored = prepare(corpus, tokenizer, 16, f"{bucket}/prepared", **arguments)
    assert not list(tmp_path.glob("cache/*"))  # The objects just written are not fetched again.
    found = pathlib.Path(files.local_copy(f"{bucket}/prepared"))
    paths = sorted((tmp_path / "prepared").iterdir())
    assert sorted(path.name for path in found.iterdir()) == [path.name for path in paths]
    for path in paths:
        assert (found / path.name).read_bytes() == path.read_bytes()
    rows = np.arange(stored.num_blocks())[::-1]
    np.testing.assert_array_equal(stored.read(rows), local.read(rows))
    copies = set(tmp_path.glob("cache/*"))
    put(tmp_path, f"{bucket}/prepared/run.json", "{}")  # The copy of the shards stays valid.
    assert PreparedCorpus(f"{bucket}/prepared").files == stored.files
    assert set(tmp_path.glob("cache/*")) == copies
    with pytest.raises(ValueError, match="must be new or empty"):
        prepare(corpus, tokenizer, 16, f"{bucket}/prepared")


def test_incomplete_prepared_corpus_is_refused(bucket, texts, tmp_path):
    corpus = Corpus(texts)
    tokenizer = ks.SpanBertTokenizer(corpus.train_vocabulary(200))
    (shard,) = prepare(corpus, tokenizer, 16, f"{bucket}/prepared", num_shards=1).files
    put(tmp_path, shard, b"x" * files.size(shard))
    with pytest.raises(ValueError, match=f"{shard}, with another SHA-256"):
        PreparedCorpus(f"{bucket}/prepared")
    files.remove(f"{bucket}/prepared/prepared.json")
    with pytest.raises(ValueError, match="must have a manifest"):
        PreparedCorpus(f"{bucket}/prepared")


def test_models_are_loaded_from_a_store(bucket, tmp_path):
    model = tiny_classifier()
    model.save_to_preset(f"{bucket}/model")
    tokenizer = ks.SpanBertTokenizer.from_preset(f"{bucket}/model")
    assert tokenizer.get_vocabulary() == VOCABULARY
    ks.checkpoints.to_huggingface(
        ks.SpanBertPretrainer(model.backbone), f"{bucket}/hf", model.preprocessor.tokenizer
    )
    assert is_equal(ks.SpanBertBackbone.from_preset(f"{bucket}/model"), model.backbone)
    assert is_equal(ks.checkpoints.from_huggingface(f"{bucket}/hf"), model.backbone)
    put(tmp_path, f"{bucket}/vocab.txt", "\n".join(VOCABULARY))
    assert ks.SpanBertTokenizer(f"{bucket}/vocab.txt").get_vocabulary() == VOCABULARY
    with pytest.raises(FileNotFoundError, match="none"):
        ks.SpanBertBackbone.from_preset(f"{bucket}/none")


def test_files_are_written_atomically(bucket, tmp_path):
    files.write_json(f"{bucket}/a.json", {"b": 1})
    assert files.read_json(f"{bucket}/a.json") == {"b": 1}
    with pytest.raises(KeyError), files.atomic_write(f"{bucket}/a.json") as file:
        file.write("half")
        raise KeyError
    assert files.read_json(f"{bucket}/a.json") == {"b": 1}
    files.check_new(f"{bucket}/new")
    with pytest.raises(ValueError, match="new or empty"):
        files.check_new(f"{bucket}")


def write(folder, step):
    return folder.write(step, {"x": np.full(3, step)}, f'{{"version": 2, "step": {step}}}')


def newest(url):
    path, arrays, state = CheckpointFolder(url, keep=2).read_newest()
    assert arrays["x"].tolist() == [state["step"]] * 3
    return path, state["step"]


def test_newest_checkpoints_are_kept(bucket):
    folder = CheckpointFolder(f"{bucket}/checkpoints", keep=2)
    assert folder.read_newest() is None and folder.last_good() == "no checkpoint yet"
    for step in [3, 5, 12]:
        assert write(folder, step) == f"{bucket}/checkpoints/step-{step}"
    assert newest(f"{bucket}/checkpoints") == (f"{bucket}/checkpoints/step-12", 12)
    assert files.entries(f"{bucket}/checkpoints") == ["step-12", "step-5"]


def test_partly_removed_checkpoint_is_ignored(proxy, bucket):
    folder = CheckpointFolder(f"{bucket}/checkpoints", keep=1)
    write(folder, 3)
    proxy.fault = fail("error", of=f"DELETE /{bucket[5:]}/checkpoints/step-3/arrays")
    with pytest.raises(OSError, match="step-3/arrays"):
        write(folder, 5)
    assert CheckpointFolder(f"{bucket}/checkpoints", keep=1).steps() == [5]


def test_damaged_checkpoint_is_set_aside(bucket, tmp_path, caplog):
    folder = CheckpointFolder(f"{bucket}/checkpoints", keep=2)
    for step in [3, 5]:
        write(folder, step)
    put(tmp_path, f"{bucket}/checkpoints/step-5/SHA256SUMS", b"\xff")
    assert newest(f"{bucket}/checkpoints")[1] == 3
    assert "step-5 is damaged" in caplog.text
    assert files.entries(f"{bucket}/checkpoints") == ["step-3", "step-5.damaged"]
    write(folder, 5)  # The same step can be written again.
    put(tmp_path, f"{bucket}/checkpoints/step-5/state.json", '{"version": 2, "step": 4}')
    assert newest(f"{bucket}/checkpoints")[1] == 3
    assert files.entries(f"{bucket}/checkpoints")[1:] == ["step-5.damaged", "step-5.damaged-2"]


def test_truncated_checkpoint_is_fetched_again(bucket, monkeypatch):
    folder = CheckpointFolder(f"{bucket}/checkpoints", keep=2)
    write(folder, 3)
    fetch, fetched = files.fetch, []

    def fetch_and_truncate(url, local, found):
        fetch(url, local, found)
        fetched.append(local)
        if len(fetched) <= cuts:
            raise stores.ChecksumError("by the test")

    monkeypatch.setattr(reading, "fetch", fetch_and_truncate)
    cuts = 1
    assert newest(f"{bucket}/checkpoints")[1] == 3 and len(fetched) == 2
    cuts = 4
    with pytest.raises(OSError, match="The main process read it without errors"):
        folder.read_newest(is_main=False)
    assert files.entries(f"{bucket}/checkpoints") == ["step-3"]


def test_run_json_is_written_first(proxy, bucket):
    folder = RunFolder(f"{bucket}/run", resumes=False)
    for name in ["corpus.json", "run.json", "metrics.json"]:
        files.write_json(os.path.join(folder.path, name), {})
    folder.publish()
    written = [request.split("/run/")[1] for request in proxy.requests if "PUT" in request]
    assert [name.split("?")[0] for name in written] == ["run.json", "corpus.json", "metrics.json"]
    run_folder.clean_up_folders()
    assert not os.path.exists(folder.path)


def test_globs_and_copies_in_other_stores(tmp_path, monkeypatch):
    import fsspec

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_SPANBERT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "a.txt").write_text("a")
    memory = fsspec.filesystem("memory")
    memory.pipe("/texts/a.txt", b"a")
    for folder in [f"file://{tmp_path}/", "file://", "memory://texts/"]:
        assert list(files.find(f"{folder}*.txt")) == [f"{folder}a.txt"]
    assert os.listdir(files.local_copy("memory://texts")) == ["a.txt"]
    memory.rm("/texts", recursive=True)


def test_changed_page_of_the_same_length_is_copied_again(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_SPANBERT_CACHE", str(tmp_path / "cache"))
    page = tmp_path / "site" / "a.txt"
    page.parent.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=page.parent)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for text, time in [("one", 10**9), ("two", 10**9 + 60)]:
            page.write_text(text)
            os.utime(page, (time, time))
            copy = files.local_copy(f"http://127.0.0.1:{server.server_port}/a.txt")
            assert pathlib.Path(copy).read_text() == text
        server.shutdown()


def test_passwords_and_unsupported_operations_are_refused(monkeypatch):
    with pytest.raises(ValueError, match=r"not contain a password.*ftp://\*\*\*@host/x") as error:
        files.check_writable("ftp://user:secret@host/x")
    assert "secret" not in str(error.value)
    assert stores.is_store("github://owner:name@main/texts/*.txt")
    monkeypatch.setattr(fsspec_calls, "_FIRST_PAUSE", 60)
    with pytest.raises(
        ValueError, match="cannot do what is asked. Received: data://x.*[Rr]ead.only"
    ):
        files.check_writable("data://x")


@pytest.mark.parametrize("fault", ["error", "drop", "cut", "short", "hang"])
def test_temporary_faults_are_retried(proxy, long_file, tmp_path, fault):
    proxy.fault = fail(fault, times=2)
    assert read(long_file) == LINES
    proxy.fault = fail(fault, times=2)
    assert pathlib.Path(files.local_copy(long_file)).read_text() == LINES
    if fault in ("error", "drop"):
        proxy.fault = fail(fault, times=2, of="PUT")
        put(tmp_path, f"{long_file}.more", "more")
        proxy.fault = fail(fault, times=2, of="HEAD")
        assert read(f"{long_file}.more") == "more"


def test_retries_leave_the_seeds_of_layers_unchanged(monkeypatch):
    monkeypatch.setattr(fsspec_calls, "_FIRST_PAUSE", 0)
    answers = [TimeoutError, TimeoutError, None]

    def answer(fs, key):
        if error := answers.pop(0):
            raise error
        return key

    state = random.getstate()
    assert stores.call("memory://folder/file", answer) == "/folder/file"
    assert not answers and random.getstate() == state


@pytest.mark.parametrize("fault", ["error", "short"])
def test_permanent_faults_are_errors_after_retries(proxy, long_file, monkeypatch, fault):
    monkeypatch.setattr(fsspec_calls, "_ATTEMPTS", 3)
    proxy.fault = fail(fault, after=2)
    with pytest.raises(OSError, match=f"failed 3 times.*{long_file}") as error:
        read(long_file)
    assert not isinstance(error.value, ValueError) and "\n" not in str(error.value)
    assert len([request for request in proxy.requests if request.startswith("GET")]) == 5
    proxy.fault = fail(fault)
    with pytest.raises(OSError, match="failed 3 times"):
        files.local_copy(long_file)
    assert not [name for name in os.listdir(os.environ["KERAS_SPANBERT_CACHE"]) if "." not in name]


def test_changed_object_during_reading_is_an_error(long_file, tmp_path):
    with files.open_binary(long_file) as file:
        assert file.read(4) == b"line"
        put(tmp_path, long_file, LINES.replace("i", "o"))
        with pytest.raises(OSError, match=f"Changed since it was first read: '{long_file}'"):
            while file.read(1 << 12):
                pass


def test_change_is_found_at_the_end_without_version_pinning(tmp_path, short_parts):
    (tmp_path / "a.txt").write_text(LINES)
    with files.open_binary(f"file://{tmp_path}/a.txt") as file:
        assert file.read(4) == b"line"
        (tmp_path / "a.txt").write_text(LINES.replace("i", "o"))
        with pytest.raises(OSError, match="Changed since it was first read"):
            while file.read(1 << 12):
                pass


def test_changed_object_during_fetching_is_an_error(proxy, long_file, tmp_path):
    changed = threading.Event()

    def change(request):
        if request.startswith("GET") and "long.txt" in request and not changed.is_set():
            changed.set()
            put(tmp_path, long_file, LINES.replace("i", "o"))

    proxy.fault = change
    with pytest.raises(OSError, match="Changed since"):
        files.local_copy(long_file)
    assert "lone 1" in pathlib.Path(files.local_copy(long_file)).read_text()


def test_no_permission(proxy, long_file):
    proxy.fault = lambda request: "refuse"
    for call in [read, files.local_copy, files.size, lambda url: list(files.find(f"{url}*"))]:
        proxy.requests.clear()
        with pytest.raises(ValueError, match=f"denies access. Received: {long_file}"):
            call(long_file)
        assert len(proxy.requests) <= 3  # Refused requests are not retried.
    with pytest.raises(ValueError, match="`--output` must be writable. Received: s3://"):
        files.check_writable(f"{long_file}.folder", "`--output`")


def test_missing_bucket_credentials_package_or_store(bucket, monkeypatch):
    import fsspec

    with pytest.raises(ValueError, match="must be writable. Received: s3://no-such-bucket/x"):
        files.check_writable("s3://no-such-bucket/x")
    with pytest.raises(FileNotFoundError, match="No such object.*s3://no-such-bucket/x"):
        read("s3://no-such-bucket/x")
    with pytest.raises(ValueError, match="fsspec supports. Received: nowhere://x"):
        read("nowhere://x")
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]:
        monkeypatch.delenv(name)
    monkeypatch.setitem(fsspec.config.conf, "s3", {"client_kwargs": {"region_name": "us-east-2"}})
    with pytest.raises(ValueError, match=f"denies access. Received: {bucket}/x.*credentials"):
        read(f"{bucket}/x")
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(ValueError, match=r"pip install keras-spanbert\[gcs\]"):
        read("gs://bucket/x")


def test_stopped_writer_leaves_a_complete_model_or_none(proxy, bucket, monkeypatch):
    old, new = tiny_classifier(), tiny_classifier()
    is_done, num_whole = False, 0
    for number in itertools.count():
        files.remove_folder(f"{bucket}/model")
        old.save_to_preset(f"{bucket}/model")
        proxy.fault = fail("error", after=number, of=("PUT", "DELETE", "POST"))
        with monkeypatch.context() as patch, contextlib.suppress(OSError):
            patch.setattr(fsspec_calls, "_ATTEMPTS", 1)
            new.save_to_preset(f"{bucket}/model")
            is_done = True
        proxy.fault = lambda request: None
        with contextlib.suppress(OSError, ValueError):
            loaded = ks.SpanBertTextClassifier.from_preset(f"{bucket}/model")
            num_whole += 1
            assert is_equal(loaded, new) or not is_done and is_equal(loaded, old)
        if is_done:
            break
    # Stops before and after removing the first object, and before and after writing the last one.
    assert number > 6 and num_whole >= 4


def is_equal(model, other):
    pairs = zip(model.get_weights(), other.get_weights(), strict=True)
    return all(np.array_equal(mine, theirs) for mine, theirs in pairs)
