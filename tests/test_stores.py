"""Paths in stores: complete reads, writes to the end or not at all, and errors."""

import contextlib
import functools
import gzip
import http.server
import os
import pathlib
import sys
import threading

import fsspec
import numpy as np
import pytest
from comparisons import assert_close
from tiny_models import VOCABULARY, answerer

import keras_spanbert as ks
from keras_spanbert import cache, files, stores
from keras_spanbert.data.corpus import Corpus
from keras_spanbert.data.prepared import PreparedCorpus, prepare
from keras_spanbert.recipes import run_folder
from keras_spanbert.recipes.run_folder import Run
from keras_spanbert.runs.checkpoint_folder import CheckpointFolder

pytest_plugins = ["some_stores"]

LINES = "".join(f"line {i}\n" for i in range(2_000))


def put(url, text):
    with files.atomic_write(url, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    return url


def read(url):
    return pathlib.Path(cache.local_copy(url)).read_text()


def test_paths():
    assert all(map(stores.is_store, ["s3://b/x", "gs://b", "memory://"]))
    assert not any(map(stores.is_store, ["x", "/a/b", "C://x", "hf://o/n", "kaggle://k", None]))
    assert stores.is_store("github://owner:name@main/texts/*.txt")
    assert stores.join("s3://b/x/", "y", "z") == "s3://b/x/y/z"
    assert stores.join("x", "y") == os.path.join("x", "y")
    # The rest of a key may start with a slash, which must not become a local path.
    assert stores.join("s3://b/x", "/y") == "s3://b/x//y"


def test_files_and_folders_on_disk_and_in_stores(broken, bucket, tmp_path):
    for place in [str(tmp_path / "disk"), broken, bucket, "memory://a_bucket"]:
        folder = stores.join(place, "folder")
        assert stores.kind(folder) is None and stores.entries(folder) == []
        assert stores.names(folder) == {}
        with files.new_folder(folder) as local:
            os.mkdir(os.path.join(local, "inner"))
            for name, text in [("a.txt", "a"), ("inner/b.txt", "bee"), ("config.json", "{}")]:
                pathlib.Path(local, name).write_text(text)
        with pytest.raises(ValueError, match="must be new or empty"):
            files.check_new(folder)
        assert stores.entries(folder) == ["a.txt", "config.json", "inner"]
        assert sorted(stores.names(folder)) == ["a.txt", "config.json", "inner/b.txt"]
        path = stores.join(folder, "inner", "b.txt")
        assert stores.names(folder)["inner/b.txt"][0] == stores.names(path)[""][0] == 3
        assert stores.kind(path) == "file" and stores.entries(path) == []
        assert stores.kind(folder) == "directory"
        assert list(stores.find(stores.join(folder, "*.txt"))) == [stores.join(folder, "a.txt")]
        assert list(stores.find(path)) == [path] and not list(stores.find(f"{path}.none"))
        assert read(path) == "bee" and read(stores.join(folder, "a.txt")) == "a"
        assert sorted(os.listdir(cache.local_copy(folder))) == ["a.txt", "config.json", "inner"]
        with pytest.raises(KeyError), files.atomic_write(path) as file:
            file.write("half")
            raise KeyError
        with pytest.raises(KeyError), stores.local_output(stores.join(place, "new")) as local:
            os.mkdir(local)
            raise KeyError
        assert read(path) == "bee"
        with files.atomic_write(path) as file:
            file.write("new")
        assert read(path) == "new"
        moved = stores.join(place, "moved[1]")
        stores.rename(folder, moved)
        assert stores.kind(folder) is None and stores.kind(moved) == "directory"
        stores.rename(moved, folder)
        # Names are no globs. Those of `broken` could not be: it is a local file system.
        odd = [] if place == broken else ["a[1]", "b*"]
        for name in ["a1", "bc", *odd]:
            put(stores.join(folder, name), "text")
        for name in ["a.txt", "a.txt", "inner", *odd]:
            stores.remove(stores.join(folder, name))
        assert sorted(stores.names(folder)) == ["a1", "bc", "config.json"]
        for _ in range(2):
            stores.remove(folder)
        assert stores.kind(folder) is None


@pytest.mark.parametrize("size", [0, 100, len(LINES) - 1])
def test_short_reads_copies_and_writes_are_errors(broken, store, size, tmp_path):
    url = put(f"{broken}/a.txt", LINES)
    for act, of in [(read, "get"), (lambda url: put(url, LINES), "put")]:
        store.fail(size, of)
        with pytest.raises(OSError, match=f"{size} bytes instead of {len(LINES)}.*{url}"):
            act(url)
        store.fail(size, of, times=0)
        assert act(url) in (LINES, url)
    store.fail(size, "put")
    (tmp_path / "a.txt").write_text(LINES)
    with pytest.raises(OSError, match=f"{size} bytes instead of"):
        stores.upload(str(tmp_path / "a.txt"), url)
    assert stores.kind(url) is None  # Written to the end or not at all.


def test_files_are_copied_once_per_version(broken, store):
    url = put(f"{broken}/long.txt", LINES)
    assert read(url) == LINES
    store.operations.clear()
    assert read(url) == LINES
    assert not [request for request in store.operations if request.startswith("get")]
    put(url, LINES.replace("i", "o"))
    assert read(url) == LINES.replace("i", "o")


def test_object_that_marks_an_empty_folder_is_no_file(bucket):
    put(f"{bucket}/texts/a.txt", "a")
    for marker in ["texts/", "texts/more/"]:
        fsspec.filesystem("s3").pipe_file(f"{bucket}/{marker}", b"")
    assert [*stores.names(f"{bucket}/texts")] == ["a.txt"]
    assert os.listdir(cache.local_copy(f"{bucket}/texts")) == ["a.txt"]


def test_local_pipe_is_read():
    reading, writing = os.pipe()
    with open(writing, "w") as file:
        file.write("a\nb\n")
    assert read(f"/dev/fd/{reading}") == "a\nb\n"
    os.close(reading)


@pytest.mark.long
def test_corpus_in_a_store_equals_local_corpus(bucket, texts):
    folder = pathlib.Path(texts).parent
    for i, path in enumerate(sorted(folder.iterdir())):
        content = path.read_bytes()
        packed = (gzip.compress(content), ".gz") if i % 2 else (content, "")
        put(f"{bucket}/texts/{path.name}{packed[1]}", packed[0])
    put(f"{bucket}/texts/more/not.txt", "apple")
    corpora = [Corpus(texts, held_out=0.2), Corpus(f"{bucket}/texts/*.txt*", held_out=0.2)]
    assert len(corpora[1].files) == 20
    tokenizer = ks.SpanBertTokenizer(corpora[0].train_vocabulary(200))
    blocks = [np.concatenate(list(corpus.blocks(tokenizer, 16))) for corpus in corpora]
    np.testing.assert_array_equal(*blocks)
    put(corpora[1].files[0], "Other.")
    with pytest.raises(OSError, match="Changed since it was first read"):
        corpora[1].check_unchanged()
    with pytest.raises(ValueError, match="matches no file"):
        Corpus(f"{bucket}/none/*.txt")
    with pytest.raises(ValueError, match="a folder"):
        Corpus(f"{bucket}/texts")


@pytest.mark.long
@pytest.mark.parametrize("runner", [None, "DirectRunner"])
def test_prepared_corpus_in_a_store_equals_local_one(bucket, texts, tmp_path, runner):
    if runner:
        pytest.importorskip("apache_beam")
    corpus = Corpus(texts, held_out=0.2)
    tokenizer = ks.SpanBertTokenizer(corpus.train_vocabulary(200))
    local = prepare(corpus, tokenizer, 16, str(tmp_path / "prepared"), num_shards=3)
    arguments = {"num_shards": 3, "beam_runner": runner}
    stored = prepare(corpus, tokenizer, 16, f"{bucket}/prepared", **arguments)
    # The shards just written are not fetched again.
    assert not list(tmp_path.glob("cache/*/train-*.array_record"))
    found = pathlib.Path(cache.local_copy(f"{bucket}/prepared"))
    paths = sorted((tmp_path / "prepared").iterdir())
    assert sorted(path.name for path in found.iterdir()) == [path.name for path in paths]
    for path in paths:
        assert (found / path.name).read_bytes() == path.read_bytes()
    rows = np.arange(stored.num_blocks())[::-1]
    np.testing.assert_array_equal(stored.read(rows), local.read(rows))
    copies = set(tmp_path.glob("cache/*"))
    put(f"{bucket}/prepared/run.json", "{}")  # The copy of the shards stays valid.
    assert PreparedCorpus(f"{bucket}/prepared").files == stored.files
    assert set(tmp_path.glob("cache/*")) == copies
    with pytest.raises(ValueError, match="must be new or empty"):
        prepare(corpus, tokenizer, 16, f"{bucket}/prepared")


def test_incomplete_prepared_corpus_is_refused(broken, store, texts):
    corpus = Corpus(texts)
    tokenizer = ks.SpanBertTokenizer(corpus.train_vocabulary(200))
    (shard,) = prepare(corpus, tokenizer, 16, f"{broken}/prepared", num_shards=1).files
    put(shard, b"x" * stores.names(shard)[""][0])
    with pytest.raises(ValueError, match=f"{shard}, with another SHA-256"):
        PreparedCorpus(f"{broken}/prepared")
    stores.remove(f"{broken}/prepared/prepared.json")
    with pytest.raises(ValueError, match="must have a manifest"):
        PreparedCorpus(f"{broken}/prepared")
    store.fail(OSError("down"), "put", times=1)
    with pytest.raises(OSError, match="down"):
        prepare(corpus, tokenizer, 16, f"{broken}/new", num_shards=1)
    assert stores.kind(f"{broken}/new") is None


def test_models_are_loaded_from_a_store(bucket):
    model = answerer()
    weights = model.backbone.weights
    model.save_to_preset(f"{bucket}/model")
    tokenizer = ks.SpanBertTokenizer.from_preset(f"{bucket}/model")
    assert tokenizer.get_vocabulary() == VOCABULARY
    ks.checkpoints.to_huggingface(
        ks.SpanBertPretrainer(model.backbone), f"{bucket}/hf", model.preprocessor.tokenizer
    )
    assert_close(ks.SpanBertBackbone.from_preset(f"{bucket}/model").weights, weights, rtol=0)
    assert_close(ks.checkpoints.from_huggingface(f"{bucket}/hf").weights, weights, rtol=0)
    put(f"{bucket}/vocab.txt", "\n".join(VOCABULARY))
    assert ks.SpanBertTokenizer(f"{bucket}/vocab.txt").get_vocabulary() == VOCABULARY
    with pytest.raises(FileNotFoundError, match="none"):
        ks.SpanBertBackbone.from_preset(f"{bucket}/none")


def test_stopped_writer_leaves_a_complete_model_or_none(broken, store):
    def write_model(text):
        with stores.local_output(f"{broken}/model") as folder:
            for name in ["config.json", "a.h5", "task.json", "b/c.txt"]:
                pathlib.Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
                pathlib.Path(folder, name).write_text(text)

    found = []
    for number in range(7):  # Two objects are removed, and four are written.
        stores.remove(f"{broken}/model")
        write_model("old")
        left = [None] * number

        def fault(request, left=left):
            if request.startswith(("put", "remove")):
                left.pop()

        store.fault = staticmethod(fault)
        with contextlib.nullcontext() if number == 6 else pytest.raises(OSError):
            write_model("new")
        store.fault = None
        folder = pathlib.Path(cache.local_copy(f"{broken}/model"))
        is_whole = (folder / "config.json").exists()
        texts = {path.read_text() for path in folder.rglob("*") if path.is_file()}
        found.append(texts if is_whole else None)
    assert found == [{"old"}, *[None] * 5, {"new"}]


def test_sums_of_other_objects_are_removed(broken, tmp_path):
    for name in ["SHA256SUMS", "config.json", "mine"]:
        put(f"{broken}/model/{name}", "old")
    with files.new_folder(f"{broken}/model") as folder:
        pathlib.Path(folder, "config.json").write_text("new")
    assert stores.entries(f"{broken}/model") == ["config.json", "mine"]


def write(folder, step):
    return folder.write(step, {"x": np.full(3, step)}, f'{{"version": 2, "step": {step}}}')


def newest(url):
    path, arrays, state = CheckpointFolder(url, keep=2).read_newest()
    assert arrays["x"].tolist() == [state["step"]] * 3
    return path, state["step"]


def test_newest_complete_checkpoints_are_kept(broken, store):
    folder = CheckpointFolder(f"{broken}/checkpoints", keep=2)
    assert folder.read_newest() is None and folder.last_good() == "no checkpoint yet"
    for step in [3, 5, 12]:
        assert write(folder, step) == f"{broken}/checkpoints/step-{step}"
    assert newest(f"{broken}/checkpoints") == (f"{broken}/checkpoints/step-12", 12)
    assert stores.entries(f"{broken}/checkpoints") == ["step-12", "step-5"]
    put(f"{broken}/checkpoints/step-12/SHA256SUMS", b"\xff")
    assert newest(f"{broken}/checkpoints")[1] == 5
    assert stores.entries(f"{broken}/checkpoints") == ["step-12.damaged", "step-5"]
    write(folder, 12)
    store.fail(OSError("down"), f"remove {broken[9:]}/checkpoints/step-5", times=2)
    with pytest.raises(OSError, match="down.*step-5"):
        write(folder, 14)
    store.fail(OSError("down"), f"put {broken[9:]}/checkpoints/step-15/SHA256SUMS")
    with pytest.raises(OSError, match="down; the last good checkpoint is .*step-14.*step-15"):
        write(folder, 15)
    assert CheckpointFolder(f"{broken}/checkpoints", keep=2).steps() == [14, 12, 5]


def test_run_folder_sends_what_changed_and_run_json_first(broken, store):
    run = Run(None, f"{broken}/run", {})
    for name in ["corpus.json", "run.json", "metrics.json"]:
        files.write_json(os.path.join(run.folder, name), {})
    run.publish()
    with files.add_to_folder(run.folder) as preset:
        files.write_json(os.path.join(preset, "config.json"), {})
    run.publish()
    resumed = Run(None, f"{broken}/run", {}, resumes=True)
    files.write_json(os.path.join(resumed.folder, "metrics.json"), {"f1": 1})
    resumed.publish()
    written = [text.split("/run/")[1] for text in store.operations if text[:3] == "put"]
    assert written == ["run.json", "corpus.json", "metrics.json", "config.json", "metrics.json"]
    run_folder.clean_up_folders()
    assert not os.path.exists(run.folder)


def test_globs_in_other_stores(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a")
    fsspec.filesystem("memory").pipe("/texts/a.txt", b"a")
    for folder in [f"file://{tmp_path}/", "file://", "memory://texts/"]:
        assert list(stores.find(f"{folder}*.txt")) == [f"{folder}a.txt"]
    stores.remove("memory://texts")


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
            assert read(f"http://127.0.0.1:{server.server_port}/a.txt") == text
        server.shutdown()


def test_errors_name_the_path(broken, store):
    url = put(f"{broken}/a.txt", LINES)
    everything = [read, stores.names, stores.kind, lambda url: list(stores.find(f"{url}*"))]
    for act in everything:
        store.fail(PermissionError("no key"), ("get", "info"))
        with pytest.raises(ValueError, match=f"Received: {url}.*PermissionError: no key"):
            act(url)
        store.fail(TimeoutError("two\nlines"), ("get", "info"))
        with pytest.raises(OSError, match=f"failed: TimeoutError: two lines: '{url}") as error:
            act(url)
        assert not isinstance(error.value, ValueError)
    store.fail(PermissionError("no key"), "put")
    with pytest.raises(ValueError, match=f"`--output` must be writable. Received: {broken}/new"):
        files.check_writable(f"{broken}/new", "`--output`")
    with pytest.raises(ValueError, match=f"Received: {url}.*PermissionError: no key"):
        put(url, "text")
    store.fault = None
    with pytest.raises(FileNotFoundError, match=f"No such object.*{broken}/none"):
        read(f"{broken}/none")
    with pytest.raises(ValueError, match=r"not contain a password.*ftp://\*\*\*@host/x") as error:
        files.check_writable("ftp://user:secret@host/x")
    assert "secret" not in str(error.value)
    with pytest.raises(ValueError, match="Received: data://x.*ead.only"):
        files.check_writable("data://x")


def test_missing_bucket_credentials_package_or_store(bucket, monkeypatch):
    with pytest.raises(ValueError, match="must be writable. Received: s3://no-such-bucket/x"):
        files.check_writable("s3://no-such-bucket/x")
    with pytest.raises(FileNotFoundError, match="No such object.*s3://no-such-bucket/x"):
        read("s3://no-such-bucket/x")
    with pytest.raises(ValueError, match="Received: nowhere://x: ValueError: Protocol not known"):
        read("nowhere://x")
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]:
        monkeypatch.delenv(name)
    monkeypatch.setitem(fsspec.config.conf, "s3", {"client_kwargs": {"region_name": "us-east-2"}})
    with pytest.raises(ValueError, match=f"Received: {bucket}/x.*credentials"):
        read(f"{bucket}/x")
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(ValueError, match=r"pip install.*keras-spanbert\[gcs\]"):
        read("gs://bucket/x")
