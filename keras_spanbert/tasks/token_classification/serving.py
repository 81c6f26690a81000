"""Serving function from texts to entities, as graph code."""

from keras_spanbert.models.strings import as_strings
from keras_spanbert.serving.row_batches import window_logits
from keras_spanbert.tasks.token_classification.decoding import (
    best_labels,
    entities,
    log_probabilities,
    scheme,
)


def entity_serving_function(model):
    """Returns the function of `text`, strings `[B]`, that a SavedModel serves."""
    import tensorflow as tf
    import tensorflow.experimental.numpy as tnp

    preprocessor = model.preprocessor
    rules = scheme(list(model.labels))
    kinds = tf.constant(rules.kinds)

    def serve(text):
        texts = as_strings("text", text)  # Valid UTF-8.
        words = preprocessor.words(texts)
        scores = log_probabilities(tnp, _logits(model, words), rules)
        labels = best_labels(tnp, scores, words.num_words, rules)
        found = entities(tnp, scores, labels, words.num_words, rules)
        start = tf.gather(words.bounds[:, 0], found.first)
        end = tf.gather(words.bounds[:, 1], found.last)
        # The text that contains each entity.
        whole = tf.gather(texts, found.text)

        def padded(values, otherwise):
            rows = tf.RaggedTensor.from_value_rowids(
                values, found.text, tf.size(texts, tf.int64), validate=False
            )
            return rows.to_tensor(otherwise)

        slices = tf.strings.substr(whole, start, end - start, "UTF8_CHAR")
        return {
            "text": padded(slices, ""),
            "label": padded(tf.gather(kinds, found.kind), ""),
            "start": padded(tf.cast(start, tf.int32), -1),
            "end": padded(tf.cast(end, tf.int32), -1),
            "score": padded(tf.cast(found.score, tf.float32), 0.0),
        }

    return serve


def _logits(model, words):
    """Returns logits `[S, C]` of the words, in order."""
    import tensorflow as tf

    windows = model.preprocessor.windows_of(words)
    logits = window_logits(model, windows, len(model.labels), lambda outputs: outputs)
    is_label = windows["is_label"]
    order = tf.argsort(tf.boolean_mask(windows["word"], is_label))
    return tf.gather(tf.boolean_mask(logits, is_label), order)
