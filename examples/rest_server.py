"""Serves a model with TensorFlow Serving's REST API, on FastAPI (extra `[serve]`).

A SavedModel needs TensorFlow and TensorFlow Text, not this library. A preset needs this library,
and runs on any backend.
"""

import argparse
import json
import os

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool

# How the model of a preset answers the columns of a request, with a dict for each row.
ANSWERS = {
    "SpanBertCoreferenceResolver": lambda m, text: m.resolve(text),
    "SpanBertMultipleChoice": lambda m, prompt, choices: m.choose(prompt, choices),
    "SpanBertQuestionAnswerer": lambda m, question, context: [
        found[0] for found in m.answer(question, context)
    ],
    "SpanBertTextClassifier": lambda m, text, text_pair=None: m.classify(text, text_pair),
    "SpanBertTokenClassifier": lambda m, text: [{"entities": found} for found in m.tag(text)],
}


def load_preset(folder):
    import keras_spanbert as ks

    with open(f"{folder}/task.json") as file:
        name = json.load(file)["registered_name"].split(">")[-1]
    answer_rows, model = ANSWERS[name], getattr(ks, name).from_preset(folder, dtype="float32")

    def predict(signature, columns):
        rows = answer_rows(model, **columns)
        return {key: [row[key] for row in rows] for key in rows[0]}

    return predict, "1"


def load_saved_model(folder):
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 (It adds operations to TensorFlow.)

    version = max((name for name in os.listdir(folder) if name.isdecimal()), key=int)
    model = tf.saved_model.load(f"{folder}/{version}")

    def predict(signature, columns):
        function = model.signatures[signature]
        specs = function.structured_input_signature[1]
        inputs = {name: tf.constant(x, specs[name].dtype) for name, x in columns.items()}
        return {name: x.numpy().tolist() for name, x in function(**inputs).items()}

    return predict, version


def answer(predict, body):
    """Returns the reply to a request: rows for "instances", columns for "inputs"."""
    request = json.loads(body)
    if ("instances" in request) == ("inputs" in request):
        raise ValueError('A request must have either "instances" or "inputs"')
    columns = request["inputs" if "inputs" in request else "instances"]
    if "instances" in request and isinstance(columns[0], dict):
        columns = {name: [row[name] for row in columns] for name in columns[0]}
    if isinstance(columns, list):  # Models with one input call it "text".
        columns = {"text": columns}
    outputs = predict(request.get("signature_name", "serving_default"), columns)
    if len(outputs) == 1:  # Without its name.
        (outputs,) = outputs.values()
    elif "instances" in request:
        outputs = [dict(zip(outputs, row)) for row in zip(*outputs.values())]
    return {"predictions" if "instances" in request else "outputs": outputs}


def make_app(model, predict, version):
    app = FastAPI()

    def reply(content, status=200):
        # TensorFlow's strings are bytes.
        text = json.dumps(content, sort_keys=True, default=bytes.decode)
        return Response(text, status, media_type="application/json")

    @app.get("/v1/models/{name}")
    def status(name: str):
        if name != model:
            return reply({"error": f"Could not find any versions of model {name}"}, 404)
        fine = {"error_code": "OK", "error_message": ""}
        found = {"version": version, "state": "AVAILABLE", "status": fine}
        return reply({"model_version_status": [found]})

    @app.post("/v1/models/{name}:predict")
    async def post(name: str, request: Request):
        if name != model:
            return reply({"error": f"Servable not found for request: Latest({name})"}, 404)
        try:
            return reply(await run_in_threadpool(answer, predict, await request.body()))
        except Exception as error:  # Models refuse wrong inputs with errors of many kinds.
            return reply({"error": f"{type(error).__name__}: {error}"}, 400)

    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="name of the model in URLs")
    parser.add_argument("folder", help="folder of a SavedModel's versions, or of a preset")
    parser.add_argument("--preset", action="store_true", help="the folder is a preset")
    parser.add_argument("--port", type=int, default=8501)
    flags = parser.parse_args()
    load = load_preset if flags.preset else load_saved_model
    uvicorn.run(make_app(flags.name, *load(flags.folder)), port=flags.port)
