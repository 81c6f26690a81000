"""moto's S3 server in a thread."""

import os
import urllib.request

import pytest

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
