"""Serving function from texts with spans to relations, as graph code."""

from keras_spanbert.serving.row_batches import trim_padding
from keras_spanbert.serving.signature import strings
from keras_spanbert.tasks.relation_extraction.sentences import TYPES

_SPANS = ("subject_start", "subject_end", "object_start", "object_end")


def relation_serving_function(model) -> tuple:
    """Returns the serving function, and the specifications of its arguments `[B]`.

    The arguments are `text`, the spans and, in modes with types, the types.
    """
    import tensorflow as tf

    preprocessor = model.preprocessor
    names = tf.constant(model.relations)

    def serve(text, subject_start, subject_end, object_start, object_end, *types):
        x = {
            "text": text,
            "subject": tf.stack([subject_start, subject_end], axis=1),
            "object": tf.stack([object_start, object_end], axis=1),
            **dict(zip(TYPES, types)),
        }
        logits = model(trim_padding(preprocessor.rows(x)), training=False)
        scores = tf.nn.softmax(tf.cast(logits, tf.float32))
        return {
            "relation": tf.gather(names, tf.argmax(scores, axis=1)),
            "score": tf.reduce_max(scores, axis=1),
            "scores": scores,
        }

    spans = [tf.TensorSpec([None], tf.int32, name=name) for name in _SPANS]
    types = strings(*TYPES) if preprocessor.uses_types else []
    return serve, [*strings("text"), *spans, *types]
