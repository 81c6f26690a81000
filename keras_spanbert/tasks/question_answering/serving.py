"""Serving function from questions and contexts to answers, as graph code."""

import numpy as np

from keras_spanbert.serving.row_batches import window_logits
from keras_spanbert.tasks.question_answering.decoding import N_BEST, candidate_spans, score_answers
from keras_spanbert.text.strings import as_strings


def answers(model, max_answer_length: int):
    """Returns the function of `question` and `context`, strings `[B]`, for a SavedModel."""
    import tensorflow as tf
    import tensorflow.experimental.numpy as tnp

    preprocessor = model.preprocessor

    def serve(question, context):
        texts = as_strings("context", context)  # Valid UTF-8.
        windows = preprocessor.windows(question, texts)
        start_logits, end_logits = _logits(model, windows)
        num_questions = tf.size(question, tf.int64)
        found = candidate_spans(
            tnp, start_logits, end_logits, windows, num_questions, N_BEST, max_answer_length
        )
        example = tf.gather(windows["example_index"], found.window)
        start, end = (
            tf.gather_nd(windows["offsets"][:, :, i], tf.stack([found.window, token], axis=1))
            for i, token in enumerate([found.start, found.end])
        )
        start, end = tf.cast(start, tf.int64), tf.cast(end, tf.int64)

        # === The best of each question, of equal texts only the best one ===
        is_first = _is_first(_spans(texts, example, start, end))
        # How many earlier texts of its question are different ones.
        before = tf.cumsum(tf.cast(is_first, tf.int64), exclusive=True)
        rank = before - tf.gather(before, tf.searchsorted(example, example, "left", tf.int64))
        keep = is_first & (rank < N_BEST)
        example, rank, logit, start, end = (
            tf.boolean_mask(x, keep) for x in (example, rank, found.logit, start, end)
        )
        null_logits = tf.math.unsorted_segment_min(
            tf.cast(start_logits[:, 0] + end_logits[:, 0], tf.float64),
            windows["example_index"],
            num_questions,
        )
        scored = score_answers(
            tnp,
            logit,
            example,
            tf.cast(rank, tf.int64),
            null_logits,
            model.null_threshold,
            num_questions,
        )
        is_best = scored.place == 0

        def best_answer(values, otherwise):
            best_of = tf.boolean_mask(example, is_best)[:, None]
            return tf.tensor_scatter_nd_update(
                otherwise, tf.cast(best_of, tf.int64), tf.boolean_mask(values, is_best)
            )

        nowhere = tf.fill([num_questions], np.int64(-1))
        start, end = best_answer(start, nowhere), best_answer(end, nowhere)
        return {
            "answer": tf.strings.substr(texts, tf.maximum(start, 0), end - start, "UTF8_CHAR"),
            "score": tf.cast(best_answer(scored.score, scored.null_score), tf.float32),
            "start": tf.cast(start, tf.int32),
            "end": tf.cast(end, tf.int32),
        }

    return serve


def _logits(model, windows):
    """Returns start and end logits `[W, L]`."""
    import tensorflow as tf

    logits = window_logits(model, windows, 2, lambda x: tf.stack([x["start"], x["end"]], axis=2))
    is_token = windows["padding_mask"] > 0
    return [tf.where(is_token, logits[:, :, i], -float("inf")) for i in range(2)]


def _spans(texts, example, start, end):
    """Returns the number of its text and the characters of each span, as a string."""
    import tensorflow as tf

    characters = tf.strings.unicode_decode(texts, "UTF-8")
    shift = tf.gather(characters.row_starts(), example)
    places = tf.ragged.range(start + shift, end + shift)
    spans = tf.strings.unicode_encode(tf.gather(characters.values, places), "UTF-8")
    return tf.strings.join([tf.strings.as_string(example), spans], " ")


def _is_first(keys):
    """Returns whether each of the keys `[n]` has not occurred before."""
    import tensorflow as tf

    unique, number = tf.unique(keys, out_idx=tf.int64)
    place = tf.range(tf.size(keys, tf.int64))
    first = tf.math.unsorted_segment_min(place, number, tf.size(unique, tf.int64))
    return tf.gather(first, number) == place
