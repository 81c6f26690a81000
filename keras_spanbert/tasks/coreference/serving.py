"""Serving function from texts to clusters of mentions, as graph code that does as `resolve`.

B = texts, M = maximum number of mentions of a text. For one text, W = words, T = tokens, S =
segments, L = longest segment, K = spans that are kept.
"""

from keras_spanbert.tasks.coreference.inference import (
    document_inputs,
    extract_spans,
    predict_rows,
    word_clusters,
)
from keras_spanbert.tasks.coreference.layers import MAX_TOP_SPANS
from keras_spanbert.tasks.coreference.preprocessor import (
    SEPARATOR_NUMBER,
    cut_into_segments,
    segment_rows,
    speaker_numbers,
)
from keras_spanbert.tasks.coreference.splitting import split


def clusters(model):
    """Returns the function of `text`, strings `[B]`, that a SavedModel serves."""
    import tensorflow as tf

    def serve(text):
        texts = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")  # Replaces invalid bytes.
        sentences = split(texts)

        def serve_one(i):
            words = sentences.words[i]
            cluster, first, last = tf.cond(
                tf.size(words) > 0,
                lambda: _mentions(model, words, sentences.sizes[i]),
                lambda: (tf.zeros([0], tf.int32),) * 3,
            )
            starts = tf.gather(sentences.starts[i], first)
            return cluster, starts, tf.gather(sentences.ends[i], last)

        ragged = tf.RaggedTensorSpec([None], tf.int32)
        cluster, start, end = tf.map_fn(
            serve_one,
            tf.range(tf.size(texts)),
            fn_output_signature=(ragged, ragged, ragged),
            parallel_iterations=1,
        )
        # The text that contains each mention.
        whole = tf.gather(texts, cluster.value_rowids())
        mention = tf.strings.substr(
            whole, start.values, end.values - start.values, unit="UTF8_CHAR"
        )
        return {
            "mention": cluster.with_values(mention).to_tensor(""),
            "start": start.to_tensor(-1),
            "end": end.to_tensor(-1),
            "cluster": cluster.to_tensor(-1),
        }

    return serve


def _mentions(model, words, sentence_sizes):
    """Returns cluster, first and last word of each mention of a text, in order of the text."""
    import tensorflow as tf
    import tensorflow.experimental.numpy as tnp

    tensors, word_of = _tensors(model.preprocessor, words, sentence_sizes)
    most = int(MAX_TOP_SPANS / model.top_span_ratio)
    rule = f"A text must have at most {most} tokens. Use `resolve` for longer texts."
    check = tf.debugging.assert_less_equal(tf.size(word_of), most, message=rule)
    with tf.control_dependencies([check]):
        tensors = {name: tf.identity(x) for name, x in tensors.items()}
    (row,) = predict_rows(model, [document_inputs(tensors, model, tnp)], xp=tnp)
    found = word_clusters(tnp, extract_spans(row, xp=tnp), word_of, model.singletons)

    # === Each mention once, in order of the text; clusters from 0 on by their first mentions ===
    is_first = (found["cluster"] >= 0) & (found["same"] == tf.range(tf.size(found["same"])))
    cluster, first, last = (
        tf.boolean_mask(found[n], is_first) for n in ("cluster", "first", "last")
    )
    key = tf.cast(first, tf.int64) * tf.size(word_of, tf.int64) + tf.cast(last, tf.int64)
    in_order = tf.argsort(key)
    _, number = tf.unique(tf.gather(cluster, in_order))
    return number, tf.gather(first, in_order), tf.gather(last, in_order)


def _tensors(preprocessor, words, sentence_sizes):
    """Returns the arrays of `tensors` for a text with at least one word, and `word_of`.

    `word_of` is int32 `[T]`, the word of each token of the document, -1 for a separator.
    """
    import tensorflow as tf
    import tensorflow.experimental.numpy as tnp

    tokenizer, length = preprocessor.tokenizer, preprocessor.sequence_length
    # === Subtokens, at least one for each word ===
    found = tf.cast(tokenizer.traced(words), tf.int32)
    sizes = found.row_lengths()
    unknown = tf.RaggedTensor.from_row_lengths(
        tf.fill([tf.math.count_nonzero(sizes == 0)], tokenizer.token_to_id(tokenizer.oov_token)),
        tf.cast(sizes == 0, tf.int64),
    )
    pieces = tf.concat([found, unknown], axis=1)
    sizes = tf.cast(pieces.row_lengths(), tf.int32)
    added = preprocessor.added_separators()
    segments = cut_into_segments(tnp, sizes, sentence_sizes, length, not added)
    separators = tokenizer.cls_token_id, tokenizer.sep_token_id
    ids = tf.gather(tf.concat([pieces.values, separators], axis=0), segments.index)
    (speaker,) = speaker_numbers(["-"], preprocessor.max_num_speakers, preprocessor.model_type)
    speakers = tf.where(segments.word_of < 0, SEPARATOR_NUMBER, speaker)
    rows = segment_rows(ids, speakers, segments.sizes, length, added, tnp)
    tensors = {**rows, "sentence_map": segments.sentence_of, "genre": tf.constant(0)}
    return tensors, segments.word_of
