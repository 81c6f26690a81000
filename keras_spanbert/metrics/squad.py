"""The official metrics of SQuAD 1.1 and 2.0."""

import collections
import math
import re
import string
import unicodedata

import numpy as np

from keras_spanbert.checks import (
    accepts_datasets,
    check_kind,
    check_none,
    check_number_or_none,
    is_number,
)
from keras_spanbert.wording import LOG

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
# Letters of scripts without blanks between words: Thai, Lao, Burmese, Khmer, Chinese, Japanese.
_CHARACTERS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u312f"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff]"
)


def normalize_answer(text: str) -> str:
    """Returns the text in lower case, without punctuation, articles and extra blanks."""
    text = _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION))
    return " ".join(text.split())


def normalize_characters(text: str) -> str:
    """Returns the text in lower case, without punctuation of Unicode and ASCII.

    Blanks surround the characters of scripts without blanks between words. Articles are kept.
    """
    kept = [
        character
        for character in text.lower()
        if unicodedata.category(character)[0] != "P" and character not in string.punctuation
    ]
    return " ".join(_CHARACTERS.sub(r" \g<0> ", "".join(kept)).split())


@accepts_datasets
def squad(
    dataset,
    predictions,
    by_character: bool = False,
    no_answer_scores=None,
    no_answer_threshold: float | None = None,
) -> dict:
    """Scores predictions like the official scripts.

    A question without a prediction counts as answered with `""`, which is wrong if
    the question has an answer. A warning counts these questions. The data are SQuAD
    2.0 if some questions have no answer.

    Args:
        dataset: dict with `"data"`, the articles of a SQuAD file or the rows of
            Hugging Face's `datasets`; or the list of articles or rows.
        predictions: dict of question id to answer, `""` for no answer. Ids are compared as strings.
        by_character: bool. Whether each character of a script without blanks between words
            (Chinese, Japanese, Thai, Lao, Burmese, Khmer) counts as a word, as in MLQA's script for
            Chinese. Words of other scripts, such as `"1901"`, remain whole. `exact` and `f1` then
            ignore case and all punctuation of Unicode, but not articles. CMRC 2018's script counts
            only the longest run of characters in common, which gives mostly the same F1. Defaults
            to `False`.
        no_answer_scores: dict of question id to float, higher for no answer. Defaults to `None`.
        no_answer_threshold: float. A question with a higher score counts as unanswered, whatever
            its prediction. Only with `no_answer_scores`. Defaults to `None`: no threshold.

    Returns:
        Dict with `exact` and `f1`, in percent, and `total`; with questions without answer also
        `HasAns_exact`, `HasAns_f1`, `HasAns_total` and the same for `NoAns`; then with
        `no_answer_scores` also `best_exact`, `best_exact_thresh`, `best_f1`, `best_f1_thresh`.

        The best thresholds are found as in the official script, which answers the first n questions
        in the order of `no_answer_scores`, and takes the best n. The threshold is the score of the
        last question that is answered. If it is best to answer none, it is 0.0, or the next number
        below all scores if one is not above 0. As `no_answer_threshold`, it gives the best result,
        except that it answers all questions with equal scores, of which the official script may
        count only some as answered.

    Raises:
        ValueError: if there are no questions, two have the same id, one has no score
            in `no_answer_scores`, or an argument is something else.

    Example:
    ```python
    with open("dev-v1.1.json") as file:
        scores = keras_spanbert.metrics.squad(json.load(file), {"56be4db0acb8001400a502ec": "..."})
    ```

    Reference:
        [Rajpurkar et al. 2016](https://arxiv.org/abs/1606.05250), section 6.1;
        [Rajpurkar et al. 2018](https://arxiv.org/abs/1806.03822), section 5;
        [Lewis et al. 2020](https://arxiv.org/abs/1910.07475), section 4.1.
    """
    golds = _gold_answers(dataset)
    predictions = _by_id("predictions", predictions, lambda x: isinstance(x, str), "a string")
    check_number_or_none(no_answer_threshold=no_answer_threshold)
    if no_answer_scores is None:
        check_none("`no_answer_scores` is None", no_answer_threshold=no_answer_threshold)
    if not golds:
        raise ValueError("`dataset` must contain questions. Received: none")
    ids = list(golds)
    has_answer = np.array([bool(golds[i]) for i in ids])
    is_version_1 = bool(has_answer.all())
    is_missing = np.array([i not in predictions for i in ids])
    if is_missing.any():
        LOG.warning(
            "%d of %d questions have no prediction and count as answered with '', the first %s",
            *(is_missing.sum(), len(ids), ids[is_missing.argmax()]),
        )
    texts = [predictions.get(i, "") for i in ids]
    normalize = normalize_characters if by_character else normalize_answer
    values = [
        _exact_and_f1(normalize(text), list(map(normalize, golds[i])), is_version_1)
        for i, text in zip(ids, texts)
    ]
    # An answer such as "The" is empty after normalization, and would equal a missing prediction.
    exact, f1 = np.where(has_answer & is_missing, 0.0, np.transpose(values))
    scores = None
    if no_answer_scores is not None:
        no_answer_scores = _by_id(
            "no_answer_scores",
            no_answer_scores,
            lambda x: is_number(x) and not math.isnan(x),
            "a number",
        )
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
    if no_answer_threshold is not None:
        exact, f1 = np.where(scores > no_answer_threshold, ~has_answer, [exact, f1])

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
    """Returns the texts of each question's answers, by id."""
    try:
        pairs = [
            (str(question["id"]), _texts(question["answers"]))
            for article in (dataset["data"] if isinstance(dataset, dict) else dataset)
            for paragraph in article.get("paragraphs", [{"qas": [article]}])
            for question in paragraph["qas"]
        ]
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            "`dataset` must be the content of a SQuAD file, with `id` and `answers` for each "
            f"question. Received: dataset={dataset!r:.80}, of type {type(dataset).__name__}"
        ) from error
    golds = dict(pairs)
    if len(golds) < len(pairs):
        counts = collections.Counter(name for name, _ in pairs)
        name = counts.most_common(1)[0][0]
        raise ValueError(f"Each question must have an id of its own. Received: {name!r} again")
    return golds


def _texts(answers):
    """Returns the texts of answers in a list, or in the columns of Hugging Face's `datasets`."""
    texts = answers["text"] if isinstance(answers, dict) else [x["text"] for x in answers]
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise TypeError(texts)
    return texts


def _by_id(name, values, is_right, kind):
    """Returns a dict with ids as strings. Raises a `ValueError` if the argument is not a dict."""
    check_kind(name, values, isinstance(values, dict), f"a dict of question id to {kind}")
    for i, value in values.items():
        if not is_right(value):
            raise ValueError(f"`{name}[{i!r}]` must be {kind}. Received: {value!r:.80}")
    return {str(i): value for i, value in values.items()}


def _exact_and_f1(text, golds, is_version_1):
    if not is_version_1:
        # Version 2.0 ignores gold answers that normalization makes empty.
        golds = [gold for gold in golds if gold] or [""]
    scores, words = [], text.split()
    for gold_words in map(str.split, golds):
        common = (collections.Counter(words) & collections.Counter(gold_words)).total()
        score = 2.0 * common / (len(words) + len(gold_words)) if common else 0.0
        # In version 2.0, no words are right for no words.
        scores.append(1.0 if not is_version_1 and words == gold_words == [] else score)
    return float(text in golds), max(scores)


def _best_threshold(values, scores, order, has_answer, is_empty):
    """Returns the best mean of values over all thresholds, in percent, and its threshold."""
    # With the lowest threshold no question is answered: right if it has no answer.
    # Raising the threshold to a question's score changes what that question gives.
    changes = np.where(has_answer, values, np.where(is_empty, 0.0, -1.0))[order]
    totals = np.cumsum(np.concatenate([[np.sum(~has_answer)], changes]))
    lowest = 0.0 if scores.min() > 0.0 else np.nextafter(scores.min(), -np.inf)
    best = int(np.argmax(totals))
    return 100.0 * float(totals[best]) / len(values), float([lowest, *scores[order]][best])
