"""Questions and contexts to answers, as graph code."""

import numpy as np

from keras_spanbert.models import windows as text_windows
from keras_spanbert.serving.tokenization import GraphTokenizer
from keras_spanbert.serving.window_batches import logits_of_windows
from keras_spanbert.tasks.question_answering.decoding import candidate_spans, score_answers
from keras_spanbert.tasks.question_answering.windows import places as places_of

_N_BEST = 20
_ODD = 0x2545F4914F6CDD1D  # Any large odd number.


def answers(model, max_answer_length: int):
    """The function of `question` and `context`, strings `[B]`, that a SavedModel serves.

    Args:
        model: `SpanBertQuestionAnswerer` with preprocessor.
        max_answer_length: int, in tokens.
    """
    import tensorflow as tf
    import tensorflow.experimental.numpy as tnp

    preprocessor = model.preprocessor
    tokenize = GraphTokenizer(preprocessor.tokenizer)

    def serve(question, context):
        texts = tf.strings.unicode_transcode(context, "UTF-8", "UTF-8")  # Mends what is invalid.
        questions = tokenize(tf.strings.unicode_transcode(question, "UTF-8", "UTF-8"))
        contexts = tokenize(texts)
        windows = _windows(tnp, preprocessor, questions, contexts)
        start_logits, end_logits = _logits(model, windows)
        num_questions = tf.size(question, tf.int64)
        found = candidate_spans(
            tnp, start_logits, end_logits, windows, num_questions, _N_BEST, max_answer_length
        )
        example = tf.gather(windows["example_index"], found.window)
        length = tf.shape(start_logits, tf.int64)[1]
        token = [
            tf.gather(tf.reshape(windows["context_token"], [-1]), found.window * length + place)
            for place in (found.start, found.end)
        ]

        # === The best of each question, of equal texts only the best one ===
        start = tf.gather(contexts.offsets[:, 0], token[0])
        end = tf.gather(contexts.offsets[:, 1], token[1])
        is_first = _is_first(_keys(contexts.characters, example, start, end))
        rank = _rank(example, is_first)
        keep = is_first & (rank < _N_BEST)
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

        def of_best(values, otherwise):
            best_of = tf.boolean_mask(example, is_best)[:, None]
            return tf.tensor_scatter_nd_update(
                otherwise, tf.cast(best_of, tf.int64), tf.boolean_mask(values, is_best)
            )

        nowhere = tf.fill([num_questions], np.int64(-1))
        start, end = of_best(start, nowhere), of_best(end, nowhere)
        return {
            "answer": tf.strings.substr(texts, tf.maximum(start, 0), end - start, "UTF8_CHAR"),
            "score": tf.cast(of_best(scored.score, scored.null_score), tf.float32),
            "start": tf.cast(start, tf.int32),
            "end": tf.cast(end, tf.int32),
        }

    return serve


def _windows(tnp, preprocessor, questions, contexts):
    """As `SpanBertQuestionAnswererPreprocessor.windows`."""
    import tensorflow as tf

    tokenizer = preprocessor.tokenizer
    length, stride = preprocessor.sequence_length, preprocessor.doc_stride
    head_sizes = tf.minimum(questions.sizes, preprocessor.max_question_length)
    parts = text_windows.parts(tnp, head_sizes + 2, contexts.sizes, length, stride)
    places = places_of(tnp, parts, length)

    def gather(tokens, index):
        starts = tf.cumsum(tokens.sizes, exclusive=True)
        index += tf.gather(starts, parts.example)[:, None]
        ids = tf.concat([tokens.ids, [0]], axis=0)  # One more, as there may be none.
        return tf.gather(ids, index), index

    question_ids, _ = gather(questions, places.question_token)
    context_ids, context_token = gather(contexts, places.context_token)
    ids = tf.where(places.in_context, context_ids, tokenizer.pad_token_id)
    ids = tf.where(places.in_question, question_ids, ids)
    ids = tf.where(places.is_separator, tokenizer.sep_token_id, ids)
    is_first = tf.range(length) == 0
    reach = text_windows.most_reach(length - 3, stride)
    return {
        "token_ids": tf.where(is_first, tokenizer.cls_token_id, ids),
        "segment_ids": tf.cast(places.segment_ids, tf.int32),
        "padding_mask": tf.cast(places.padding_mask, tf.int32),
        "example_index": parts.example,
        "context_token": context_token,  # [W, L], among all contexts' tokens.
        "offsets": tf.where(places.in_context, 0, -1)[:, :, None],  # Whether in the context.
        "is_max_context": text_windows.is_max_context(tnp, parts, length, stride, reach),
    }


def _logits(model, windows):
    """Start and end logits `[W, L]`."""
    import tensorflow as tf

    def stacked(outputs):
        return tf.stack([outputs["start"], outputs["end"]], axis=2)

    logits = logits_of_windows(model, windows, 2, stacked)
    is_token = windows["padding_mask"] > 0
    return [tf.where(is_token, logits[:, :, i], -float("inf")) for i in range(2)]


def _keys(characters, example, start, end):
    """Numbers int64 `[n]`, equal for spans of equal text of one context.

    A polynomial's value modulo 2^64 stands for a text: a SavedModel that cut
    out the candidates' texts would copy a long context for each. Whoever wants
    two texts of one number can make them (a thousand letters each), and so
    have one of his own answers left out.
    """
    import tensorflow as tf

    shift = tf.gather(characters.row_starts(), example)
    start, end = start + shift, end + shift
    factors = np.array([_ODD, pow(_ODD, -1, 2**64)], np.uint64).view(np.int64)
    size = tf.size(characters.values) + 1
    powers, inverse_powers = [tf.math.cumprod(tf.fill([size], factor)) for factor in factors]
    terms = tf.cast(characters.values, tf.int64) * powers[1:]
    sums = tf.cumsum(tf.concat([[np.int64(0)], terms], axis=0))
    value = (tf.gather(sums, end) - tf.gather(sums, start)) * tf.gather(inverse_powers, start)
    return (value * _ODD + end - start) * _ODD + tf.cast(example, tf.int64)


def _is_first(keys):
    """Whether each of the keys `[n]` has not come before."""
    import tensorflow as tf

    unique, number = tf.unique(keys, out_idx=tf.int64)
    place = tf.range(tf.size(keys, tf.int64))
    first = tf.math.unsorted_segment_min(place, number, tf.size(unique, tf.int64))
    return tf.gather(first, number) == place


def _rank(groups, counted):
    """How many are `counted` before each of its group, with groups `[n]` in order."""
    import tensorflow as tf

    before = tf.cumsum(tf.cast(counted, tf.int64), exclusive=True)
    starts = tf.searchsorted(groups, groups, "left", tf.int64)
    return before - tf.gather(before, starts)
