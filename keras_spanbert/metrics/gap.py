"""The official score of GAP, ambiguous pronouns balanced by gender."""

from keras_spanbert.metrics.counts import precision_recall_f1

_GENDERS = {
    **dict.fromkeys(["he", "his", "him"], "masculine"),
    **dict.fromkeys(["she", "her", "hers"], "feminine"),
}


def gap(examples, predictions) -> dict:
    """Scores which of two names pronouns refer to, as the official script does.

    Each example has two labels, whether the pronoun refers to A and whether to
    B. As in the official script, a label that is not predicted counts as one
    that was missed, whichever it is, and predictions of other ids are unused.

    Args:
        examples: list of dicts with `id`, `pronoun`, `a_coref` and `b_coref`, as
            `keras_spanbert.data.gap.read` gives.
        predictions: dict of id to a pair of bools, for A and B.

    Returns:
        Dict of `overall`, `masculine` and `feminine`, each
        `{"precision", "recall", "f1"}` in percent, and of `bias`, the F1 of
        feminine pronouns over that of masculine ones: `None` where one is 0.

    Raises:
        ValueError: where there are no examples, a pronoun is none of GAP's, or
            a prediction is no pair of bools.

    Example:
    ```python
    examples = keras_spanbert.data.gap.read("gap-test.tsv")
    keras_spanbert.metrics.gap(examples, {example["id"]: (True, False) for example in examples})
    ```

    Reference:
        [Webster et al. 2018](https://aclanthology.org/Q18-1042/).
    """
    if not examples:
        raise ValueError("`examples` must hold examples. Received: none")
    groups = {"overall": [], "masculine": [], "feminine": []}
    for example in examples:
        gender = _GENDERS.get(example["pronoun"].lower())
        if gender is None:
            raise ValueError(
                f"`pronoun` must be one of {', '.join(_GENDERS)}. Received: "
                f"{example['pronoun']!r} of {example['id']}"
            )
        predicted = _pair(predictions, example["id"])
        for pair in zip((example["a_coref"], example["b_coref"]), predicted):
            groups["overall"].append(pair)
            groups[gender].append(pair)
    scores = {name: _score(pairs) for name, pairs in groups.items()}
    feminine, masculine = scores["feminine"]["f1"], scores["masculine"]["f1"]
    return {**scores, "bias": feminine / masculine if feminine and masculine else None}


def _pair(predictions, name):
    pair = predictions.get(name, (None, None))
    if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not {*pair} <= {True, False, None}:
        raise ValueError(
            f"A prediction must be two bools, for A and for B. Received: {pair!r:.80} of {name}"
        )
    return pair


def _score(pairs):
    right = sum(bool(gold and predicted) for gold, predicted in pairs)
    wrong = sum(bool(predicted and not gold) for gold, predicted in pairs)
    missed = sum(predicted is None or bool(gold and not predicted) for gold, predicted in pairs)
    return precision_recall_f1(right, right + wrong, right + missed)
