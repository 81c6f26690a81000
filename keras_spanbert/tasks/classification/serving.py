"""Serving functions from texts to labels, as graph code."""

from keras_spanbert.serving.row_batches import trim_padding
from keras_spanbert.serving.signature import strings
from keras_spanbert.tasks.classification.multi_label import is_assigned


def label_serving_functions(model) -> dict:
    """Returns the serving functions of `text`, and of `text` and `text_pair`, strings `[B]`."""
    import tensorflow as tf

    preprocessor = model.preprocessor
    names = tf.constant(model.class_names)
    is_regression, multi_label = model.is_regression, model.multi_label

    def serve_pairs(text, text_pair):
        inputs = trim_padding(preprocessor.inputs(text, text_pair))
        logits = tf.cast(model(inputs, training=False), tf.float32)
        if is_regression:
            return {"score": logits[:, 0]}
        scores = tf.sigmoid(logits) if multi_label else tf.nn.softmax(logits)
        answers = {
            # From the logits, because the sigmoids of large logits are all 1.
            "label": tf.gather(names, tf.argmax(logits, axis=1)),
            "score": tf.reduce_max(scores, axis=1),
            "scores": scores,
        }
        if multi_label:  # Each class has its own column, with "" if it is not assigned.
            answers["labels"] = tf.where(is_assigned(logits), names, "")
        return answers

    def serve(text):
        return serve_pairs(text, tf.zeros_like(text))

    return {
        "serving_default": (serve, strings("text")),
        "pairs": (serve_pairs, strings("text", "text_pair")),
    }
