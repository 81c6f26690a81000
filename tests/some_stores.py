"""Stores for tests: moto's S3 server in a thread, and a local folder that fails."""

import os
import urllib.request

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}  # fmt: skip


@pytest.fixture(scope="session")
def s3_server():
    """The URL of a server on a free local port."""
    moto = pytest.importorskip(
        "moto.server", reason="moto's server is not installed (extra [test])"
    )
    pytest.importorskip("s3fs", reason="s3fs is not installed (extra [s3])")
    server = moto.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def bucket(s3_server, monkeypatch, tmp_path):
    """The URL of a new bucket. Clients in this process and its children use the server."""
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": s3_server}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KERAS_SPANBERT_CACHE", str(tmp_path / "cache"))
    name = f"bucket-{os.urandom(6).hex()}"
    urllib.request.urlopen(urllib.request.Request(f"{s3_server}/{name}", method="PUT")).close()
    return f"s3://{name}"


class BrokenStore(LocalFileSystem):
    """A store in a local folder, `broken://`, which fails as a test chooses.

    Calls `fault` with each operation, like "put /folder/file". It may raise an error, or return the
    number of bytes that are copied.
    """

    protocol = "broken"
    operations = []
    fault = None

    def __init__(self, **kwargs):
        super().__init__(auto_mkdir=True, **kwargs)

    def _begin(self, operation, path):
        request = f"{operation} {self._strip_protocol(path)}"
        self.operations.append(request)
        return BrokenStore.fault and BrokenStore.fault(request)

    @classmethod
    def fail(cls, fault, of, times=1000):
        """Returns or raises `fault` in the first operations that start with `of`."""
        left = [fault] * times

        def chosen(request):
            found = left.pop() if left and request.startswith(of) else None
            if isinstance(found, Exception):
                raise found
            return found

        cls.fault = staticmethod(chosen)

    def _open(self, path, mode="rb", **kwargs):
        self._begin("open" if "r" in mode else "put", path)
        return super()._open(path, mode, **kwargs)

    def _copy(self, operation, path, source, target):
        size = self._begin(operation, path)
        self.cp_file(source, target)
        if size is not None:
            os.truncate(self._strip_protocol(target), size)

    def get_file(self, path1, path2, **kwargs):
        self._copy("get", path1, path1, path2)

    def put_file(self, path1, path2, **kwargs):
        self._copy("put", path2, path1, path2)

    def info(self, path, **kwargs):
        if not isinstance(path, os.DirEntry):
            self._begin("info", path)
        return super().info(path, **kwargs)

    def rm_file(self, path):
        self._begin("remove", path)
        super().rm_file(path)

    def rm(self, path, recursive=False, maxdepth=None):
        self._begin("remove", path)
        super().rm(path, recursive, maxdepth)


@pytest.fixture
def store(tmp_path, monkeypatch):
    """The class `BrokenStore`."""
    fsspec.register_implementation("broken", BrokenStore, clobber=True)
    monkeypatch.setenv("KERAS_SPANBERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(BrokenStore, "operations", [])
    monkeypatch.setattr(BrokenStore, "fault", None)
    return BrokenStore


@pytest.fixture
def broken(store, tmp_path):
    """The URL of a folder in a `BrokenStore`."""
    return f"broken://{tmp_path}/store"
