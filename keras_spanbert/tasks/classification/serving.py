"""Texts to labels, as graph code."""

from keras_spanbert.serving.pairs import GraphPairs
from keras_spanbert.serving.signature import strings


def labels_of_texts(model) -> dict:
    """The functions of `text`, and of `text` and `text_pair`, strings `[B]`, to serve.

    Args:
        model: `SpanBertTextClassifier` with preprocessor.
    """
    import tensorflow as tf

    rows = GraphPairs(model.preprocessor)
    names = tf.constant(model.class_names)
    is_regression = model.is_regression

    def serve_pairs(text, text_pair):
        logits = tf.cast(model(rows(text, text_pair), training=False), tf.float32)
        if is_regression:
            return {"score": logits[:, 0]}
        scores = tf.nn.softmax(logits)
        return {
            "label": tf.gather(names, tf.argmax(scores, axis=1)),
            "score": tf.reduce_max(scores, axis=1),
            "scores": scores,
        }

    def serve(text):
        return serve_pairs(text, tf.zeros_like(text))

    return {
        "serving_default": (serve, strings("text")),
        "pairs": (serve_pairs, strings("text", "text_pair")),
    }
