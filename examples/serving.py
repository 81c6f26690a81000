"""Serving a model. Run it from the root of a clone."""

# %% export
import keras_spanbert as ks

answerer = ks.SpanBertQuestionAnswerer.from_preset(
    "saved_models/question-answering-squad", dtype="float32"
)
ks.serving.export_saved_model(answerer, "out/served/mine/1")  # 1 is the version.

# %% load
import tensorflow as tf
import tensorflow_text  # noqa: F401 (It adds operations to TensorFlow.)

serve = tf.saved_model.load("out/served/mine/1").signatures["serving_default"]
context = "Bob wrote the letter in the garden."
found = serve(question=tf.constant(["Who wrote the letter?"]), context=tf.constant([context]))
print(found["answer"].numpy(), found["start"].numpy(), found["end"].numpy())
