"""From start and end logits of windows to answers.

What needs no strings keeps to the part of the NumPy API that `numpy` and
`tensorflow.experimental.numpy` share: a SavedModel has the same candidates.

Legend: W = windows, L = tokens a window, n = `n_best`.
"""

import collections

import numpy as np

from keras_spanbert.models.answer_windows import take

Candidates = collections.namedtuple(
    "Candidates",
    [
        "window",
        "start",  # token in the window
        "end",
        "logit",  # float64, sum of both
    ],
)


def decode(
    start_logits,
    end_logits,
    windows,
    contexts,
    n_best=20,
    max_answer_length=30,
    null_threshold=None,
):
    """The best answers to each question over all of its windows.

    A window's candidates pair its `n_best` highest starts and ends: both inside
    the context, the end not before the start nor `max_answer_length` tokens or
    more behind, the start in the window that shows it with the most context.
    Where that leaves a question without any, its highest inside the context
    are taken. Where those starts all lie behind those ends, it has no answer.
    Windows are merged by the sum of both logits; of equal texts the best stays.
    A candidate's score is its softmax probability among the `n_best` of its
    question, no answer being one of them where there is a threshold.

    Args:
        start_logits: float `[W, L]`.
        end_logits: float `[W, L]`.
        windows: dict, from `SpanBertQuestionAnswererPreprocessor.windows`.
        contexts: list of strings, one a question.
        n_best: int. Defaults to `20`.
        max_answer_length: int, in tokens. Defaults to `30`.
        null_threshold: float. A question has no answer where the logits of no
            answer, at `[CLS]`, beat those of the best answer by more. Defaults
            to `None`: always an answer, if the context has any.

    Returns:
        `(answers, null_scores)`: for each question a list of up to `n_best`
        `{"answer", "score", "start", "end"}`, best first, the latter two in
        characters, -1 for no answer; and float64, how far no answer beats the
        best answer.

    Reference:
        the released script's decoding, of [Devlin et al.
        2019](https://arxiv.org/abs/1810.04805), section 4.2 and 4.3.
    """
    num_questions = len(contexts)
    example = windows["example_index"]
    candidates = candidate_spans(
        np, start_logits, end_logits, windows, num_questions, n_best, max_answer_length
    )
    null_logits = np.full(num_questions, np.inf)
    np.minimum.at(null_logits, example, start_logits[:, 0] + end_logits[:, 0])

    answers, null_scores = [], np.empty(num_questions)
    first, last = windows["offsets"][:, :, 0], windows["offsets"][:, :, 1]
    starts = first[candidates.window, candidates.start]
    ends = last[candidates.window, candidates.end]
    bounds = np.searchsorted(example[candidates.window], np.arange(num_questions + 1))
    for i in range(num_questions):
        found, seen = [], set()
        for c in range(bounds[i], bounds[i + 1]):
            if len(found) == n_best:
                break
            start, end = int(starts[c]), int(ends[c])
            text = contexts[i][start:end]
            if text in seen:
                continue
            seen.add(text)
            found.append((float(candidates.logit[c]), text, start, end))
        best = found[0][0] if found else -np.inf
        null_scores[i] = null_logits[i] - best
        if not found:
            answers.append([{"answer": "", "score": 0.0, "start": -1, "end": -1}])
            continue
        if null_threshold is not None:
            no_answer = (float(null_logits[i]), "", -1, -1)
            if null_scores[i] > null_threshold:
                found.insert(0, no_answer)
            else:  # Behind the best, among the others by its logit.
                found.insert(1 + sum(f[0] >= no_answer[0] for f in found[1:]), no_answer)
        logits = np.array([logit for logit, *_ in found])
        scores = np.exp(logits - logits.max())
        scores /= scores.sum()
        answers.append(
            [
                {"answer": text, "score": float(score), "start": start, "end": end}
                for score, (_, text, start, end) in zip(scores, found)
            ]
        )
    return answers, null_scores


def candidate_spans(xp, start_logits, end_logits, windows, num_questions, n_best, max_length):
    """Pairs of start and end of all windows, by question and then by their logits.

    Args:
        xp: `numpy` or `tensorflow.experimental.numpy`.
        start_logits: float `[W, L]`.
        end_logits: float `[W, L]`.
        windows: see `decode`.
        num_questions: int.
        n_best: int.
        max_length: int, in tokens.

    Returns:
        `Candidates`. Of a question without tokens, none: see also `decode`.
    """
    # The second segment begins behind [CLS] question [SEP].
    may = (windows["offsets"][:, :, 0] >= 0) & (windows["segment_ids"][:, 2:3] == 0)
    sizes = (n_best, max_length)
    found = _pairs(xp, start_logits, end_logits, windows["is_max_context"] & may, may, sizes)
    example = windows["example_index"]
    num_found = _counts(xp, take(xp, example, found.window), num_questions)
    lacks = (take(xp, num_found, example) == 0)[:, None]
    if xp is not np or lacks.any():
        # All windows again: those of other questions as before.
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


def _counts(xp, x, num_values):
    if xp is np:
        return np.bincount(x, minlength=num_values)
    import tensorflow as tf

    return tf.math.unsorted_segment_sum(tf.ones_like(x), x, num_values)
