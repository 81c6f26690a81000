"""examples/rest_server.py, as TensorFlow Serving's clients call it."""

import concurrent.futures
import json
import os
import pathlib
import runpy
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import keras
import pytest
from tiny_answerer import examples

import keras_spanbert as ks

pytest.importorskip("fastapi", reason="fastapi is not installed (extra [serve])")
pytest.importorskip("uvicorn", reason="uvicorn is not installed (extra [serve])")
SCRIPT = pathlib.Path(__file__).parent.parent.parent / "examples" / "rest_server.py"
# Without this library.
WITH_TENSORFLOW_ALONE = """
import runpy, sys
sys.modules.update(dict.fromkeys(["keras_hub", "keras_spanbert"]))
sys.argv[:] = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def client():
    from fastapi.testclient import TestClient

    def predict(signature, columns):
        if signature == "lengths":
            return {"length": [len(text) for text in columns["text"]]}
        return {"label": [text.encode() for text in columns["text"]], "score": [0.5, 1.0]}

    return TestClient(runpy.run_path(str(SCRIPT))["make_app"]("words", predict, "3"))


TEXTS = [{"text": "é"}, {"text": "two"}]
IN_ROWS = [{"label": "é", "score": 0.5}, {"label": "two", "score": 1.0}]


@pytest.mark.once("torch")
@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"instances": TEXTS}, {"predictions": IN_ROWS}),
        ({"instances": ["é", "two"]}, {"predictions": IN_ROWS}),
        (
            {"inputs": {"text": ["é", "two"]}},
            {"outputs": {"label": ["é", "two"], "score": [0.5, 1.0]}},
        ),
        ({"signature_name": "lengths", "instances": TEXTS}, {"predictions": [1, 3]}),
        ({"signature_name": "lengths", "inputs": ["é", "two"]}, {"outputs": [1, 3]}),
        ({"instances": [{"texts": "é"}]}, {"error": "KeyError: 'text'"}),
        ({"texts": ["é"]}, {"error": 'must have either "instances" or "inputs"'}),
        ("no JSON", {"error": "JSONDecodeError: "}),
    ],
)
def test_replies_have_the_form_of_tensorflow_serving(client, request_, expected):
    body = request_ if isinstance(request_, str) else json.dumps(request_)
    reply = client.post("/v1/models/words:predict", content=body)
    if "error" in expected:
        assert reply.status_code == 400 and expected["error"] in reply.json()["error"]
    else:
        assert reply.status_code == 200 and reply.json() == expected


@pytest.mark.once("torch")
def test_status_of_models(client):
    (version,) = client.get("/v1/models/words").json()["model_version_status"]
    assert version["version"] == "3" and version["state"] == "AVAILABLE"
    assert client.get("/v1/models/other").status_code == 404
    reply = client.post("/v1/models/other:predict", content="{}")
    assert reply.status_code == 404 and "other" in reply.json()["error"]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["saved_model", "preset"])
def test_server_answers_32_clients_at_once(kind, trained_answerer, tmp_path):
    if kind == "preset":
        trained_answerer.save_to_preset(tmp_path)
        command = [SCRIPT, "answers", tmp_path, "--preset"]
    else:
        ks.serving.export_saved_model(trained_answerer, tmp_path / "1")
        command = ["-c", WITH_TENSORFLOW_ALONE, SCRIPT, "answers", tmp_path]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}/v1/models/answers"
    environment = {**os.environ, "KERAS_BACKEND": keras.backend.backend()}
    environment["PYTHONPATH"] = str(SCRIPT.parent.parent)
    command = [sys.executable, *command, f"--port={port}"]
    with subprocess.Popen(command, env=environment, cwd=tmp_path) as server:
        try:
            while True:
                assert server.poll() is None, "the server ended"
                try:
                    status = json.load(urllib.request.urlopen(address))
                    break
                except OSError:
                    time.sleep(0.2)
            assert status["model_version_status"][0]["state"] == "AVAILABLE"

            questions, contexts, _ = examples(33, seed=5)
            expected = trained_answerer.answer(questions, contexts)
            rows = [{"question": q, "context": c} for q, c in zip(questions, contexts)]

            def ask(row):
                body = json.dumps({"instances": [row]}).encode()
                return json.load(urllib.request.urlopen(f"{address}:predict", body))

            with concurrent.futures.ThreadPoolExecutor(32) as clients:
                replies = list(clients.map(ask, rows))
            for reply, (best,) in zip(replies, expected, strict=True):
                (found,) = reply["predictions"]
                assert found == {**best, "score": pytest.approx(best["score"], abs=1e-4)}
        finally:
            server.send_signal(signal.SIGINT)
    assert server.returncode in (0, -signal.SIGINT)
