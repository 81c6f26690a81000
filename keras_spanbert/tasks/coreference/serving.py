"""Serving function from texts to clusters of mentions, as graph code that does as `resolve`.

B = texts, M = maximum number of mentions of a text. For one text, W = words, T = tokens, S =
segments, L = longest segment, K = spans that are kept.
"""

from typing import Any, NamedTuple

from keras_spanbert.tasks.coreference.inference import document_inputs, extract_spans, predict_rows
from keras_spanbert.tasks.coreference.layers import MAX_TOP_SPANS
from keras_spanbert.tasks.coreference.preprocessor import (
    SEPARATOR_NUMBER,
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
    found = _token_to_word_clusters(extract_spans(row, xp=tnp), word_of, model.singletons)

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
    segments = _cut_into_segments(sizes, sentence_sizes, length, not added)
    separators = tokenizer.cls_token_id, tokenizer.sep_token_id
    ids = tf.gather(tf.concat([pieces.values, separators], axis=0), segments.index)
    (speaker,) = speaker_numbers(["-"], preprocessor.max_num_speakers, preprocessor.model_type)
    speakers = tf.where(segments.word_of < 0, SEPARATOR_NUMBER, speaker)
    rows = segment_rows(ids, speakers, segments.sizes, length, added, tnp)
    tensors = {**rows, "sentence_map": segments.sentence_of, "genre": tf.constant(0)}
    return tensors, segments.word_of


class _Segments(NamedTuple):
    sizes: Any  # int32 [S], the number of tokens of each segment.
    # int32 [T], each token's index in a list of all subtokens, then [CLS], then [SEP].
    index: Any
    word_of: Any  # int32 [T], the word of each token, -1 for a separator.
    sentence_of: Any  # int32 [T], the sentence of each token.


def _cut_into_segments(sizes, sentence_sizes, max_segment_len, with_separators):
    """Cuts the subtokens of words into segments, as the preprocessor's `segment` does."""
    import tensorflow as tf

    word_of = tf.repeat(tf.range(tf.size(sizes)), sizes)
    sentence_of = tf.gather(tf.repeat(tf.range(tf.size(sentence_sizes)), sentence_sizes), word_of)
    word_ends = tf.concat([[0], tf.cumsum(sizes)], axis=0)
    sentence_ends = tf.gather(word_ends, tf.concat([[0], tf.cumsum(sentence_sizes)], axis=0))
    num_subtokens = tf.size(word_of)
    room = max_segment_len - (2 if with_separators else 3)

    def add_limit(limits):
        begin = limits[-1]
        end = most = tf.minimum(begin + room, num_subtokens)
        for ends in (word_ends, sentence_ends):
            last = ends[tf.searchsorted(ends, [most], "right")[0] - 1]
            end = tf.where(last > begin, last, end)
        return [tf.concat([limits, [end]], axis=0)]

    (limits,) = tf.while_loop(
        lambda limits: limits[-1] < num_subtokens,
        add_limit,
        [tf.zeros([1], tf.int32)],
        shape_invariants=[tf.TensorShape([None])],
    )
    begins, ends = limits[:-1], limits[1:]
    if not with_separators:
        return _Segments(ends - begins, tf.range(num_subtokens), word_of, sentence_of)
    segment_of = tf.repeat(tf.range(tf.size(begins)), ends - begins + 2)
    index = tf.range(tf.size(segment_of)) - 2 * segment_of - 1
    is_first = index < tf.gather(begins, segment_of)
    is_last = index == tf.gather(ends, segment_of)
    nearest = index + tf.cast(is_first, tf.int32) - tf.cast(is_last, tf.int32)
    is_end = tf.gather(sentence_ends, tf.searchsorted(sentence_ends, ends)) == ends
    is_next = tf.cast(is_last & tf.gather(is_end, segment_of), tf.int32)
    index = tf.where(is_first, num_subtokens, tf.where(is_last, num_subtokens + 1, index))
    word_of = tf.where(is_first | is_last, -1, tf.gather(word_of, nearest))
    return _Segments(ends - begins + 2, index, word_of, tf.gather(sentence_of, nearest) + is_next)


def _token_to_word_clusters(spans, word_of, singletons):
    """Does the same as `cluster_mentions`, and returns a dict of int32 `[K]`.

    It has `first` and `last`, the words of each span; `cluster`, a number that increases in the
    order of the clusters, -1 for no mention; and `same`, the first span of the cluster that is the
    same words.
    """
    import tensorflow as tf

    best = tf.cast(spans["best_antecedents"], tf.int32)
    num_spans = tf.size(best)
    span, never = tf.range(num_spans), 2 * num_spans  # A place in the order after all others.
    is_word = word_of >= 0
    words, counts = tf.boolean_mask(word_of, is_word), tf.cast(is_word, tf.int32)
    following = tf.gather(tf.cumsum(counts, exclusive=True), spans["starts"])
    first = tf.gather(tf.concat([words, [tf.size(word_of)]], axis=0), following)
    before = tf.gather(tf.cumsum(counts), spans["ends"])
    last = tf.gather(tf.concat([[-1], words], axis=0), before)

    def minimum(values, groups):
        """Returns the minimum of the values of each span's group."""
        found = tf.math.unsorted_segment_min(values, groups, num_spans)
        return tf.gather(tf.minimum(found, never), groups)

    # === Clusters, in order of their first links; those of one mention follow ===
    (root,) = tf.while_loop(
        lambda root: tf.reduce_any(tf.gather(root, root) != root),
        lambda root: [tf.gather(root, root)],
        [tf.where(best < 0, span, best)],
    )
    order = minimum(tf.where(best < 0, never, span), root)
    is_alone = order == never
    order = tf.where(is_alone, num_spans + span, order)
    is_single = is_alone & (spans["mention_scores"] > 0) & singletons
    is_mention = (first <= last) & (is_single | ~is_alone)

    # === The same words, in the first of their clusters ===
    _, place = tf.unique(tf.cast(first, tf.int64) * (1 << 32) + tf.cast(last, tf.int64))
    order = tf.where(is_mention, order, never)
    is_mention &= order == minimum(order, place)
    same = minimum(tf.where(is_mention, span, never), place)
    if not singletons:
        is_new = tf.cast(is_mention & (same == span), tf.int32)
        counts = tf.math.unsorted_segment_sum(is_new, root, num_spans)
        is_mention &= tf.gather(counts, root) > 1
    return {"first": first, "last": last, "cluster": tf.where(is_mention, order, -1), "same": same}
