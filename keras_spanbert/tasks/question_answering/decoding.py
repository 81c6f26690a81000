"""Decodes start and end logits of windows to answers, with `xp` for the candidates.

Legend: W = windows, L = tokens per window, n = `n_best`, Q = questions, C = candidates.
"""

import collections

import numpy as np

from keras_spanbert.layers.array_functions import take
from keras_spanbert.optional import tf, tnp
from keras_spanbert.serving.saved_model import window_logits
from keras_spanbert.text.strings import as_strings

N_BEST = 20  # Number of candidates per window and per question, as released.

# Pairs of a start and an end, tokens of a window, and the sum of their logits, float64: `[C]` each.
Candidates = collections.namedtuple("Candidates", ["window", "start", "end", "logit"])

Scored = collections.namedtuple(
    "Scored",
    [
        "score",  # float64 [C]
        "place",  # int64 [C], in the question's list
        "has_any",  # bool [Q]
        "is_none",  # bool [Q], whether the best answer is no answer
        "null_score",  # float64 [Q]
        "null_place",  # int64 [Q], position of no answer in the list
        "null_lead",  # float64 [Q], lead of no answer over the best candidate
    ],
)


def decode(
    start_logits,
    end_logits,
    windows,
    contexts,
    n_best: int = N_BEST,
    max_answer_length: int = 30,
    null_threshold: float | None = None,
) -> tuple[list, np.ndarray]:
    """Returns the best answers to each question over all of its windows, and their null scores.

    A window's candidates pair its `n_best` highest starts and ends. Both must be inside the
    context, the end must follow the start by less than `max_answer_length` tokens, and the window
    must be the one that shows the start with the most context. If a question has no candidate, its
    highest starts and ends inside the context are used. If these starts all come after these ends,
    the question has no answer. Candidates of all windows are ranked by the sum of both logits, and
    the best of equal texts is kept. A candidate's score is its softmax probability among the
    `n_best` of its question. With `null_threshold`, no answer is one of them, and is the best if
    its logits, at `[CLS]`, exceed those of the best answer by more than the threshold. This is the
    decoding of the released script.

    Logits are float `[W, L]`, `windows` those of `SpanBertQuestionAnswererPreprocessor.windows`,
    and `contexts` one string per question. An answer is `{"answer", "score", "start", "end"}`, with
    positions in characters, -1 for no answer. The null scores, float64 `[Q]`, are the lead of no
    answer over the best answer.
    """
    num_questions = len(contexts)
    example = windows["example_index"]
    candidates = candidate_spans(
        np, start_logits, end_logits, windows, num_questions, n_best, max_answer_length
    )
    null_logits = np.full(num_questions, np.inf)
    np.minimum.at(null_logits, example, start_logits[:, 0] + end_logits[:, 0])

    first, last = windows["offsets"][:, :, 0], windows["offsets"][:, :, 1]
    starts = first[candidates.window, candidates.start]
    ends = last[candidates.window, candidates.end]
    texts, kept, rank = _distinct_texts(contexts, example[candidates.window], starts, ends, n_best)
    question = example[candidates.window[kept]]
    scored = score_answers(
        np, candidates.logit[kept], question, rank, null_logits, null_threshold, num_questions
    )
    answers = [
        {"answer": text, "score": float(score), "start": int(start), "end": int(end)}
        for text, score, start, end in zip(texts, scored.score, starts[kept], ends[kept])
    ]
    order = np.lexsort([scored.place, question])
    bounds = np.searchsorted(question[order], np.arange(num_questions + 1))
    found = [[answers[c] for c in order[bounds[i] : bounds[i + 1]]] for i in range(num_questions)]
    for i in range(num_questions):
        no_answer = {"answer": "", "score": 0.0, "start": -1, "end": -1}
        if not found[i]:
            found[i] = [no_answer]
        elif null_threshold is not None:
            no_answer["score"] = float(scored.null_score[i])
            found[i].insert(int(scored.null_place[i]), no_answer)
    return found, scored.null_lead


def _distinct_texts(contexts, example, starts, ends, n_best):
    """Returns the first `n_best` different texts of each question: texts, indices, ranks."""
    texts, kept, ranks = [], [], []
    bounds = np.searchsorted(example, np.arange(len(contexts) + 1))
    for i, context in enumerate(contexts):
        seen = set()
        for c in range(bounds[i], bounds[i + 1]):
            if len(seen) == n_best:
                break
            text = context[starts[c] : ends[c]]
            if text not in seen:
                texts.append(text)
                kept.append(c)
                ranks.append(len(seen))
                seen.add(text)
    return texts, np.array(kept, np.int64), np.array(ranks, np.int64)


def score_answers(xp, logit, question, rank, null_logits, null_threshold, num_questions):
    """Returns `Scored`: softmax probabilities among the candidates of each question.

    `logit`, `question` (ascending) and `rank` by logit among the question's are `[C]`, and
    `null_logits` of no answer `[Q]`. With a threshold, no answer is a candidate too, first if it
    leads by more than that, otherwise by its logit but after the best candidate.
    """
    best = _segment_max(xp, logit, question, num_questions)
    has_any = best > -np.inf
    lead = null_logits - best  # Infinite if there is no candidate.
    low = np.float64(-np.inf)
    may_be_none = has_any & (null_threshold is not None)
    null = xp.where(may_be_none, null_logits, low)
    top = xp.where(has_any, xp.maximum(best, null), np.float64(0.0))
    share = xp.exp(logit - take(xp, top, question))
    null_share = xp.exp(null - top)
    total = _segment_sum(xp, share, question, num_questions) + null_share
    threshold = np.float64(np.inf if null_threshold is None else null_threshold)
    is_none = has_any & (lead > threshold)
    ahead = (rank == 0) | (logit >= take(xp, null, question))
    num_ahead = _segment_sum(xp, xp.asarray(ahead, dtype=np.int64), question, num_questions)
    null_place = xp.where(is_none, np.int64(0), num_ahead)
    behind = take(xp, null_place, question) <= rank
    tiny = np.float64(1e-300)  # Avoids 0 / 0 for a question without candidates.
    return Scored(
        score=share / take(xp, total, question),
        place=rank + xp.asarray(behind, dtype=np.int64),
        has_any=has_any,
        is_none=is_none,
        null_score=xp.where(has_any, null_share / xp.maximum(total, tiny), np.float64(0.0)),
        null_place=null_place,
        null_lead=lead,
    )


def candidate_spans(xp, start_logits, end_logits, windows, num_questions, n_best, max_length):
    """Returns `Candidates`, pairs of start and end, sorted by question and then by logit.

    If the question or the context has no tokens, there are none. See `decode`.
    """
    # Without question tokens, the second segment begins at index 2, after [CLS] [SEP].
    may = (windows["offsets"][:, :, 0] >= 0) & (windows["segment_ids"][:, 2:3] == 0)
    sizes = (n_best, max_length)
    found = _pairs(xp, start_logits, end_logits, windows["is_max_context"] & may, may, sizes)
    example = windows["example_index"]
    of_question = take(xp, example, found.window)
    num_found = _segment_sum(xp, xp.ones_like(of_question), of_question, num_questions)
    # A question without candidates takes its highest starts and ends inside the context.
    lacks = (take(xp, num_found, example) == 0)[:, None]
    if xp is not np or lacks.any():
        # Recomputes all windows. Those of other questions do not change.
        may_start, may_end = windows["is_max_context"] & may | ~lacks, may | ~lacks
        low = np.float32(-np.inf)
        start_logits = xp.where(may_start, start_logits, low)
        end_logits = xp.where(may_end, end_logits, low)
        found = _pairs(xp, start_logits, end_logits, windows["is_max_context"] & may, may, sizes)
    order = xp.argsort(-found.logit, kind="stable")
    by_logit = take(xp, example, take(xp, found.window, order))
    order = take(xp, order, xp.argsort(by_logit, kind="stable"))
    return Candidates(*(take(xp, x, order) for x in found))


def _pairs(xp, start_logits, end_logits, may_start, may_end, sizes):
    n_best, max_length = sizes
    starts = xp.argsort(-start_logits, axis=1, kind="stable")[:, :n_best]  # [W, n]
    ends = xp.argsort(-end_logits, axis=1, kind="stable")[:, :n_best]
    may_start = xp.take_along_axis(may_start, starts, axis=1)
    may_end = xp.take_along_axis(may_end, ends, axis=1)
    length = ends[:, None, :] - starts[:, :, None] + 1  # [W, n, n]
    is_valid = may_start[:, :, None] & may_end[:, None, :] & (length >= 1) & (length <= max_length)
    window, i, j = xp.nonzero(is_valid)  # [candidates]
    start, end = _pick(xp, starts, window, i), _pick(xp, ends, window, j)
    logits = [
        xp.asarray(_pick(xp, x, window, token), dtype=np.float64)
        for x, token in [(start_logits, start), (end_logits, end)]
    ]
    return Candidates(window, start, end, logits[0] + logits[1])


def _pick(xp, x, rows, columns):
    return take(xp, xp.reshape(x, (-1,)), rows * xp.shape(x)[1] + columns)


def _segment_sum(xp, x, segments, num_segments):
    if xp is np:
        sums = np.zeros(num_segments, x.dtype)
        np.add.at(sums, segments, x)
        return sums
    return tf.math.unsorted_segment_sum(x, segments, num_segments)


def _segment_max(xp, x, segments, num_segments):
    """Returns the largest value of each segment, -inf for an empty segment."""
    if xp is np:
        largest = np.full(num_segments, -np.inf)
        np.maximum.at(largest, segments, x)
        return largest
    largest = tf.math.unsorted_segment_max(x, segments, num_segments)
    return tf.where(largest == x.dtype.min, np.float64(-np.inf), largest)


def answers(model, max_answer_length: int):
    """Returns the function of `question` and `context`, strings `[B]`, for a SavedModel."""
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
    logits = window_logits(model, windows, 2, lambda x: tf.stack([x["start"], x["end"]], axis=2))
    is_token = windows["padding_mask"] > 0
    return [tf.where(is_token, logits[:, :, i], -float("inf")) for i in range(2)]


def _spans(texts, example, start, end):
    """Returns the number of its text and the characters of each span, as a string."""
    characters = tf.strings.unicode_decode(texts, "UTF-8")
    shift = tf.gather(characters.row_starts(), example)
    places = tf.ragged.range(start + shift, end + shift)
    spans = tf.strings.unicode_encode(tf.gather(characters.values, places), "UTF-8")
    return tf.strings.join([tf.strings.as_string(example), spans], " ")


def _is_first(keys):
    """Returns whether each of the keys `[n]` has not occurred before."""
    unique, number = tf.unique(keys, out_idx=tf.int64)
    place = tf.range(tf.size(keys, tf.int64))
    first = tf.math.unsorted_segment_min(place, number, tf.size(unique, tf.int64))
    return tf.gather(first, number) == place
