"""moto's S3 server in its own process, and a proxy that injects faults."""

import contextlib
import http.client
import http.server
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.parse

import pytest

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}  # fmt: skip
# Retry delays of clients, in seconds.
SHORT = {
    "connect_timeout": 2,
    "read_timeout": 1,
    "retries": {"mode": "standard", "total_max_attempts": 1},
}
# Response headers that the proxy sets itself.
OWN = ("content-length", "connection", "transfer-encoding", "server", "date")
FAULTS = {"error": (503, "ServiceUnavailable"), "refuse": (403, "AccessDenied")}


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


class QuietServer(http.server.ThreadingHTTPServer):
    """Does not print errors about closed connections, since tests read stderr."""

    def handle_error(self, request, client_address):
        pass


class Proxy:
    """Forwards requests to a server, except those for which `fault` returns a fault.

    Attributes:
        requests: list of the received requests, like "PUT /bucket/key".
        fault: function of a request that returns `None` to forward it, or one of "error" (503),
            "hang", "drop" (no response), "cut" (connection closed after half of the body),
            "short" (half of the body with a matching length), "refuse" (403).
    """

    def __init__(self, server):
        self.fault = lambda request: None
        self.requests = []
        self._released = threading.Event()
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def __getattr__(self, name):
                if not name.startswith("do_"):
                    raise AttributeError(name)
                return lambda: proxy._answer(self, server)

            def log_message(self, *args):
                pass

        self._http = QuietServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self):
        self._released.set()
        self._http.shutdown()
        self._http.server_close()

    def _answer(self, handler, server):
        request = f"{handler.command} {urllib.parse.unquote(handler.path)}"
        handler.close_connection = True
        if handler.headers.get("Expect"):
            handler.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        self.requests.append(request)
        fault = self.fault(request)
        if fault == "hang":
            self._released.wait(30)
        if fault in ("hang", "drop"):
            return
        if fault in FAULTS:
            status, code = FAULTS[fault]
            content = f"<Error><Code>{code}</Code><Message>by the test</Message></Error>".encode()
            headers = [("Content-Type", "application/xml")]
        else:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
            with contextlib.closing(connection):
                connection.request(handler.command, handler.path, body, dict(handler.headers))
                response = connection.getresponse()
                status, content, headers = response.status, response.read(), response.getheaders()
        given = dict((name.lower(), value) for name, value in headers)
        length = given.get("content-length") if handler.command == "HEAD" else str(len(content))
        if fault in ("cut", "short"):
            content = content[: len(content) // 2]
            length = str(len(content)) if fault == "short" else length
        handler.send_response(status)
        for name, value in headers:
            if name.lower() not in OWN:
                handler.send_header(name, value)
        handler.send_header("Content-Length", length or "0")
        handler.send_header("Connection", "close")
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(content)


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


@pytest.fixture
def proxy(s3_server, bucket, monkeypatch):
    """A `Proxy` between clients and the server, with short retry delays."""
    import fsspec

    from keras_spanbert.stores import fsspec_calls

    proxy = Proxy(s3_server)
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    # Otherwise fsspec would reuse cached clients of earlier tests, with another server.
    options = {"endpoint_url": proxy.url, "config_kwargs": SHORT}
    monkeypatch.setitem(fsspec.config.conf, "s3", options)
    monkeypatch.setattr(fsspec_calls, "_FIRST_PAUSE", 0.02)
    yield proxy
    proxy.close()
