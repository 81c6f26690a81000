"""The official metrics of SQuAD 1.1 and 2.0."""

import collections
import re
import string

import numpy as np

from keras_spanbert.arguments import accepts_datasets

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Returns the text in lower case, without punctuation, articles and extra blanks."""
    text = _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION))
    return " ".join(text.split())


@accepts_datasets
def squad(
    dataset, predictions, no_answer_scores=None, no_answer_threshold: float | None = None
) -> dict:
    """Scores predictions like the official scripts.

    A question without a prediction counts as answered with `""`. The data are
    SQuAD 2.0 if some questions have no answer. Only then are there scores for both
    kinds of questions, and the best thresholds.

    Args:
        dataset: dict with `"data"`, the articles of a SQuAD file; or the list
            of articles.
        predictions: dict of question id to answer, `""` for no answer.
        no_answer_scores: dict of question id to float, higher for no answer.
            Defaults to `None`. If given, the thresholds that maximize the scores
            are computed.
        no_answer_threshold: float. A question with a higher score counts as
            unanswered, whatever its prediction. Defaults to `None`: no threshold.

    Returns:
        Dict with `exact` and `f1`, in percent, and `total`; with questions
        without answer also `HasAns_exact`, `HasAns_f1`, `HasAns_total` and the
        same for `NoAns`; with `no_answer_scores` also `best_exact`,
        `best_exact_thresh`, `best_f1`, `best_f1_thresh`.

        The best thresholds are found as in the official script. It sorts the
        questions by `no_answer_scores`, answers the first n of them, and takes
        the n with the best result. The threshold is the score of the last question
        that is answered, and 0.0 if it is best to answer none. If some score is
        not above 0, 0.0 would answer that question, so here the threshold is then
        the next number below all scores. A best threshold gives the best result as
        `no_answer_threshold`, with one exception: of questions with equal scores
        the official script may count only some as answered, but a threshold
        answers all of them.

    Raises:
        ValueError: if there are no questions, or one has no score in
            `no_answer_scores`.

    Example:
    ```python
    with open("dev-v1.1.json") as file:
        scores = keras_spanbert.metrics.squad(json.load(file), {"56be4db0acb8001400a502ec": "..."})
    ```

    Reference:
        [Rajpurkar et al. 2016](https://arxiv.org/abs/1606.05250), section 6.1;
        [Rajpurkar et al. 2018](https://arxiv.org/abs/1806.03822), section 5.
    """
    golds = _gold_answers(dataset)
    if not golds:
        raise ValueError("`dataset` must contain questions. Received: none")
    ids = list(golds)
    has_answer = np.array([bool(golds[i]) for i in ids])
    is_version_1 = bool(has_answer.all())
    texts = [predictions.get(i, "") for i in ids]
    exact, f1 = np.transpose(
        [
            (_exact(text, golds[i], is_version_1), _f1(text, golds[i], is_version_1))
            for i, text in zip(ids, texts)
        ]
    )
    scores = None
    if no_answer_scores is not None:
        missing = next((i for i in ids if i not in no_answer_scores), None)
        if missing is not None:
            raise ValueError(f"`no_answer_scores` must have every question. Received: no {missing}")
        scores = np.array([no_answer_scores[i] for i in ids], "float64")
    best = {}
    if scores is not None and not is_version_1:
        is_empty = np.array([not text for text in texts])
        at = {name: i for i, name in enumerate(ids)}
        order = [at[i] for i in sorted(no_answer_scores, key=no_answer_scores.get) if i in at]
        for name, values in [("exact", exact), ("f1", f1)]:
            value, threshold = _best_threshold(values, scores, order, has_answer, is_empty)
            best[f"best_{name}"], best[f"best_{name}_thresh"] = value, threshold
    if scores is not None and no_answer_threshold is not None:
        is_cut = scores > no_answer_threshold
        exact, f1 = (np.where(is_cut, ~has_answer, values) for values in [exact, f1])

    def means(prefix, chosen):
        return {
            f"{prefix}exact": 100.0 * float(np.mean(exact[chosen])),
            f"{prefix}f1": 100.0 * float(np.mean(f1[chosen])),
            f"{prefix}total": int(np.sum(chosen)),
        }

    result = means("", np.ones(len(ids), bool))
    if not is_version_1:
        for prefix, chosen in [("HasAns_", has_answer), ("NoAns_", ~has_answer)]:
            if chosen.any():
                result.update(means(prefix, chosen))
    return {**result, **best}


def _gold_answers(dataset):
    articles = dataset["data"] if isinstance(dataset, dict) else dataset
    return {
        question["id"]: [answer["text"] for answer in question["answers"]]
        for article in articles
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    }


def _comparable_answers(golds, is_version_1):
    if is_version_1:
        return golds
    # Version 2.0 ignores gold answers that normalization makes empty.
    return [gold for gold in golds if normalize_answer(gold)] or [""]


def _exact(text, golds, is_version_1):
    golds = _comparable_answers(golds, is_version_1)
    return float(normalize_answer(text) in [normalize_answer(gold) for gold in golds])


def _f1(text, golds, is_version_1):
    return max(
        _token_f1(text, gold, is_version_1) for gold in _comparable_answers(golds, is_version_1)
    )


def _token_f1(text, gold, is_version_1):
    words, gold_words = normalize_answer(text).split(), normalize_answer(gold).split()
    if not is_version_1 and not (words and gold_words):
        return float(words == gold_words)
    common = sum((collections.Counter(words) & collections.Counter(gold_words)).values())
    return 2.0 * common / (len(words) + len(gold_words)) if common else 0.0


def _best_threshold(values, scores, order, has_answer, is_empty):
    """Returns the best mean of values over all thresholds, in percent, and its threshold."""
    # With the lowest threshold no question is answered: right if it has no answer.
    # Raising the threshold to a question's score changes what that question gives.
    changes = np.where(has_answer, values, np.where(is_empty, 0.0, -1.0))[order]
    totals = np.cumsum(np.concatenate([[np.sum(~has_answer)], changes]))
    lowest = 0.0 if scores.min() > 0.0 else np.nextafter(scores.min(), -np.inf)
    best = int(np.argmax(totals))
    return 100.0 * float(totals[best]) / len(values), float([lowest, *scores[order]][best])
