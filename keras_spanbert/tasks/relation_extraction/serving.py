"""Serving function from texts with spans to relations, as graph code."""

from keras_spanbert.serving.row_batches import trim_padding
from keras_spanbert.serving.signature import strings
from keras_spanbert.tasks.relation_extraction.sentences import TYPES

_SPANS = ("subject_start", "subject_end", "object_start", "object_end")


def signature(preprocessor) -> list:
    """Returns the input specs of the function of `relation_serving_function`."""
    import tensorflow as tf

    spans = [tf.TensorSpec([None], tf.int32, name=name) for name in _SPANS]
    return [*strings("text"), *spans, *strings(*(TYPES if preprocessor.uses_types else ()))]


def relation_serving_function(model):
    """Returns the serving function of `text`, spans and, in modes with types, types, `[B]` each.

    Args:
        model: `SpanBertRelationExtractor` with preprocessor.
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

    return serve
