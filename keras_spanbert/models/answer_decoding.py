"""From start and end logits of windows to answers.

Legend: W = windows, L = tokens a window, n = `n_best`.
"""

import numpy as np


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
    are taken.
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
    candidates = _candidates(start_logits, end_logits, windows, n_best, max_answer_length)
    has_none = np.bincount(candidates["example"], minlength=num_questions)[example] == 0
    if has_none.any():
        in_context = windows["offsets"][:, :, 0] >= 0
        may_start = windows["is_max_context"] | ~has_none[:, None]
        may_end = in_context | ~has_none[:, None]
        candidates = _candidates(
            np.where(may_start, start_logits, -np.inf),
            np.where(may_end, end_logits, -np.inf),
            windows,
            n_best,
            max_answer_length,
        )
    null_logits = np.full(num_questions, np.inf)
    np.minimum.at(null_logits, example, start_logits[:, 0] + end_logits[:, 0])

    answers, null_scores = [], np.empty(num_questions)
    bounds = np.searchsorted(candidates["example"], np.arange(num_questions + 1))
    for i in range(num_questions):
        found, seen = [], set()
        for c in range(bounds[i], bounds[i + 1]):
            if len(found) == n_best:
                break
            start, end = int(candidates["start"][c]), int(candidates["end"][c])
            text = contexts[i][start:end]
            if text in seen:
                continue
            seen.add(text)
            found.append((float(candidates["logit"][c]), text, start, end))
        best = found[0][0] if found else -np.inf
        null_scores[i] = null_logits[i] - best
        if not found and null_threshold is None:
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


def _candidates(start_logits, end_logits, windows, n_best, max_answer_length):
    """Pairs of start and end of all windows, by question and then by their logits."""
    n = min(n_best, start_logits.shape[1])
    starts = np.argsort(-start_logits, axis=1, kind="stable")[:, :n]  # [W, n]
    ends = np.argsort(-end_logits, axis=1, kind="stable")[:, :n]
    first, last = windows["offsets"][:, :, 0], windows["offsets"][:, :, 1]
    may_start = windows["is_max_context"] & (first >= 0)
    may_start = np.take_along_axis(may_start, starts, axis=1)
    may_end = np.take_along_axis(first >= 0, ends, axis=1)
    length = ends[:, None, :] - starts[:, :, None] + 1  # [W, n, n]
    is_valid = may_start[:, :, None] & may_end[:, None, :]
    is_valid &= (length >= 1) & (length <= max_answer_length)
    window, i, j = np.nonzero(is_valid)  # [candidates]
    start, end = starts[window, i], ends[window, j]
    logit = start_logits[window, start].astype("float64") + end_logits[window, end]
    example = windows["example_index"][window]
    order = np.lexsort((-logit, example))  # Stable.
    return {
        "example": example[order],
        "logit": logit[order],
        "start": first[window, start][order],
        "end": last[window, end][order],
    }
