"""Decodes start and end logits of windows to answers, with `xp` for the candidates.

Legend: W = windows, L = tokens per window, n = `n_best`, Q = questions, C = candidates.
"""

import collections

import numpy as np

from keras_spanbert.layers.array_functions import (
    cumsum,
    int32,
    scatter_add,
    scatter_min,
    take,
    true_indices,
)
from keras_spanbert.optional import tf, tnp
from keras_spanbert.serving.saved_model import window_logits
from keras_spanbert.text.strings import as_strings

N_BEST = 20  # Number of candidates per window and per question, as released.

# Pairs of a start and an end, tokens of a window, and the sum of their logits, float64: `[C]` each.
Candidates = collections.namedtuple("Candidates", ["window", "start", "end", "logit"])

Ranked = collections.namedtuple(
    "Ranked",
    [
        "question",  # int32 [C], ascending
        "rank",  # int32 [C], of the question's candidates
        "start",  # int32 [C], the first character, and after the last one
        "end",
        "score",  # float64 [C]
        "null_score",  # float64 [Q], of no answer
        "null_place",  # int32 [Q], number of candidates before no answer
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
    """Returns the best answers to each question, and the lead of no answer over them, `[Q]`.

    This is the decoding of the released script. A window's candidates pair its `n_best` highest
    starts and ends inside the context. The window must show the start with the most context, and
    an answer has at most `max_answer_length` tokens. If a question has no candidate, the highest
    starts and ends are taken from inside the context only, and it has no answer if these starts all
    come after these ends. Candidates are ranked by the sum of both logits, and the best of equal
    texts is kept. A score is the softmax probability among the `n_best` of a question. With
    `null_threshold`, no answer is one of them, and is the best if its logits, at `[CLS]`, exceed
    those of the best answer by more than the threshold.

    Logits are float `[W, L]`, `windows` those of `SpanBertQuestionAnswererPreprocessor.windows`,
    and `contexts` one string per question. An answer is `{"answer", "score", "start", "end"}`, with
    positions in characters, -1 for no answer. The leads are float64.
    """
    num_questions = len(contexts)

    def are_new(*spans):
        return _are_new(contexts, *spans, n_best)

    sizes = (n_best, max_answer_length)
    logits = start_logits, end_logits
    ranked = rank_answers(np, *logits, windows, num_questions, are_new, sizes, null_threshold)
    bounds = np.searchsorted(ranked.question, np.arange(num_questions + 1))
    found = []
    for i, context in enumerate(contexts):
        part = slice(bounds[i], bounds[i + 1])
        columns = (x[part].tolist() for x in (ranked.start, ranked.end, ranked.score))
        answers = [
            {"answer": context[start:end], "score": score, "start": start, "end": end}
            for start, end, score in zip(*columns)
        ]
        no_answer = {"answer": "", "score": float(ranked.null_score[i]), "start": -1, "end": -1}
        if null_threshold is not None or not answers:
            answers.insert(int(ranked.null_place[i]), no_answer)
        found.append(answers)
    return found, ranked.null_lead


def _are_new(contexts, question, starts, ends, n_best):
    """Returns which texts `[C]` are the first `n_best` different ones of their question."""
    are_new = np.zeros(len(question), bool)
    bounds = np.searchsorted(question, np.arange(len(contexts) + 1))
    for i, context in enumerate(contexts):
        seen = set()
        for c in range(bounds[i], bounds[i + 1]):
            if len(seen) == n_best:
                break
            text = context[starts[c] : ends[c]]
            are_new[c] = text not in seen
            seen.add(text)
    return are_new


def rank_answers(
    xp, start_logits, end_logits, windows, num_questions, are_new, sizes, null_threshold
):
    """Returns `Ranked`: the best candidates with different texts, and their probabilities.

    `are_new(question, start, end)` returns which texts are the first of equal ones, and `sizes` are
    `n_best` and `max_answer_length`. With a threshold, no answer is a candidate too, first if it
    leads by more than that, otherwise by its logit but after the best candidate.
    """
    example = windows["example_index"]
    nulls = xp.asarray(start_logits[:, 0] + end_logits[:, 0], dtype=np.float64)
    infinite = xp.full((num_questions,), np.float64(np.inf))
    null_logits = scatter_min(xp, infinite, example, nulls)
    zeros = int32(xp, xp.zeros_like(null_logits))
    found = candidate_spans(xp, start_logits, end_logits, windows, zeros, sizes)
    question = take(xp, example, found.window)
    start, end = (
        _pick(xp, windows["offsets"][:, :, i], found.window, token)
        for i, token in enumerate([found.start, found.end])
    )

    # === The best of each question, of equal texts only the best one ===
    is_new = int32(xp, are_new(question, start, end))
    counts = scatter_add(xp, zeros, question, is_new)
    rank = cumsum(xp, is_new) - is_new - take(xp, cumsum(xp, counts) - counts, question)
    kept = true_indices(xp, (is_new == 1) & (rank < sizes[0]))
    question, rank, start, end, logit = (
        take(xp, x, kept) for x in (question, rank, start, end, found.logit)
    )

    # === Softmax, with no answer if it is a candidate ===
    best = -scatter_min(xp, infinite, question, -logit)
    has_any = best > np.finfo(np.float64).min  # TensorFlow's value for no candidates.
    lead = null_logits - best
    null = -infinite if null_threshold is None else null_logits
    top = xp.where(has_any, xp.maximum(best, null), null_logits)
    share = xp.exp(logit - take(xp, top, question))
    null_share = xp.where(has_any, xp.exp(null - top), np.float64(0.0))
    # Without candidates the total is 1 instead of 0.
    total = scatter_add(xp, xp.where(has_any, null_share, np.float64(1.0)), question, share)
    threshold = np.float64(np.inf if null_threshold is None else null_threshold)
    ahead = int32(xp, (rank == 0) | (logit >= take(xp, null, question)))
    num_ahead = scatter_add(xp, zeros, question, ahead)
    return Ranked(
        question=question,
        rank=rank,
        start=start,
        end=end,
        score=share / take(xp, total, question),
        null_score=null_share / total,
        null_place=xp.where(lead > threshold, zeros, num_ahead),
        null_lead=lead,
    )


def candidate_spans(xp, start_logits, end_logits, windows, zeros, sizes):
    """Returns `Candidates`, pairs of start and end, sorted by question and then by logit.

    If the question or the context has no tokens, there are none. See `decode` and `rank_answers`.
    """
    # Without question tokens, the second segment begins at index 2, after [CLS] [SEP].
    may_end = (windows["offsets"][:, :, 0] >= 0) & (windows["segment_ids"][:, 2:3] == 0)
    may_start = windows["is_max_context"] & may_end
    found = _pairs(xp, start_logits, end_logits, may_start, may_end, sizes)
    example = windows["example_index"]
    question = take(xp, example, found.window)
    num_found = scatter_add(xp, zeros, question, xp.ones_like(question))
    # A question without candidates takes its highest starts and ends inside the context.
    lacks = (take(xp, num_found, example) == 0)[:, None]
    if xp is not np or lacks.any():
        # Recomputes all windows. Those of other questions do not change.
        low = np.float32(-np.inf)
        start_logits = xp.where(may_start | ~lacks, start_logits, low)
        end_logits = xp.where(may_end | ~lacks, end_logits, low)
        found = _pairs(xp, start_logits, end_logits, may_start, may_end, sizes)
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


def answers(model, max_answer_length: int):
    """Returns the function of `question` and `context`, strings `[B]`, for a SavedModel."""

    def serve(question, context):
        texts = as_strings("context", context)  # Valid UTF-8.
        windows = model.preprocessor.windows(question, texts)
        ranked = rank_answers(
            tnp,
            *_logits(model, windows),
            windows,
            tf.size(question),
            lambda *spans: _are_new_in_graph(texts, *spans),
            (N_BEST, max_answer_length),
            model.null_threshold,
        )
        is_best = (ranked.rank == 0) & (tf.gather(ranked.null_place, ranked.question) > 0)
        questions = tf.boolean_mask(ranked.question, is_best)[:, None]

        def best_answer(values, otherwise):
            return tf.tensor_scatter_nd_update(
                otherwise, questions, tf.boolean_mask(values, is_best)
            )

        nowhere = tf.fill([tf.size(question)], -1)
        start, end = best_answer(ranked.start, nowhere), best_answer(ranked.end, nowhere)
        return {
            "answer": tf.strings.substr(texts, tf.maximum(start, 0), end - start, "UTF8_CHAR"),
            "score": tf.cast(best_answer(ranked.score, ranked.null_score), tf.float32),
            "start": start,
            "end": end,
        }

    return serve


def _logits(model, windows):
    """Returns start and end logits `[W, L]`."""
    logits = window_logits(model, windows, 2, lambda x: tf.stack([x["start"], x["end"]], axis=2))
    is_token = windows["padding_mask"] > 0
    return [tf.where(is_token, logits[:, :, i], -float("inf")) for i in range(2)]


def _are_new_in_graph(texts, question, start, end):
    """Returns which texts `[C]` differ from all earlier ones of their question."""
    characters = tf.strings.unicode_decode(texts, "UTF-8")
    shift = tf.gather(characters.row_starts(), question)
    places = tf.ragged.range(tf.cast(start, tf.int64) + shift, tf.cast(end, tf.int64) + shift)
    spans = tf.strings.unicode_encode(tf.gather(characters.values, places), "UTF-8")
    keys = tf.strings.join([tf.strings.as_string(question), spans], " ")
    number, place = tf.unique(keys)[1], tf.range(tf.size(keys))
    first = tf.math.unsorted_segment_min(place, number, tf.size(keys))
    return tf.gather(first, number) == place
