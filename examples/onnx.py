"""ONNX: a model for ONNX Runtime. Run it from the root of a clone."""

# %% export
import onnxruntime

import keras_spanbert as ks

answerer = ks.SpanBertQuestionAnswerer.from_preset(
    "saved_models/question-answering-squad", dtype="float32"
)
answerer.export("answers.onnx", format="onnx", verbose=False)
session = onnxruntime.InferenceSession("answers.onnx")
windows = answerer.preprocessor.windows(["Who wrote it?"], ["Bob wrote the letter."])
inputs = {value.name: windows[value.name] for value in session.get_inputs()}
start, end = session.run(["start", "end"], inputs)
print("logits", start.shape, end.shape)

first, last = windows["offsets"][0][start[0].argmax()][0], windows["offsets"][0][end[0].argmax()][1]
print("Bob wrote the letter."[first:last])
