"""Texts to entities, as graph code."""

from keras_spanbert.models import windows as text_windows
from keras_spanbert.serving.tokenization import GraphTokenizer
from keras_spanbert.serving.window_batches import logits_of_windows
from keras_spanbert.tasks.token_classification.decoding import (
    best_labels,
    entities,
    log_probabilities,
    scheme,
)
from keras_spanbert.tasks.token_classification.words import Words, window_rows


def entities_of_texts(model):
    """The function of `text`, strings `[B]`, that a SavedModel serves.

    Args:
        model: `SpanBertTokenClassifier` with preprocessor.
    """
    import tensorflow as tf
    import tensorflow.experimental.numpy as tnp

    preprocessor = model.preprocessor
    tokenize = GraphTokenizer(preprocessor.tokenizer)
    rules = scheme(list(model.labels))
    kinds = tf.constant(rules.kinds)

    def serve(text):
        texts = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")  # Mends what is invalid.
        words = _words(tokenize(texts), preprocessor.is_continuation)
        scores = log_probabilities(tnp, _logits(model, tnp, words), rules)
        labels = best_labels(tnp, scores, words.num_words, rules)
        found = entities(tnp, scores, labels, words.num_words, rules)
        start = tf.gather(words.bounds[:, 0], found.first)
        end = tf.gather(words.bounds[:, 1], found.last)
        # Of each entity, the text that it is in.
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


def _words(tokens, is_continuation):
    """As `words_of_strings`."""
    import tensorflow as tf

    is_first = ~tf.gather(is_continuation, tokens.ids)
    firsts = tf.where(is_first)[:, 0]
    # A word ends where its last token does.
    lasts = tf.concat([firsts, [tf.size(is_first, tf.int64)]], axis=0)[1:] - 1
    word = tf.cumsum(tf.cast(is_first, tf.int32)) - 1
    # Up to each token, how many words there are: so many has a text that ends there.
    up_to = tf.concat([[0], word + 1], axis=0)
    ends = tf.cumsum(tokens.sizes)
    return Words(
        tf.concat([tokens.ids, [0]], axis=0),
        tf.concat([word, [0]], axis=0),
        tf.concat([is_first, [False]], axis=0),
        ends - tokens.sizes,
        tokens.sizes,
        tf.gather(up_to, ends) - tf.gather(up_to, ends - tokens.sizes),
        tf.stack(
            [tf.gather(tokens.offsets[:, 0], firsts), tf.gather(tokens.offsets[:, 1], lasts)],
            axis=1,
        ),
    )


def _logits(model, tnp, words):
    """Logits `[S, C]` of the words, in order."""
    import tensorflow as tf

    preprocessor = model.preprocessor
    length, stride = preprocessor.sequence_length, preprocessor.doc_stride
    parts = text_windows.parts(tnp, tf.ones_like(words.sizes), words.sizes, length, stride)
    reach = text_windows.most_reach(length - 2, stride)
    rows = window_rows(tnp, words, parts, length, stride, reach, preprocessor.tokenizer)
    is_label, word = rows.pop("is_label"), rows.pop("word")
    logits = logits_of_windows(model, rows, len(model.labels), lambda outputs: outputs)
    order = tf.argsort(tf.boolean_mask(word, is_label))
    return tf.gather(tf.boolean_mask(logits, is_label), order)
