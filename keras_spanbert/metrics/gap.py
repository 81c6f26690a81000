"""The official score of GAP, a data set of ambiguous pronouns balanced by gender."""

from keras_spanbert.checks import accepts_datasets, check_in, check_rows
from keras_spanbert.metrics.counts import precision_recall_f1

_GENDERS = {
    **dict.fromkeys(["he", "his", "him"], "masculine"),
    **dict.fromkeys(["she", "her", "hers"], "feminine"),
}


@accepts_datasets
def gap(examples, predictions) -> dict:
    """Scores predictions of which of two names a pronoun refers to, like the official script.

    Each example has two labels: whether the pronoun refers to A, and whether it
    refers to B. As in the official script, a missing prediction counts as a false
    negative for both labels, even if they are false, and predictions for unknown IDs
    are ignored.

    Args:
        examples: list of dicts with `id`, `pronoun`, `a_coref` and `b_coref`, as
            returned by `keras_spanbert.data.gap.read`.
        predictions: dict of id to a pair of bools, for A and B.

    Returns:
        Dict of `overall`, `masculine` and `feminine`, each
        `{"precision", "recall", "f1"}` in percent, and `bias`, the F1 of
        feminine pronouns divided by that of masculine ones, or `None` if either is 0.

    Raises:
        ValueError: if there are no examples, a pronoun is not one of GAP's, or a
            prediction is not a pair of bools.

    Example:
    ```python
    examples = keras_spanbert.data.gap.read("gap-test.tsv")
    keras_spanbert.metrics.gap(examples, {example["id"]: (True, False) for example in examples})
    ```

    Reference:
        [Webster et al. 2018](https://aclanthology.org/Q18-1042/).
    """
    examples = check_rows("examples", examples)
    check_in("predictions", predictions, isinstance(predictions, dict), "a dict of pairs by id")
    if not examples:
        raise ValueError("`examples` must contain examples. Received: none")
    groups = {"overall": [], "masculine": [], "feminine": []}
    for i, example in enumerate(examples):
        check_in(f"examples[{i}]", example, isinstance(example, dict), "a list of dicts")
        gender = _GENDERS.get(example["pronoun"].lower())
        if gender is None:
            raise ValueError(
                f"`pronoun` must be one of {', '.join(_GENDERS)}. Received: "
                f"{example['pronoun']!r} of {example['id']}"
            )
        predicted = predictions.get(example["id"], (None, None))
        is_pair = isinstance(predicted, (list, tuple)) and len(predicted) == 2
        if not is_pair or not all(value in (True, False, None) for value in predicted):
            raise ValueError(
                "A prediction must be two bools, for A and for B. Received: "
                f"{predicted!r:.80} of {example['id']}"
            )
        for pair in zip((example["a_coref"], example["b_coref"]), predicted):
            groups["overall"].append(pair)
            groups[gender].append(pair)
    scores = {}
    for name, pairs in groups.items():
        right = sum(bool(gold and predicted) for gold, predicted in pairs)
        wrong = sum(bool(predicted and not gold) for gold, predicted in pairs)
        missed = sum(predicted is None or bool(gold and not predicted) for gold, predicted in pairs)
        scores[name] = precision_recall_f1(right, right + wrong, right + missed)
    feminine, masculine = scores["feminine"]["f1"], scores["masculine"]["f1"]
    return {**scores, "bias": feminine / masculine if feminine and masculine else None}
