"""moto's S3 server in its own process."""

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import time

import pytest

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}  # fmt: skip


class S3Server:
    """moto's server on a free local port."""

    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            assert self.process.poll() is None and time.monotonic() < until
            time.sleep(0.1)

    def close(self):
        self.process.kill()
        self.process.wait()

    def request(self, method, path, body=None):
        """Sends a request without credentials."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            connection.request(method, path, body)
            response = connection.getresponse()
            return response.status, response.read()


@pytest.fixture(scope="session")
def s3_server():
    pytest.importorskip("moto", reason="moto's server is not installed (extra [test])")
    pytest.importorskip("s3fs", reason="s3fs is not installed (extra [s3])")
    server = S3Server()
    yield server
    server.close()


@pytest.fixture
def bucket(s3_server, monkeypatch, tmp_path):
    """The URL of a new bucket. Clients in this process and its children use the server."""
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": s3_server.url}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KERAS_SPANBERT_CACHE", str(tmp_path / "cache"))
    name = f"bucket-{os.urandom(6).hex()}"
    assert s3_server.request("PUT", f"/{name}")[0] == 200
    return f"s3://{name}"
